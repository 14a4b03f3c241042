"""Many dead letters at once: each tick does a bounded amount of work for them, and others are served between.

In counted steps: what `work_of` says of each letter is what a tick may spend.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from broker.amqp091.codec.grammar import encode_frame
from broker.model.history.batch import Batch
from broker.model.history.records import Dequeue, EnqueueRun
from broker.model.queue.queue import Mode
from broker.model.queue.removals import LOOKED, WORK_AT_ONCE, work_of
from broker.model.routing import topic_trie
from broker.model.values import Reason
from tests.broker.amqp091.transacting import Batches, Replicated
from tests.broker.amqp091.wire import Raw, World, message
from tests.hostile.test_budgets import PATTERNS

MANY = 5000
WAY = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
LETTER = work_of(0, 0, 1)


class Mill(World):
    """A queue `q` with a way to `dead`; each tick by hand, and every batch of history."""

    def __init__(self, **rules: Any) -> None:
        super().__init__(Replicated())
        self.batches = Batches()
        self.broker.sinks.append(self.batches)
        self.client = self.open()
        self.client.call(1, "queue.declare", queue="dead")
        self.client.call(1, "queue.declare", queue="q", arguments=WAY | rules)
        self.q, self.dead = self.vhost.queues["q"], self.vhost.queues["dead"]

    def fill(self, count: int = MANY, *, properties: bytes = b"\0\0", **to: str) -> None:
        self.client.raw(message(1, b"x", **({"routing_key": "q"} | to), properties=properties) * count)

    def taken(self, count: int = MANY) -> Raw:
        """All are with the client, which has not acknowledged them."""
        self.fill(count)
        self.client.send(1, "basic.consume", queue="q", consumer_tag="c")
        self.client.read()
        assert self.q.unacked_count == count
        return self.client

    def say(self, name: str, **arguments: Any) -> None:
        """Without a tick."""
        self.client.connection.receive(encode_frame(1, name, **arguments), self.now)

    def step(self) -> None:
        """One tick."""
        self.broker.end_tick(self.now, int(self.now * 1000))

    def steps(self) -> list[int]:
        """Ticks until nothing waits; how many dead letters there were after each."""
        told = []
        removals = self.vhost.removals
        while (
            self.broker.resuming
            or removals.waiting
            or removals.in_pieces
            or (removals.next() or self.now * 2000) <= self.now * 1000
        ):
            self.step()
            told.append(self.dead.total_count)
        return told


def refuse(mill: Mill) -> None:
    mill.say("basic.nack", delivery_tag=0, multiple=True, requeue=False)


def check_moves(mill: Mill, batches: list[Batch]) -> None:
    """In each batch as many leave the one queue as come into the other."""
    for batch in batches:
        moved: Counter[str] = Counter()
        for record in batch.records:
            if isinstance(record, Dequeue) and record.reason is Reason.DEAD_LETTERED:
                moved["left"] += sum(last - first + 1 for first, last in record.ranges)
            elif isinstance(record, EnqueueRun) and record.queues == [mill.dead.uuid]:
                moved["came"] += len(record.raws)
        assert moved["left"] == moved["came"]


@pytest.mark.parametrize("how", ["rejected", "delivery_limit"])
def test_refusing_many_at_once_is_worked_off_in_steps(how: str) -> None:
    mill = Mill(**({} if how == "rejected" else {"x-delivery-limit": 0}))
    mill.taken()
    begun = len(mill.batches.taken)
    mill.say("basic.nack", delivery_tag=0, multiple=True, requeue=how != "rejected")
    counts = [0, mill.dead.total_count, *mill.steps()]
    assert max(b - a for a, b in itertools.pairwise(counts)) <= WORK_AT_ONCE // LETTER + 1
    assert counts[-1] == MANY and mill.q.total_count == 0
    check_moves(mill, mill.batches.taken[begun:])
    assert [entry[2][-2:-1] for entry in mill.dead.ready] == [b"x"] * MANY


def test_what_was_refused_comes_to_nobody_again() -> None:
    """It is the channel's no more: neither its end nor an ack of the same tag brings it back."""
    mill = Mill()
    mill.taken()
    refuse(mill)
    assert 0 < mill.q.unacked_count < MANY
    mill.say("basic.recover", requeue=True)
    mill.say("channel.close", reply_code=0, reply_text="", failed_class=0, failed_method=0)
    mill.steps()
    assert (mill.q.total_count, mill.dead.total_count) == (0, MANY)


def test_dead_letters_keep_the_order_in_which_they_were_refused() -> None:
    mill = Mill()
    for n in range(1000):
        mill.client.publish(1, b"%04d" % n, routing_key="q")
    mill.client.send(1, "basic.consume", queue="q", consumer_tag="c")
    mill.say("basic.nack", delivery_tag=900, multiple=True, requeue=False)
    mill.say("basic.reject", delivery_tag=1000, requeue=False)
    mill.say("basic.ack", delivery_tag=999)
    mill.say("basic.nack", delivery_tag=998, multiple=True, requeue=False)
    mill.steps()
    bodies = [int(entry[2][-5:-1]) for entry in mill.dead.ready]
    assert bodies == [*range(900), 999, *range(900, 998)]


