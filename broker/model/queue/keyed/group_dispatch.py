"""Distributes the messages of a queue with message groups: consumers take turns, a message each. Pure.

`Queue.dispatch` calls this. What each may have, `GroupedReady` says.
"""

from __future__ import annotations

from typing import Protocol

from broker.model.history.records import Entry
from broker.model.queue.consumer import Consumer, Consumers
from broker.model.queue.keyed.message_groups import GroupedReady
from broker.model.queue.removals import HAND, Removals


class GroupedQueue(Protocol):
    """A queue with message groups."""

    @property
    def removals(self) -> Removals: ...
    def hand_over(self, consumer: Consumer, batch: list[Entry]) -> None: ...
    def schedule(self) -> None: ...
    def set_aside_expired(self, entry: Entry) -> bool: ...


def dispatch_groups(
    queue: GroupedQueue, ready: GroupedReady, consumers: Consumers, turn: int
) -> tuple[int, int]:
    """Distribute messages, beginning with consumer number `turn`. Returns how many, and the next turn."""
    if not consumers.ranked:
        sent, turn, _ = _deal(queue, ready, consumers.in_order(), turn)
        return sent, turn
    sent = 0
    for level in consumers.levels():
        dealt, level.turn, more = _deal(queue, ready, level.consumers, level.turn)
        sent += dealt
        if more or not ready or any(consumer.rests for consumer in level.consumers):
            break
    return sent, turn


def _deal(
    queue: GroupedQueue, ready: GroupedReady, consumers: list[Consumer], turn: int
) -> tuple[int, int, bool]:
    """Deal rounds to consumers of equal priority. Returns how many messages, the next turn, and whether the
    steps of this tick ran out."""
    turn %= len(consumers)
    order = consumers[turn:] + consumers[:turn]
    alone = len({consumer.sink for consumer in consumers}) == len(consumers)
    credit = {consumer: consumer.sink.credit(consumer) for consumer in consumers}
    hands: dict[Consumer, list[Entry]] = {}
    active = [consumer for consumer in order if credit[consumer] > 0]
    left, sent, last = max(queue.removals.steps - HAND * len(active), 1), 0, order[-1]
    while active and ready and left > 0:
        going = []
        for consumer in active:
            room = credit[consumer] if alone else consumer.sink.credit(consumer)
            if room <= 0 or left <= 0:
                continue
            entry = ready.take_for(consumer, no_ack=consumer.no_ack)
            if entry is None:
                continue
            left -= 1
            going.append(consumer)
            if queue.set_aside_expired(entry):
                continue
            sent, last = sent + 1, consumer
            credit[consumer] -= 1
            if alone:
                hands.setdefault(consumer, []).append(entry)
            else:
                queue.hand_over(consumer, [entry])
        active = going
    for consumer, hand in hands.items():
        queue.hand_over(consumer, hand)
    if left <= 0 and ready:
        queue.schedule()
    return sent, consumers.index(last) + 1, left <= 0
