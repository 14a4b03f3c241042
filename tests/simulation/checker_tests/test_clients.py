"""The checkers that judge clients' journals, each shown what it must object to and what it must let pass."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.checkers.clients.acked import Acked22
from tests.simulation.checkers.clients.clients_see import Deliveries17and20and21and23
from tests.simulation.checkers.clients.single_active import SingleActive21
from tests.simulation.checkers.messages.no_loss import check_no_loss_1
from tests.simulation.clients.topology import BindingPlan, ExchangePlan, QueuePlan, Topology
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.journal import (
    Delivery,
    Journal,
    Line,
    Message,
    Settled,
    Subscription,
    Turn,
)


class Story:
    """A journal with one durable queue `q1`, one short-lived `s1`, and a publisher `p`."""

    def __init__(self) -> None:
        self.clock = Clock()
        topology = Topology(
            (QueuePlan("q1", True), QueuePlan("q2", False)),
            (ExchangePlan("amq.fanout", "fanout", True),),
            (BindingPlan("amq.fanout", "q1", ""),),
        )
        self.journal = Journal(self.clock, topology)
        self.checker = Deliveries17and20and21and23(self.journal)
        self.journal.short_lived["s1"] = 0.0
        self.count = 0

    def publish(self, number: int, exchange: str = "", key: str = "q1", persistent: bool = True) -> Message:
        known = self.journal.messages.get(f"p:{number}")
        message = known or Message(
            f"p:{number}", f"<p:{number}>".encode(), "p", number, exchange, key, persistent
        )
        self.count += 1
        self.tick()
        self.journal.publishing(message, self.count)
        return message

    def tick(self) -> None:
        self.clock.run(self.clock.now + 0.01)

    def subscribe(self, queue: str = "q1") -> Subscription:
        return Subscription("c", queue, self.clock.now)

    def deliver(self, subscription: Subscription, message: Message, redelivered: bool = False) -> None:
        self.tick()
        self.journal.deliver(subscription, message.body, redelivered, self.clock.now)


def test_1_a_confirmed_message_that_nobody_ended_is_lost() -> None:
    story = Story()
    message = story.publish(1)
    check_no_loss_1(story.journal, [])
    story.journal.confirm(message)
    with violates(1):
        check_no_loss_1(story.journal, [])
    story.journal.settle("q1", message, Settled.ACKED)
    check_no_loss_1(story.journal, [])


def test_1_a_cold_start_excuses_only_what_was_not_persistent_on_a_durable_queue() -> None:
    story = Story()
    transient = story.publish(1, persistent=False)
    story.journal.confirm(transient)
    check_no_loss_1(story.journal, [story.clock.now + 1])
    story.journal.confirm(story.publish(2))
    with violates(1):
        check_no_loss_1(story.journal, [story.clock.now + 1])


def test_1_what_was_sent_before_all_were_whole_after_a_forced_promotion_may_be_gone() -> None:
    story = Story()
    story.journal.confirm(story.publish(1))
    for _ in range(2):
        story.journal.forcing()
    story.journal.whole_again()
    assert not story.journal.binding
    story.journal.confirm(story.publish(2))
    story.journal.whole_again()
    story.tick()
    assert story.journal.binding
    check_no_loss_1(story.journal, [])
    story.journal.confirm(story.publish(3))
    with violates(1):
        check_no_loss_1(story.journal, [])


def test_1_a_purge_excuses_what_was_sent_before_it_ended() -> None:
    story = Story()
    story.journal.confirm(story.publish(1, "amq.fanout", ""))
    purge = story.journal.voiding("purge", "s1")
    story.tick()
    story.journal.voided_surely(purge)
    later = story.publish(2, "amq.fanout", "")
    story.journal.confirm(later)
    for message in story.journal.confirmed:
        story.journal.settle("q1", message, Settled.ACKED)
    with violates(1):
        check_no_loss_1(story.journal, [])
    story.journal.settle("s1", later, Settled.ACKED)
    check_no_loss_1(story.journal, [])


def test_20_what_nobody_published_or_routed() -> None:
    story = Story()
    message = story.publish(1)
    with violates(20):
        story.journal.deliver(story.subscribe(), b"<p:1>!", False, 0.0)
    with violates(20):
        story.journal.deliver(story.subscribe(), b"junk", False, 0.0)
    with violates(20):
        story.deliver(story.subscribe("q2"), message)
    with violates(20):
        story.deliver(story.subscribe("s1"), message)
    story.deliver(story.subscribe(), message)


def test_21_order_per_publisher_and_queue() -> None:
    story = Story()
    one, two, three = (story.publish(n) for n in (1, 2, 3))
    mine = story.subscribe()
    story.deliver(mine, one)
    story.deliver(mine, three)
    with violates(21):
        story.deliver(mine, two)


def test_21_lets_a_resend_in_doubt_pass_once() -> None:
    story = Story()
    first, second = story.publish(1), story.publish(2)
    story.publish(1)
    story.publish(2)
    mine = story.subscribe()
    for message in (first, second, first, second):
        story.deliver(mine, message)


def test_21_a_resend_comes_before_the_resends_after_it() -> None:
    story = Story()
    first, second = story.publish(1), story.publish(2)
    story.publish(1)
    story.publish(2)
    mine = story.subscribe()
    for message in (first, second, second):
        story.deliver(mine, message)
    with violates(21):
        story.deliver(mine, first)


def test_21_what_could_not_be_written_is_given_back_without_a_flag() -> None:
    story = Story()
    one, two, three = (story.publish(n) for n in (1, 2, 3))
    story.journal.hampered()
    mine = story.subscribe()
    story.deliver(mine, three)
    with violates(21):
        story.deliver(mine, one)  # by whom? there is no other consumer
    story.journal.disturb("q1", 0)
    story.deliver(mine, two)
    story.journal.eased(1.0)
    story.clock.run(story.clock.now + 2.0)
    later = story.subscribe()
    four, five = story.publish(4), story.publish(5)
    story.deliver(later, five)
    with violates(21):
        story.deliver(later, four)


def test_21_a_copy_more_may_have_been_held_up_where_a_way_was_cut() -> None:
    story = Story()
    first, second = story.publish(1), story.publish(2)
    story.publish(1)
    third = story.publish(3)
    mine = story.subscribe()
    story.journal.ways_clear_from = story.clock.now + 1.0
    for message in (first, third, first):
        story.deliver(mine, message)
    with violates(21):
        story.deliver(mine, second)


def test_21_redelivered_ones_must_be_in_order_unless_somebody_gives_messages_back() -> None:
    story = Story()
    one, two = story.publish(1), story.publish(2)
    story.journal.disturb("q1", 0)
    crowd = story.subscribe()
    story.deliver(crowd, two)
    story.deliver(crowd, one, redelivered=True)
    story.clock.run(story.clock.now + 1)
    alone = story.subscribe()
    story.deliver(alone, two, redelivered=True)
    with violates(21):
        story.deliver(alone, one, redelivered=True)


def test_23_a_second_delivery_is_flagged() -> None:
    story = Story()
    message = story.publish(1)
    story.deliver(story.subscribe(), message)
    story.deliver(story.subscribe(), message, redelivered=True)
    with violates(23):
        story.deliver(story.subscribe(), message)


def test_23_two_that_serve_after_a_forced_promotion_know_nothing_of_each_other() -> None:
    """Found by the simulation: the old primary, cut off, delivered what the forced one had, too."""
    story = Story()
    message = story.publish(1)
    story.journal.forcing()
    story.deliver(story.subscribe(), message)
    story.deliver(story.subscribe(), message)
    late = story.subscribe()
    story.journal.whole_again()
    story.deliver(late, message)
    with violates(23):
        story.deliver(story.subscribe(), message)


def test_17_what_a_delete_ended_stays_ended() -> None:
    story = Story()
    message = story.publish(1, "amq.fanout", "")
    story.tick()
    story.journal.confirm(message)
    story.tick()
    delete = story.journal.voiding("delete", "s1")
    before = story.subscribe("s1")
    story.tick()
    story.journal.voided_surely(delete)
    story.tick()
    story.deliver(before, message)
    with violates(17):
        story.deliver(story.subscribe("s1"), message, redelivered=True)


def test_22_an_ack_that_was_heard_ends_the_message() -> None:
    pair = Pair(count=1)
    records, journal, a = pair.checkers.records, pair.journal, pair.a
    checker = Acked22(journal, records, pair.checkers.troubles, pair.world.plan)
    queue, message = "q1", pair.in_queue("q1")[0] if pair.in_queue("q1") else pair.journal.confirmed[0]
    line = Line(a.address[1], pair.clock.now)
    pair.run(0.1)
    journal.settle(queue, message, Settled.ACKED, line)
    now = pair.clock.now
    again = Delivery(Subscription("c", queue, 0.0), message, True, now + 9.0, now + checker.way + 0.1)
    checker.delivery(replace(again, left=now))  # it left before the ack was heard, and was read late
    line.lost_at = pair.clock.now
    checker.delivery(again)  # the ack may have been lost with the connection
    line.lost_at = None
    with violates(22):
        checker.delivery(again)
    message.sends.append(2)
    checker.delivery(again)  # this may be the other one


@pytest.mark.parametrize("late", [False, True])
def test_22_a_promotion_excuses_what_was_acked_just_before(late: bool) -> None:
    pair = Pair(count=1)
    records, journal, a = pair.checkers.records, pair.journal, pair.a
    checker = Acked22(journal, records, pair.checkers.troubles, pair.world.plan)
    message, line = journal.confirmed[0], Line(a.address[1], pair.clock.now)
    pair.run(0.1)
    journal.settle("q1", message, Settled.ACKED, line)
    pair.run(checker.way + 0.1 + (checker.bound if late else 0.0))
    a.kill()
    pair.run(10)
    assert len(records.promotions) == 2
    again = Delivery(Subscription("c", "q1", 0.0), message, True, pair.clock.now, pair.clock.now)
    with violates(22) if late else nullcontext():
        checker.delivery(again)


class Queue21:
    """A queue with a single active consumer, at two nodes, with one message a delivery."""

    def __init__(self) -> None:
        self.story = Story()
        queue = QueuePlan("q1", True, single_active=True)
        self.story.journal.topology = replace(self.story.journal.topology, queues=(queue,))
        self.checker = SingleActive21(self.story.journal)
        self.sent = 0

    def ask(self, tag: str, port: int = 1) -> Turn:
        self.story.tick()
        session = SimpleNamespace(address=("127.0.0.1", port), established=True)
        return Turn(tag, session, self.story.clock.now)

    def answer(self, turn: Turn) -> Turn:
        self.story.tick()
        turn.known_at = self.story.clock.now
        self.story.journal.turns.setdefault("q1", []).append(turn)
        return turn

    def consume(self, tag: str, port: int = 1) -> Turn:
        return self.answer(self.ask(tag, port))

    def deliver(self, turn: Turn) -> None:
        self.sent += 1
        message = self.story.publish(self.sent)
        self.story.deliver(Subscription(turn.tag, "q1", self.story.clock.now, turn=turn), message)


def test_21_only_the_first_consumer_of_a_single_active_queue_gets_messages() -> None:
    queue = Queue21()
    one, two, three = (queue.consume(tag) for tag in ("one", "two", "three"))
    queue.deliver(one)
    with violates(21, "to two, but one came before it"):
        queue.deliver(two)
    one.over = True
    with violates(21, "to three, but two came before it"):
        queue.deliver(three)
    queue.deliver(two)
    two.session = SimpleNamespace(address=("127.0.0.1", 1), established=False)
    queue.deliver(three)
    assert queue.checker.taken_over == 2


def test_21_of_consumers_at_two_nodes_or_asked_for_at_once_either_may_be_active() -> None:
    queue = Queue21()
    one, two = queue.ask("one"), queue.ask("two")
    for turn in (one, two):
        queue.answer(turn)
        queue.deliver(turn)
    queue.deliver(queue.consume("three", port=2))