def test_a_primary_that_ends_midway_still_has_what_is_no_dead_letter_yet() -> None:
    mill = Mill()
    mill.taken()
    refuse(mill)
    mill.step()
    moved = mill.dead.total_count
    assert 0 < moved < MANY
    mill.vhost.shared.history.flush(mill.now, 0, force=True)
    mill.vhost.shared.deactivate()
    assert mill.q.mode is Mode.REPLICA
    assert (mill.q.total_count, mill.dead.total_count) == (MANY - moved, moved)
    mill.vhost.shared.activate(2)
    mill.steps()
    assert (mill.q.message_count, mill.dead.total_count) == (MANY - moved, moved)


@pytest.mark.parametrize("how", ["deleted", "left", "left and declared anew"])
def test_a_queue_that_others_end_midway_ends_after_its_dead_letters(how: str) -> None:
    mill = Mill()
    mill.q.auto_delete = how != "deleted"
    mill.taken()
    other = mill.open()
    refuse(mill)
    if how == "deleted":
        other.connection.receive(encode_frame(1, "queue.delete", queue="q"), mill.now)
    else:
        mill.client.connection.lost(mill.now)
    if how == "left and declared anew":
        mill.step()
        other.connection.receive(encode_frame(1, "queue.declare", queue="q"), mill.now)
        other.connection.receive(encode_frame(1, "queue.declare", queue="q", passive=True), mill.now)
    before = mill.dead.total_count
    assert 0 < before < MANY and not mill.q.deleted
    counts = [before, *mill.steps()]
    assert max(b - a for a, b in itertools.pairwise(counts)) <= 2 * WORK_AT_ONCE // LETTER + 1
    assert mill.q.deleted and mill.dead.total_count == MANY
    other.inbox += b"".join(other.connection.take_output())
    answers = {"deleted": ["queue.delete-ok"], "left and declared anew": ["queue.declare-ok"] * 2}
    assert other.names() == answers.get(how, [])


REFUSING = {"x-max-length": 0, "x-overflow": "reject-publish-dlx"}


def with_long_ways(**rules: Any) -> Mill:
    """A topic exchange looks at each pattern for each word of the key by which dead letters go."""
    way = {"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": ".".join("a" * 50)}
    mill = Mill(**way, **rules)
    for pattern in PATTERNS:
        mill.vhost.bind_queue("dead", "amq.topic", pattern, owner=None)
    return mill


@pytest.mark.parametrize("how", ["rejected", "committed", "expired", "maxlen", "refused"])
def test_the_way_of_a_dead_letter_is_looked_up_in_pieces(how: str) -> None:
    rules = {"expired": {"x-message-ttl": 0}, "maxlen": {"x-max-length": 0}, "refused": REFUSING}
    mill = with_long_ways(**rules.get(how, {}))
    if how == "committed":
        mill.client.call(1, "tx.select")
        mill.fill(3)
        mill.client.call(1, "tx.commit")
        for tag in (1, 2, 3):
            mill.client.send(1, "basic.get", queue="q")
            mill.say("basic.reject", delivery_tag=tag, requeue=False)
        mill.say("tx.commit")
    elif how == "rejected":
        mill.taken(3)
        refuse(mill)
    else:
        mill.client.connection.receive(message(1, b"x", routing_key="q") * 3, mill.now)
    looked = [0, mill.vhost.looked]
    while mill.dead.total_count < 3:
        assert mill.q.total_count == 3 - mill.dead.total_count
        mill.step()
        looked.append(mill.vhost.looked)
    assert len(looked) > 4
    most = mill.broker.settings.share if how == "committed" else LOOKED * WORK_AT_ONCE
    assert max(b - a for a, b in itertools.pairwise(looked)) <= most + topic_trie.PIECE
    assert not mill.vhost.removals.searches
    if how == "committed":
        (begun,) = [batch for batch in mill.batches.taken if Reason.DEAD_LETTERED in reasons(batch)]
        assert sum(len(record.raws) for record in begun.records if isinstance(record, EnqueueRun)) == 3


def reasons(batch: Batch) -> set[Reason]:
    return {record.reason for record in batch.records if isinstance(record, Dequeue)}


def test_what_a_full_queue_refuses_is_sent_on_in_steps() -> None:
    """The publisher is told at once, and read from again when all are dead letters."""
    mill = Mill(**REFUSING)
    mill.client.call(1, "confirm.select")
    mill.client.connection.receive(message(1, b"x", routing_key="q") * MANY, mill.now)
    mill.say("queue.declare", queue="q", passive=True)
    counts = [0, mill.dead.total_count, *mill.steps()]
    assert max(b - a for a, b in itertools.pairwise(counts)) <= 2 * WORK_AT_ONCE // LETTER + 1
    assert counts[-1] == MANY and mill.q.total_count == 0
    mill.client.inbox += b"".join(mill.client.connection.take_output())
    seen = mill.client.read()
    assert {frame.name for frame in seen[:-1]} == {"basic.nack"} and seen[-1]["message_count"] == 0


