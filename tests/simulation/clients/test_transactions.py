"""The client with transactions does all that it should, and the checker of them can fail."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from broker.model.queue.queue import Queue
from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.checkers.clients.transactions import Contents
from tests.simulation.checkers.copies.stored import live_on_disk
from tests.simulation.clients import wire
from tests.simulation.clients.mover import Mover, Sent, State, Transaction
from tests.simulation.clients.mover_plan import MoverPlan, draw_mover, draw_movers
from tests.simulation.harness.inspection import key_of, vhost_of
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.plan import draw_plan
from tests.simulation.harness.world import World
from tests.simulation.story.overheard import Ear, Event

PLAN = MoverPlan(
    "m1", durable=True, persistent=1.0, batch=3, prefetch=0, interval=0.002, pause=0.0, rollbacks=0.0,
    cuts=0.0, requeues=0.0, rejects=0.0, fanout=False, grants=(40,),
)  # fmt: skip


class Moved(Pair):
    """A pair, and a mover that has done `count` transactions and is connected still."""

    def __init__(self, count: int = 40, **changes: Any) -> None:
        super().__init__(count=1, movers=(replace(PLAN, **changes),))
        self.mover: Mover = self.world.movers["m1"]
        self.mover.grant(count)
        limit = self.clock.now + 30.0
        while not self.mover._idle:
            assert self.clock.now < limit
            self.run(0.05)
        self.checker = self.checkers.transactions

    def queue(self, machine: Machine, name: str) -> Queue:
        return vhost_of(machine).queues[name]

    def doubtful(self) -> Transaction:
        """The last that took a message, as its client would know it had its connection gone."""
        last = next(t for t in reversed(self.mover.transactions) if t.gone and t.published)
        last.state, last.answered = State.DOUBT, False
        return last

    def bring_back(self, machine: Machine, name: str, key: str) -> None:
        """A message that had left its queue is in it again."""
        body = self.mover.sent[key][0].body
        published = wire.publish(1, "", name, body, persistent=True, frame_max=4096)
        content = published[8 + int.from_bytes(published[3:7], "big") :]
        vhost = vhost_of(machine)
        vhost.publish(vhost.route("", name), [content], persistent=True, channel=1, largest_frame=100)


@pytest.mark.system
def test_runs_have_movers_that_end_their_transactions_in_every_way() -> None:
    ends: Counter[tuple[State, bool]] = Counter()
    with_movers = 0
    for seed in range(1, 31):
        plan = draw_plan(seed)
        with_movers += bool(plan.movers)
        world = World(replace(plan, rules=(), publishers=plan.publishers[:1], consumers=(), churners=()))
        world.run()
        for mover in world.movers.values():
            ends.update((t.state, t.answered) for t in mover.transactions)
    assert with_movers > 15
    assert ends[State.COMMITTED, True] > 70
    assert ends[State.UNDONE, False] > 20
    assert ends[State.DOUBT, False] > 5
    assert not ends[State.COMMITTED, False] and not ends[State.UNDONE, True]
    assert not ends[State.OPEN, False] and not ends[State.COMMITTING, False]


@pytest.mark.parametrize("seed", range(1, 30))
def test_movers_draw_from_a_source_of_their_own(seed: int) -> None:
    plan = draw_plan(seed)
    movers = draw_movers(plan.random("movers"), cut_every=plan.publishers[0].cut_every)
    weak = plan.confirm != "all-disks" or plan.levels  # what a commit waits for is another matter there
    assert plan.movers == (() if weak else movers)
    assert draw_mover(plan.random("movers"), "m1", cut_every=0.0).name == "m1"


@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_quiet_pair_does_what_the_mover_asks_for(prefetch: int) -> None:
    pair = Moved(prefetch=prefetch, rollbacks=0.3, rejects=0.2, requeues=0.2, fanout=True, pause=0.003)
    ends = Counter(t.state for t in pair.mover.transactions)
    assert ends[State.COMMITTED] + ends[State.UNDONE] == 40 and ends[State.UNDONE]
    assert pair.checker.commits == ends[State.COMMITTED]
    pair.checker.look(pair.a, quiet=True)
    pair.checker.look(pair.b)
    mover = pair.mover
    assert any(t.gone for t in mover.transactions) and any(t.back for t in mover.transactions)
    assert any(len(sent.queues) == 2 for sent, _ in mover.sent.values())


def test_a_commit_that_is_refused_is_undone_and_the_mover_goes_on() -> None:
    pair = Moved(limit=3, batch=8)
    ends = Counter((t.state, bool(t.sent_at)) for t in pair.mover.transactions)
    assert ends[State.UNDONE, True] and ends[State.COMMITTED, True]
    assert pair.mover.connections > 1
    pair.checker.look(pair.a, quiet=True)


# -- what a node holds


def test_7_a_committed_message_that_is_gone() -> None:
    pair = Moved()
    pair.checker.look(pair.a)
    queue = pair.queue(pair.a, "out-m1")
    queue.ready.pop()
    with violates(7):
        pair.checker.look(pair.a)


def test_7_an_acked_message_that_is_back() -> None:
    pair = Moved()
    key = next(t.gone[0] for t in pair.mover.transactions if t.gone)
    pair.bring_back(pair.a, "in-m1", key)
    with violates(7):
        pair.checker.look(pair.a)


def test_7_a_message_that_is_there_twice() -> None:
    pair = Moved()
    queue = pair.queue(pair.a, "out-m1")
    key = key_of(next(raw for _, _, raw in queue.held_entries()))
    pair.bring_back(pair.a, "out-m1", key)
    with violates(7):
        pair.checker.look(pair.a)


@pytest.mark.parametrize("state", [State.OPEN, State.UNDONE])
def test_7_what_was_never_committed_is_seen(state: State) -> None:
    pair = Moved()
    transaction = pair.doubtful()
    pair.checker.look(pair.a)
    transaction.state = state
    with violates(7):
        pair.checker.look(pair.a)


def test_7_in_doubt_it_is_all_or_nothing() -> None:
    pair = Moved()
    transaction = pair.doubtful()
    pair.checker.look(pair.a)
    pair.bring_back(pair.a, "in-m1", transaction.gone[0])
    with violates(7):
        pair.checker.look(pair.a)


def test_7_what_a_quiet_point_has_shown_stays_so() -> None:
    pair = Moved()
    transaction = pair.doubtful()
    pair.checker.look(pair.a, quiet=True)
    assert pair.checker.decided == {transaction.name: True}
    out = pair.queue(pair.a, "out-m1")
    for kept in [entry for entry in out.ready if key_of(entry[2]).startswith(f"{transaction.name}:")]:
        out.ready.remove(kept)
    for key in transaction.gone:
        pair.bring_back(pair.a, "in-m1", key)
    with violates(7):
        pair.checker.look(pair.a)
    pair.checker.decided.clear()
    pair.checker.look(pair.a)


def test_7_no_message_is_taken_twice() -> None:
    pair = Moved()
    mover = pair.mover
    first = next(t for t in mover.transactions if t.gone)
    other = mover.transactions[-1]
    assert other is not first
    other.gone.append(first.gone[0])
    mover.takers[first.gone[0]].append(other)
    with violates(7):
        pair.checker.look(pair.a)


def test_7_what_only_memory_had_may_be_gone_as_a_whole() -> None:
    """And not what a disk keeps."""
    pair = Moved(persistent=0.0)
    for name in ("in-m1", "out-m1"):
        pair.queue(pair.a, name).ready.clear()
    with violates(7):
        pair.checker.look(pair.a)
    pair.journal.memory_lost = pair.clock.now
    pair.checker.look(pair.a)
    pair.mover.plan = replace(PLAN, persistent=1.0)
    for sent, _ in pair.mover.sent.values():
        sent.persistent = True
    with violates(7):
        pair.checker.look(pair.a)


# -- what leaves a node, and what arrives


def _commit(pair: Moved, *, published: bool, gone: bool) -> Transaction:
    """One that waits for its commit-ok, as the last one did."""
    done = next(t for t in reversed(pair.mover.transactions) if t.gone and t.published)
    again = Transaction(done.name, done.published if published else [], done.gone if gone else [])
    again.state, again.sent_at = State.COMMITTING, pair.clock.now
    pair.mover.current = again
    return again


def _answer(pair: Moved) -> None:
    assert pair.mover.session is not None
    pair.checker.answered(pair.a, pair.mover.session.connection)


def test_7_commit_ok_leaves_and_a_backup_lacks_it() -> None:
    pair = Moved()
    _commit(pair, published=True, gone=True)
    _answer(pair)
    transaction = _commit(pair, published=True, gone=False)
    key = f"{transaction.name}:9"
    transaction.published.append(Sent(key, b"<" + key.encode() + b">", ("out-m1",), False))
    with violates(7):
        _answer(pair)


def test_7_commit_ok_leaves_and_what_was_acked_is_still_there() -> None:
    pair = Moved()
    transaction = _commit(pair, published=False, gone=True)
    pair.bring_back(pair.a, "in-m1", transaction.gone[0])
    with violates(7):
        _answer(pair)


def test_7_commit_ok_leaves_and_a_restart_would_bring_back_what_was_acked() -> None:
    pair = Moved(count=80)
    name = "in-m1"
    uuid = pair.queue(pair.a, name).uuid
    held = {(envelope.epoch, sequence) for sequence, envelope, _ in pair.queue(pair.a, name).held_entries()}
    for machine in (pair.a, pair.b):
        assert live_on_disk(machine, uuid) == held
    assert held, "the mover has emptied its queue"
    transaction = _commit(pair, published=False, gone=True)
    _answer(pair)
    pair.checker._ids[transaction.gone[0]] = min(held)
    with violates(7):
        _answer(pair)


def test_7_commit_ok_that_nobody_asked_for() -> None:
    pair = Moved()
    with violates(7):
        _answer(pair)


def test_3_a_commit_while_a_dead_backup_is_in_the_record() -> None:
    pair = Moved()
    pair.b.kill()
    pair.run(0.001)
    _commit(pair, published=True, gone=True)
    with violates(3):
        _answer(pair)


def test_7_deliveries_that_must_not_be() -> None:
    pair = Moved()
    mover, checker = pair.mover, pair.checker
    key = next(t.gone[0] for t in mover.transactions if t.gone)
    body = mover.sent[key][0].body
    with violates(7):
        checker.delivered(mover, key, body)  # acked
    with violates(7):
        checker.delivered(mover, "m1-999:0", b"<m1-999:0>")  # nobody's
    free = next(
        key for key, (sent, _) in mover.sent.items() if "in-m1" in sent.queues and not mover.takers.get(key)
    )
    sent, published = mover.sent[free]
    mover.held.clear()
    checker.delivered(mover, free, sent.body)
    mover.held[1] = free
    with violates(7):
        checker.delivered(mover, free, sent.body)  # held
    mover.held.clear()
    published.state = State.UNDONE
    with violates(7):
        checker.delivered(mover, free, sent.body)  # rolled back


def test_what_a_restart_would_bring_back_is_no_more_than_is_held() -> None:
    pair = Moved(count=80)
    queue = pair.queue(pair.a, "out-m1")
    before = live_on_disk(pair.a, queue.uuid)
    assert len(before) == len(list(queue.held_entries()))
    queue.purge()
    assert live_on_disk(pair.a, queue.uuid) == before
    pair.a.tick_soon()
    pair.run(1.0)
    assert not live_on_disk(pair.a, queue.uuid)


def test_conclusions_reach_through_chains() -> None:
    """Who took a message has proven that it was published."""
    pair = Moved()
    mover = pair.mover
    taker = next(t for t in mover.transactions if t.gone and t.published)
    source = mover.sent[taker.gone[0]][1]
    for transaction in (taker, source):
        transaction.state, transaction.answered = State.DOUBT, False
    found = Contents(pair.a, mover, -1.0)
    for transaction in mover.transactions:
        found.begin(transaction, None)
    found.conclude()
    assert found.in_doubt() == {taker.name: True, source.name: True}


def test_7_dead_letters_of_a_transaction_are_part_of_it() -> None:
    pair = Moved(dead_letters=True, rejects=0.3)
    mover = pair.mover
    pair.checker.look(pair.a)
    thrower = next(t for t in reversed(mover.transactions) if t.thrown)
    key = thrower.thrown[0]
    out = pair.queue(pair.a, "out-m1")
    (letter,) = [entry for entry in out.ready if key_of(entry[2]) == key]
    thrower.thrown.remove(key)
    with violates(7):
        pair.checker.look(pair.a)  # nobody has thrown it away
    thrower.thrown.append(key)
    out.ready.remove(letter)
    with violates(7):
        pair.checker.look(pair.a)
    _commit(pair, published=False, gone=True).thrown.append(key)
    with violates(7):
        _answer(pair)


def test_a_story_says_what_a_commit_is_about() -> None:
    told: list[Event] = []
    ear = Ear(lambda: 0.0, told.append)
    publish = wire.publish(1, "", "q", b"<m1-1:0>", persistent=True, frame_max=4096)
    asked = wire.PREAMBLE + wire.method(1, "tx.select") + publish + wire.method(1, "tx.commit")
    ear.hear("m1#1", "m1", "A", asked)
    ear.hear("m1#1", "A", "m1", wire.method(1, "tx.select-ok") + wire.method(1, "tx.commit-ok"))
    ear.hear("m1#1", "m1", "A", wire.method(1, "tx.rollback"))
    about = {event.text: event.keys for event in told if event.group == "transactions"}
    assert about["tx.commit"] == about["tx.commit-ok"] == {"m1-1:0"}
    assert not about["tx.select"] and not about["tx.rollback"]
