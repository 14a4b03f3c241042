"""Moves messages from queue to queue, without loss and without doubles.

Each tick moves some: one batch of history enqueues them at the target and dequeues them at the source. Every
disk and node takes a batch whole or not at all, so a failover finds each message in exactly one of the two.
"""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING

from broker.authorization import demand
from broker.errors import NotFound, PreconditionFailed
from broker.model.queue.arguments import OverflowRule
from broker.model.routing.publish_route import PublishRoute
from broker.model.values import Need, Reason, need_of
from ha.adapter.management.operations.asker import asker_of
from ha.adapter.management.operations.outcome import WAIT, Outcome, once_returned

if TYPE_CHECKING:
    from broker.engine import Broker
    from broker.model.history.records import Entry, Envelope
    from broker.model.queue.queue import Queue
    from broker.model.steps import Steps
    from broker.model.values import Position
    from broker.model.vhost.vhost import VirtualHost
    from ha.adapter.management.operations.arguments import Arguments

MOST = 100_000
"""Messages in one operation."""
AT_ONCE = 500
"""Messages in one batch."""
RUNS = 50
"""Runs of messages in one batch: messages that were published one by one cost most, some 100 us each."""
AHEAD = 4
"""Batches that may be on their way to disks and backups."""
ROOM = 1 << 20
"""Octets in one batch. The last message may exceed it."""
_PER_MESSAGE, _PER_RUN = 5, 300
"""Steps for moving a message, and besides for each run."""


def move(broker: Broker, user: str | None, args: Arguments) -> Steps[Outcome]:
    """`vhost`, `name`, `to`, `to_vhost` (the same), `count` (at most; those there now). Moves ready messages
    from the head. Answers how many were `moved`, how many messages are `left`, and whether the target is
    `full`: it rejects publishes at its limit."""
    vhost, name, target_name = args.vhost(), args.filled("name"), args.filled("to")
    count = args.number("count", 1, MOST, MOST)
    to_vhost = args.name("to_vhost", vhost)
    args.end()
    asker, there = asker_of(broker, user, vhost), asker_of(broker, user, to_vhost)
    demand(asker, "read", "queue", name)
    demand(there, "write", "exchange", "")
    source = asker.vhost.queue(name, owner=asker)
    target = there.vhost.queue(target_name, owner=there)
    if source is target:
        raise PreconditionFailed(f"queue '{name}' in vhost '{vhost}' is the source and the target")
    yield from once_returned(source)
    moving = _Moving(broker, there.vhost, source, target)
    left = min(count, source.message_count)
    while left > 0 and (moved := moving.some(left)):
        left -= moved
        yield moving.steps
        while not moving.keeps_up():
            yield WAIT
        yield from once_returned(source)
        if source.deleted or target.deleted:
            gone = name if source.deleted else target_name
            raise NotFound(f"queue '{gone}' was deleted; {moving.moved} messages were moved before")
    need = max(need_of(source.content_scope), need_of(target.content_scope))
    answer = {"moved": moving.moved, "left": source.message_count, "full": moving.is_full}
    return Outcome(need if moving.moved else Need.NONE, answer)


class _Moving:
    """`moved`: messages so far; `steps`: of the last batch."""

    def __init__(self, broker: Broker, vhost: VirtualHost, source: Queue, target: Queue) -> None:
        self._broker = broker
        self._vhost = vhost
        self._source = source
        self._target = target
        self._positions: deque[Position] = deque()
        """Of batches that not every disk and backup has taken."""
        self.moved = self.steps = 0
        self.is_full = False

    def some(self, most: int) -> int:
        """Move at most so many in this tick. Returns how many."""
        source, history = self._source, self._broker.history
        taken = self._take(min(most, AT_ONCE))
        fitting = self._target.room([entry[2] for entry in taken]) if self._refuses() else len(taken)
        if fitting < len(taken):
            self.is_full = True
            source.requeue(taken[fitting:], failed=False)
            taken = taken[:fitting]
        self.steps = _PER_MESSAGE * len(taken)
        for envelope, group in groupby(taken, lambda entry: entry[1]):
            self._enqueue(envelope, [entry[2] for entry in group])
            self.steps += _PER_RUN
        if taken:
            source.drop(taken, Reason.MOVED)
            history.gather()
            self._positions.append(history.position)
        self.moved += len(taken)
        return len(taken)

    def keeps_up(self) -> bool:
        """Whether disks and backups have taken all batches but the last ones, so that a long move does not
        run away from them."""
        positions, completion = self._positions, self._broker.completion
        while positions and completion.reached(positions[0], Need.APPLIED):
            positions.popleft()
        return len(positions) < AHEAD

    def _refuses(self) -> bool:
        return self._target.rules.limited and self._target.rules.overflow is not OverflowRule.DROP_HEAD

    def _take(self, most: int) -> list[Entry]:
        taken: list[Entry] = []
        octets = runs = 0
        while len(taken) < most and octets < ROOM and runs < RUNS:
            if (entry := self._source.pop(no_ack=False)) is None:
                break
            runs += not taken or taken[-1][1] is not entry[1]
            taken.append(entry)
            octets += len(entry[2])
        return taken

    def _enqueue(self, envelope: Envelope, raws: list[bytes]) -> None:
        """Messages of one envelope, with their exchange, routing key and priority. Their TTL begins again."""
        vhost = self._vhost
        route = PublishRoute(
            envelope.exchange, envelope.routing_key, (self._target,), False, vhost.generation, one_off=True
        )
        vhost.publish(
            route, raws, persistent=envelope.persistent, channel=envelope.channel,
            largest_frame=envelope.largest_frame, expiration=envelope.expiration, priority=envelope.priority,
            blind=envelope.blind,
        )  # fmt: skip