def test_a_new_primary_sends_on_what_a_full_queue_held() -> None:
    """No consumer gets a message that was refused."""
    mill = with_long_ways(**REFUSING)
    mill.client.connection.receive(message(1, b"x", routing_key="q") * 3, mill.now)
    mill.step()
    assert (mill.q.total_count, mill.q.message_count, mill.dead.total_count) == (3, 0, 0)
    mill.vhost.shared.deactivate()
    mill.vhost.shared.activate(2)
    mill.now += 0.001
    other = mill.open()
    other.send(1, "basic.consume", queue="q", consumer_tag="c")
    assert other.names() == ["basic.consume-ok"]
    mill.steps()
    assert (mill.q.total_count, mill.dead.total_count) == (0, 3)


@pytest.mark.parametrize("together", [True, False])
def test_whoever_refuses_many_is_served_again_when_they_are_dead_letters(together: bool) -> None:
    """So the end of a queue comes after them, and is no step with all of them."""
    mill = Mill()
    mill.taken()
    nack = encode_frame(1, "basic.nack", delivery_tag=0, multiple=True, requeue=False)
    delete = encode_frame(1, "queue.delete", queue="q")
    for data in [nack + delete] if together else [nack, delete]:
        mill.client.connection.receive(data, mill.now)
    counts = [0, mill.dead.total_count, *mill.steps()]
    assert max(b - a for a, b in itertools.pairwise(counts)) <= WORK_AT_ONCE // LETTER + 1
    assert mill.q.deleted and mill.dead.total_count == MANY
    mill.client.inbox += b"".join(mill.client.connection.take_output())
    assert mill.client.names() == ["queue.delete-ok", "basic.cancel"]


def test_a_commit_is_one_step_with_all_that_it_refuses() -> None:
    mill = Mill()
    mill.taken(200)
    mill.client.call(1, "tx.select")
    refuse(mill)
    mill.step()
    begun = len(mill.batches.taken)
    mill.say("tx.commit")
    mill.step()
    (batch,) = mill.batches.taken[begun:]
    assert mill.dead.total_count == 200
    check_moves(mill, [batch])


def test_many_that_expire_are_worked_off_by_what_they_cost() -> None:
    """Large headers, and many queues, make the steps smaller in number."""
    mill = Mill(**{"x-message-ttl": 1000})
    field = b"\x01h" + b"S" + (8000).to_bytes(4, "big") + b"v" * 8000
    mill.fill(300, properties=b"\x20\0" + len(field).to_bytes(4, "big") + field)
    mill.now += 2
    mill.step()
    counts = [0, mill.dead.total_count, *mill.steps()]
    mill.steps()
    assert max(b - a for a, b in itertools.pairwise(counts)) <= WORK_AT_ONCE // work_of(8000, 0, 1) + 1
    assert counts[-1] == 300


def test_a_first_message_with_one_way_does_not_speak_for_others_with_hundreds() -> None:
    mill = Mill()
    mill.client.call(1, "exchange.declare", exchange="wide", type="direct")
    rules = {"x-message-ttl": 1000, "x-dead-letter-exchange": "wide"}
    mill.client.call(1, "queue.declare", queue="mixed", arguments=rules)
    mill.client.call(1, "exchange.declare", exchange="in", type="fanout")
    mill.client.call(1, "queue.bind", queue="mixed", exchange="in", routing_key="")
    mill.client.call(1, "queue.bind", queue="dead", exchange="wide", routing_key="one")
    for n in range(300):
        mill.client.call(1, "queue.declare", queue=f"end{n}")
        mill.client.call(1, "queue.bind", queue=f"end{n}", exchange="wide", routing_key="all")
    mill.client.publish(1, b"x", exchange="in", routing_key="one")
    mill.fill(100, exchange="in", routing_key="all")
    end, mixed = mill.vhost.queues["end0"], mill.vhost.queues["mixed"]
    mill.now += 2
    most = before = 0
    while mixed.total_count:
        mill.step()
        most, before = max(most, end.total_count - before), end.total_count
    assert most <= WORK_AT_ONCE // work_of(0, 0, 300) + 1
    assert end.total_count == 100


def test_a_get_from_a_queue_full_of_what_is_over_is_answered_in_one_step() -> None:
    mill = Mill(**{"x-message-ttl": 1000})
    mill.fill()
    mill.now += 2
    mill.broker.clock(mill.now, 0)
    mill.say("basic.get", queue="q")
    assert mill.dead.total_count <= WORK_AT_ONCE // LETTER + 1
    mill.steps()
    mill.client.inbox += b"".join(mill.client.connection.take_output())
    assert mill.client.names() == ["basic.get-empty"]


def test_others_are_served_between_the_steps() -> None:
    mill = Mill()
    mill.taken()
    victim = mill.open()
    victim.call(1, "confirm.select")
    victim.call(1, "queue.declare", queue="victim")
    refuse(mill)
    while mill.vhost.removals.waiting:
        victim.connection.receive(message(1, b"v", routing_key="victim"), mill.now)
        mill.step()
        victim.inbox += b"".join(victim.connection.take_output())
        assert victim.names() == ["basic.ack"]
