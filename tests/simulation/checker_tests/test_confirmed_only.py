"""The checker of what comes to consumers with `x-confirmed-only`, shown what it must object to."""

from __future__ import annotations

import pytest

from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.checkers.clients.confirmed_only import ConfirmedOnly23
from tests.simulation.harness.inspection import held, vhost_of
from tests.simulation.harness.journal import Message, Settled, Subscription


class Delivered:
    """A quiet pair, and a message of q1 that the backup lacks."""

    def __init__(self) -> None:
        self.pair = Pair()
        pair = self.pair
        self.checker: ConfirmedOnly23 = pair.checkers.confirmed_only
        self.message: Message = pair.in_queue("q1")[0]
        epoch, sequence, _ = held(pair.b, "q1")[0]
        vhost_of(pair.b).queues["q1"].replica.dequeue(epoch, [(sequence, sequence)])

    def deliver(self, message: Message, *, confirmed_only: bool = True) -> None:
        now, line = self.pair.clock.now, self.pair.publisher.line
        by = Subscription("c", "q1", now, line=line, confirmed_only=confirmed_only)
        self.pair.journal.deliver(by, message.body, True, now)


def test_23_what_comes_is_on_all_copies() -> None:
    story = Delivered()
    there = story.pair.in_queue("q1")[1]
    story.deliver(there)
    assert story.checker.checked == 1
    story.deliver(story.message, confirmed_only=False)
    with violates(23, f"B lacks it in q1 the {story.message.key} that c got"):
        story.deliver(story.message)


def test_23_who_is_promoted_has_what_came() -> None:
    story = Delivered()
    with violates(23):
        story.deliver(story.message)
    with violates(23, f"B is promoted without the {story.message.key} of q1"):
        story.checker.promoted(story.pair.b)
    story.checker.promoted(story.pair.a)
    with violates(23, "is lost from q1"):
        story.checker.end([story.pair.clock.now + 1])


@pytest.mark.parametrize("how", ["settled", "purged", "forced", "cold"])
def test_23_what_was_ended_or_excused_need_not_be_there(how: str) -> None:
    story = Delivered()
    journal = story.pair.journal
    with violates(23):
        story.deliver(story.message)
    match how:
        case "settled":
            journal.settle("q1", story.message, Settled.ACKED)
        case "purged":
            journal.voiding("purge", "q1")
        case "forced":
            journal.forcing()
        case _:
            journal.cold_start(lagging=True)
    story.checker.promoted(story.pair.b)
    story.checker.end([])
