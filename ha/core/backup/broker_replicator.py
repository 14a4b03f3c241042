"""BrokerReplicator: applies a primary's stream to this node's broker.

Owner: Backup, one per link. Makes calls on ReplicaModel and on its QueueReplicators, not the other way. One
stream means that, once caught up, this node is always a prefix of its primary's history.
"""

from __future__ import annotations

from broker.model.values import ORIGIN
from ha.core import codes
from ha.core.backup.coming_contents import ComingContents
from ha.core.backup.queue_replicator import QueueReplicator
from ha.core.errors import LinkError
from ha.core.ports import BadEvent, ReplicaModel
from ha.core.wire.known_targets import HeardTargets
from ha.core.wire.link import BatchHead, Frame, parse_batch, parse_begin, parse_position, parse_queue
from understudy.shared.codes import Coded


class BrokerReplicator:
    """State of one link's stream: how far it is applied, which queues are on their way."""

    def __init__(self, model: ReplicaModel, epoch: int) -> None:
        self._model = model
        self.epoch = epoch
        self.applied = ORIGIN
        self.defines = False
        """The first part of the definitions has come."""
        self.in_memory = False
        """A batch has come with something that is not for the disk: confirms wait until it is applied. Backup
        clears it."""
        self.sent_at = 0.0
        """When the primary sent the newest batch, on its clock."""
        self.guard_mark: int | None = None
        """Set by GUARD: the point up to which all must be on disk."""
        self.dropped: list[Coded] = []
        self.bad: list[BadEvent] = []
        """What could not be applied, for Backup to take."""
        self._queues: dict[bytes, QueueReplicator] = {}
        self.whole = 0
        """Queues whose snapshot has ended."""
        self.resets = 0
        """Queues that had to be sent again on this link."""
        self.contents = ComingContents()
        self.targets = HeardTargets()
        self._awaited: set[bytes] = set()
        """Queues to be sent again that have not come whole yet."""

    @property
    def complete(self) -> bool:
        """Every snapshot is applied and on disk."""
        return self.guard_mark is not None and not self._awaited and self._model.synced >= self.guard_mark

    def wait_for(self, queue: bytes) -> bool:
        """This queue is to be sent again; False if it waits for that already. LinkError if it fails while it
        is being sent."""
        if queue in self._queues:
            raise LinkError("a queue that is being sent again has gone bad again")
        if queue in self._awaited:
            return False
        self._awaited.add(queue)
        self.resets += 1
        return True

    def forget_deleted(self) -> None:
        """Nothing comes any more of queues that were deleted."""
        for queue in [queue for queue in self._awaited if self._model.name_of(queue) is None]:
            self._end(queue)

    def _end(self, queue: bytes) -> None:
        self._queues.pop(queue, None)
        if queue in self._awaited:
            self._awaited.discard(queue)
            self.guard_mark = self._model.mark()

    @property
    def queues_to_come(self) -> bool:
        """More may: the guard comes after the last of them."""
        return self.guard_mark is None or bool(self._queues)

    def frame(self, kind: Frame, body: bytes) -> None:
        """Apply one frame. LinkError on anything that cannot follow from what came before."""
        if kind is Frame.BATCH:
            self._batch(parse_batch(body))
        elif kind is Frame.CONTENT:
            self.contents.piece(body)
        elif kind is Frame.DEFINITIONS or kind is Frame.DEFINED:
            self._definitions(kind, body)
        elif self.applied == ORIGIN:
            raise LinkError(f"{kind.name} before the definitions are whole")
        elif kind is Frame.BATCH_OF_CONTENTS:
            self._batch(self.contents.batch(body))
        elif kind is Frame.BATCH_OF_TARGETS:
            self._batch(self.targets.batch(body))
        elif kind is Frame.CONTENT_GONE:
            self.contents.gone(body)
        elif kind is Frame.GUARD:
            if self._queues:
                raise LinkError("a guard while queues are incomplete")
            self._model.let_go()
            self.guard_mark = self._model.mark()
        else:
            self._queue(kind, body)

    def _definitions(self, kind: Frame, body: bytes) -> None:
        position, payload = parse_position(body)
        if position.epoch != self.epoch or self.applied != ORIGIN:
            raise LinkError(f"definitions of {tuple(position)} on a link of epoch {self.epoch}")
        if not self.defines:
            self.defines = True
            self._model.begin_epoch(self.epoch)
            self._model.begin_definitions()
        if kind is Frame.DEFINITIONS:
            self._model.take_definitions(position, payload)
        else:
            self.dropped += self._model.end_definitions(position)
            self.applied = position

    def _batch(self, head: BatchHead) -> None:
        expected = (self.applied.epoch, self.applied.n + 1)
        if head.position != expected:
            raise LinkError(f"batch {tuple(head.position)} where {expected} was due")
        bad, in_memory = self._model.apply_batch(head.position, head.wall_ms, head.payload)
        self.bad += bad
        self.in_memory = self.in_memory or in_memory
        self.applied = head.position
        self.sent_at = head.sent_at

    def _queue(self, kind: Frame, body: bytes) -> None:
        queue, rest = parse_queue(body)
        if kind is Frame.QUEUE_BEGIN:
            queue, live_from = parse_begin(body)
            if queue in self._awaited:
                self._model.renew_queue(queue)
            self._queues[queue] = QueueReplicator(self._model, queue, self.epoch, live_from)
            return
        replicator = self._queues.get(queue)
        if replicator is None:
            raise LinkError("a snapshot piece of a queue that was not begun")
        if kind is Frame.QUEUE_RUNS:
            replicator.piece(rest)
            return
        replicator.end()
        self._end(queue)
        self.whole += 1
        if replicator.dropped:
            self.dropped.append(
                codes.MESSAGES_DROPPED.say(
                    queue=replicator.name, messages=replicator.dropped, kept=replicator.quarantined
                )
            )
