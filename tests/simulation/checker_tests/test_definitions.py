"""The checkers of definitions, of temporary queues and of users object to what they are there for."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from broker.model.history.records import EntryPut
from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.checkers.outputs import Confirm
from tests.simulation.clients.registrar import changes_of
from tests.simulation.harness.journal import Known, Temporary

ACK = [Confirm(1, False)]


def test_6_what_a_client_was_told_is_so_after_a_failover() -> None:
    pair = Pair(count=1)
    promotion = pair.checkers.records.promotions[-1]
    checker, known = pair.checkers.definitions, pair.journal.definitions
    checker.promoted(promotion, cold=False)
    known["queue", "q9"] = None
    checker.promoted(promotion, cold=False)
    known["queue", "q9"] = Known(True, False, 1.0)
    checker.promoted(promotion, cold=True)
    with violates(6):
        checker.promoted(promotion, cold=False)
    known.pop(("queue", "q9"))
    known["binding", "amq.fanout", "q1", ""] = Known(False, True, 1.0)
    with violates(6):
        checker.promoted(promotion, cold=True)


def test_6_an_answer_waits_for_the_backups() -> None:
    pair = Pair(count=1)
    checker, journal = pair.checkers.definitions, pair.journal
    for exists, name, fine in (
        (True, "q1", True),
        (True, "q9", False),
        (False, "q9", True),
        (False, "q1", False),
    ):
        journal.asking([("queue", name)], exists, "d#1")
        with nullcontext() if fine else violates(6):
            checker.answered(pair.a, "d#1", 1)
    checker.answered(pair.a, "d#1", 1)
    journal.asking([("binding", "amq.fanout", "q1", "")], True, "d#1")
    checker.answered(pair.a, "d#1", 1)
    journal.asking([("binding", "amq.fanout", "q1", "other")], True, "d#1")
    with violates(6):
        checker.answered(pair.a, "d#1", 1)


def test_18_a_backup_does_not_end_a_queue_by_itself() -> None:
    pair = Pair(count=1)
    checker = pair.checkers.temporaries
    for machine in pair.world.machines:
        queue = machine.running.vhost.queues["q2"]
        queue.auto_delete = True
        machine.running.vhost.generation += 1
        checker.tick(machine)
    pair.b.running.vhost.queues.pop("q2")
    pair.b.running.vhost.generation += 1
    with violates(18):
        checker.tick(pair.b)
    checker._stepped_down(pair.a, ["q2"])
    pair.journal.temporaries["q2"] = Temporary(0.0, asked_at=pair.clock.now + 1)
    with violates(18):
        checker._stepped_down(pair.a, ["q2"])
    pair.journal.temporaries["q2"].ending = True
    checker._stepped_down(pair.a, ["q2"])
    gone = pair.a.running.vhost.queues.pop("q2")
    del pair.a.running.vhosts.queues_by_uuid[gone.uuid]
    pair.a.running.vhost.generation += 1
    checker.tick(pair.a)
    assert checker.ended == 1
    pair.a.running.vhost.queues["q2"] = gone
    pair.a.running.vhost.generation += 1
    with violates(18):
        checker.tick(pair.a)


@pytest.mark.parametrize("lasts", [0.0, 1.0], ids=["a queue of a client", "an expiring one"])
def test_18_a_new_primary_waits_for_clients_to_come_back(lasts: float) -> None:
    pair = Pair(count=1)
    checker, now = pair.checkers.temporaries, pair.clock.now
    queue = pair.a.running.vhost.queues["q2"]
    queue.auto_delete = True
    pair.a.running.vhost.generation += 1
    checker.tick(pair.a)
    temporary = pair.journal.temporaries["q2"] = Temporary(now - 99, lasts=lasts, asked_at=now - 99)
    checker.serves_since["A"] = now - (lasts or checker.grace)
    checker._waited_for(pair.a, "q2")
    checker.serves_since["A"], temporary.asked_at = now - 0.5, now - 0.4
    checker._waited_for(pair.a, "q2")
    checker.last_promotion = now - 0.1  # of another, which this one has not heard of
    checker._waited_for(pair.a, "q2")
    temporary.asked_at = now - 99
    pair.a.running.vhost.queues.pop("q2")
    pair.a.running.vhost.generation += 1
    with violates(18, "A ends q2 0.500 s after it began to serve"):
        checker.tick(pair.a)


def test_18_who_is_promoted_in_the_tick_in_which_it_hears_of_an_end_did_not_end_it() -> None:
    """Seed 130508563: its primary had ended the queue, and told it so with its last words."""
    pair = Pair(count=1)
    checker, now = pair.checkers.temporaries, pair.clock.now
    for machine in (pair.a, pair.b):
        machine.running.vhost.queues["q2"].auto_delete = True
        machine.running.vhost.generation += 1
        checker.tick(machine)
    pair.journal.temporaries["q2"] = Temporary(now - 99, asked_at=now - 99)
    uuid = pair.b.running.vhost.queues["q2"].uuid
    life, generation, queues, serving = checker._seen["B"]
    assert not serving
    pair.b.running.vhost.queues.pop("q2")
    pair.b.running.vhost.generation += 1
    checker._over.add(("A", pair.a.life, uuid))
    pair.b.role = pair.a.role  # type: ignore[method-assign]
    checker.tick(pair.b)
    checker._seen["B"] = (life, generation, queues, serving)
    checker._over.clear()
    with violates(18, "B ends q2 0.000 s after it began to serve"):
        checker.tick(pair.b)


def test_18_a_temporary_queue_does_end() -> None:
    pair = Pair(count=1)
    checker, grace = pair.checkers.temporaries, pair.world.plan.timing.reconnect_grace
    now = pair.clock.now
    temporary = pair.journal.temporaries["q2"] = Temporary(now)
    checker.quiet(pair.a, now + 100, -1.0)
    temporary.over_at = now
    checker.last_promotion = now + 50
    checker.quiet(pair.a, now + 50 + grace, -1.0)
    with violates(18):
        checker.quiet(pair.a, now + 51 + grace, -1.0)
    checker.last_promotion = now - 1
    with violates(18):
        checker.quiet(pair.a, now + 1, -1.0)


def test_18_a_broker_that_did_not_hear_of_a_clients_end_still_has_its_queue() -> None:
    """Seed 21019771: the client came back for its auto-delete queue, and left, after a connection without
    heartbeats was lost in a cut."""
    pair = Pair(count=1)
    checker, now = pair.checkers.temporaries, pair.clock.now
    checker.last_promotion = now - 1
    temporary = pair.journal.temporaries["q2"] = Temporary(now, over_at=now, torn=(now - 0.3, now))
    checker.quiet(pair.a, now + 1, now - 0.1)
    temporary.torn = (now - 20, now - 0.05)
    with violates(18):
        checker.quiet(pair.a, now + 1, now - 0.1)


def test_18_time_without_use_begins_when_a_stopped_broker_hears_of_it() -> None:
    """Seed 121089735: its client went while the primary was stopped (SIGSTOP)."""
    pair = Pair(count=1)
    checker, now = pair.checkers.temporaries, pair.clock.now
    checker.last_promotion = now - 2
    pair.journal.temporaries["q2"] = Temporary(now - 1, over_at=now - 0.9, lasts=1.0)
    pair.a.pause()
    pair.a.resume()
    checker.quiet(pair.a, now + 1.3, now - 9)
    with violates(18):
        checker.quiet(pair.a, now + 1.5, now - 9)


# -- users


def test_a_user_that_is_not_the_one_of_the_answer_is_6() -> None:
    pair = Pair(1)
    pair.world.registrar.users["u1"] = frozenset((3,))
    with violates(6):
        pair.checkers.directory.look(pair.a, "just promoted")
    pair.a.running.vhosts.change_directory(entries_of("u1", 3))
    pair.checkers.directory.look(pair.a, "just promoted")
    pair.world.registrar.users["u1"] = frozenset((0, 4))
    with violates(6):
        pair.checkers.directory.look(pair.a, "at rest")


def test_half_of_a_change_of_a_user_is_6() -> None:
    pair = Pair(1)
    pair.world.registrar.users["u1"] = frozenset((0, 3))
    pair.a.running.vhosts.change_directory(entries_of("u1", 3)[:1])
    with violates(6):
        pair.checkers.directory.look(pair.a, "just promoted")


def entries_of(name: str, number: int) -> list[EntryPut]:
    return [
        EntryPut(change["kind"], change["vhost"], change["name"], change["value"])
        for change in changes_of(name, number)
    ]
