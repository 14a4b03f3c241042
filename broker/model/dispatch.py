"""Sharing out ready messages among several consumers of one queue, round robin per message.

Called by `Queue.dispatch` when there is more than one consumer. Order per consumer is the queue's order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.model.consumer import Consumer
    from broker.model.queue import Queue
    from broker.model.records import Entry


def dispatch_to_many(queue: Queue, turn: int) -> tuple[int, int]:
    """Share out, beginning with consumer number `turn`; how many messages went, and whose turn is next."""
    consumers = queue.consumers
    turn %= len(consumers)
    order = consumers[turn:] + consumers[:turn]
    if len({id(c.sink) for c in order}) < len(order):
        return _one_by_one(queue, order)
    return _in_rounds(queue, order)


def _in_rounds(queue: Queue, order: list[Consumer]) -> tuple[int, int]:
    """Consumers whose credits do not depend on each other: deal whole rounds by slices, deliver once to
    each."""
    credit = {c: c.sink.credit(c) for c in order}
    hands: dict[Consumer, list[Entry]] = {c: [] for c in order}
    active = [c for c in order if credit[c] > 0]
    sent, following = 0, order[0]
    while active and queue.ready:
        rounds = min(credit[c] for c in active)
        count = min(rounds * len(active), len(queue.ready))
        batch = queue.take_ready(count)
        short, count = len(batch) < count, len(batch)  # the time of some is over
        for at, consumer in enumerate(active):
            dealt = batch[at :: len(active)]
            hands[consumer] += dealt
            credit[consumer] -= len(dealt)
        sent += count
        rest = count % len(active)
        active = active[rest:] + active[:rest]
        following = active[0]
        active = [] if short else [c for c in active if credit[c] > 0]
    for consumer, hand in hands.items():
        if hand:
            queue.hand_over(consumer, hand)
    return sent, _place(queue, following)


def _one_by_one(queue: Queue, order: list[Consumer]) -> tuple[int, int]:
    """Consumers that share a channel share its prefetch limit: ask again before each message."""
    sent = 0
    waiting = order
    while waiting and queue.ready:
        consumer = waiting.pop(0)
        if consumer.sink.credit(consumer) > 0:
            batch = queue.take_ready(1)
            if not batch:
                waiting.insert(0, consumer)
                break
            queue.hand_over(consumer, batch)
            sent += 1
            waiting.append(consumer)
    return sent, _place(queue, waiting[0] if waiting else order[0] if order else None)


def _place(queue: Queue, consumer: Consumer | None) -> int:
    """The index of a consumer for the next turn; 0 if it is gone."""
    try:
        return queue.consumers.index(consumer) if consumer is not None else 0
    except ValueError:
        return 0
