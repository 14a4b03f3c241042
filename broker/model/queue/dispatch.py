"""Distributes the ready messages of one queue among several consumers, round robin per message.

`Queue.dispatch` calls this if there is more than one consumer. Each consumer gets its messages in the order
of the queue. If the steps of this tick run out, the next tick goes on with the next consumer. With priorities
(`x-priority`), consumers get what those of a higher priority have no credit for.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol

from broker.model.history.records import Entry
from broker.model.queue.consumer import Consumer, Consumers, Level
from broker.model.queue.removals import HAND, Removals


class SharedQueue(Protocol):
    """A queue with several consumers."""

    @property
    def scheduled(self) -> bool: ...
    @property
    def ready(self) -> Sized: ...
    @property
    def removals(self) -> Removals: ...
    def take_ready(self, count: int) -> list[Entry]: ...
    def hand_over(self, consumer: Consumer, batch: list[Entry]) -> None: ...
    def schedule(self) -> None: ...


def dispatch_to_many(queue: SharedQueue, consumers: Consumers, turn: int) -> tuple[int, int]:
    """Distribute messages, beginning with consumer number `turn`. Returns the messages sent and the next
    turn."""
    if not consumers.ranked:
        return _deal(queue, consumers.in_order(), turn)
    sent = 0
    for level in consumers.levels():
        dealt, level.turn = _deal(queue, level.consumers, level.turn)
        sent += dealt
        if not queue.ready or queue.scheduled or _wants_more(queue, level, dealt):
            break
    return sent, turn


def _wants_more(queue: SharedQueue, level: Level, dealt: int) -> bool:
    """Whether one of these would take more: expired messages or the most for a tick stopped the dealing."""
    rests = False
    for consumer in level.consumers:
        if consumer.sink.credit(consumer) > 0:
            if dealt:
                queue.schedule()
            return True
        rests = rests or consumer.rests
    return rests


def _deal(queue: SharedQueue, consumers: list[Consumer], turn: int) -> tuple[int, int]:
    """Distribute messages among consumers of equal priority."""
    turn %= len(consumers)
    if len(queue.ready) < len(consumers) or len({c.sink for c in consumers}) < len(consumers):
        return _one_by_one(queue, consumers, turn)
    return _in_rounds(queue, consumers, turn)


def _in_rounds(queue: SharedQueue, consumers: list[Consumer], turn: int) -> tuple[int, int]:
    """For consumers with independent credits: deal whole rounds by slices, and deliver once to each
    consumer."""
    order = consumers[turn:] + consumers[:turn]
    steps = max(queue.removals.steps, HAND + 1)
    most, asked = steps // (HAND + 1), 0
    credit: dict[Consumer, int] = {}
    for consumer in order:
        asked += 1
        room = consumer.sink.credit(consumer)
        if room > 0:
            credit[consumer] = room
            if len(credit) == most:
                break
    active = list(credit)
    hands: dict[Consumer, list[Entry]] = {c: [] for c in active}
    capped = asked < len(order)
    left = len(active) if capped else steps - HAND * len(active)
    sent, following = 0, order[0]
    while active and queue.ready and left > 0:
        rounds = min(credit[c] for c in active)
        count = min(rounds * len(active), len(queue.ready), left)
        batch = queue.take_ready(count)
        short, count = len(batch) < count, len(batch)  # some messages have expired
        for at, consumer in enumerate(active):
            dealt = batch[at :: len(active)]
            hands[consumer] += dealt
            credit[consumer] -= len(dealt)
        sent += count
        left -= count
        rest = count % len(active)
        active = active[rest:] + active[:rest]
        following = active[0]
        active = [] if short else [c for c in active if credit[c] > 0]
    if capped and sent == len(hands):
        following = order[asked]
    for consumer, hand in hands.items():
        if hand:
            queue.hand_over(consumer, hand)
    if left <= 0 and queue.ready and (active or capped):
        queue.schedule()
    return sent, consumers.index(following)


def _one_by_one(queue: SharedQueue, consumers: list[Consumer], turn: int) -> tuple[int, int]:
    """For few messages, or consumers that share a channel and its prefetch limit: check the credit before
    each message."""
    sent = refused = 0
    while queue.ready and refused < len(consumers):
        if sent and queue.removals.steps <= 0:
            queue.schedule()
            break
        consumer = consumers[turn]
        if consumer.sink.credit(consumer) > 0:
            batch = queue.take_ready(1)
            if not batch:
                break
            queue.hand_over(consumer, batch)
            sent, refused = sent + 1, 0
        else:
            refused += 1
        turn = (turn + 1) % len(consumers)
    return sent, turn
