"""Consistency checkpoints: places in the stream at which a copy must equal its primary; both note what they
hold, and the backup compares.

Called by Primary, which cuts a point right after a flush that left nothing gathered, and by Backup when the
point comes down its stream. Whoever reconciles the ledgers compares the two (invariant 13). A point names its
queues, and is small, since listing ids holds the tick up: one after the other goes on where the last one
stopped, until all have been listed. Only queues too deep for any point are left out.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping

from broker.model.values import Position
from ha.core.errors import LinkError
from ha.core.outbox import Outbox
from ha.core.ports import IdsByEpoch, PrimaryModel
from ha.core.primary.feeder import Feeder
from ha.core.primary.remote_backup import Phase, RemoteBackup
from ha.core.tuning import Tuning
from ha.core.wire.link import UUID, Frame, frame

DIGEST = 8
"""Octets."""
_NEVER = Position(-1, 0)


class ConsistencyCheckpoints:
    """When to cut them, and to make the history checkpoints that go with them. Owner: Primary."""

    def __init__(
        self, tuning: Tuning, outbox: Outbox, model: PrimaryModel, feeder: Feeder, epoch: int, now: float
    ) -> None:  # fmt: skip
        self._tuning = tuning
        self._out = outbox
        self._model = model
        self._feeder = feeder
        self._next = now
        self._last = Position(epoch, 0)
        """Of the newest point."""
        self._again = 0
        """How many points there were before at that position."""
        self._began = self._last
        """Where history was when the round of all queues began: at rest, the last one begins there."""
        self._round: deque[bytes] = deque()
        """Queues that it is still to list."""
        self._history_checkpoint = self._last
        """The newest one, or where this primary began."""

    def due(self, backups: Iterable[RemoteBackup], now: float) -> bool:
        return now >= self._next and any(b.phase is Phase.IN_SYNC for b in backups)

    def hasten(self, now: float) -> None:
        """Now, and all queues: a backup has got in sync."""
        self._next, self._began = now, _NEVER

    def cut(self, backups: Iterable[RemoteBackup], now: float) -> None:
        """Cut a point, if a backup is in sync and not all queues have been listed since history moved."""
        self._next = now + self._tuning.checkpoint_every
        position = self._model.position()
        synced = [b for b in backups if b.phase is Phase.IN_SYNC]
        if not synced or not (self._round or position != self._began):
            return
        if not self._round:
            self._began, self._round = position, deque(self._model.contents())
        held = self._some()
        name = self._name(position)
        note_checkpoint(self._out, name, held)
        for backup in synced:
            self._feeder.stream(backup, frame(Frame.CHECKPOINT, encode_checkpoint(name, held)))

    def _some(self) -> dict[bytes, IdsByEpoch]:
        """Of the next queues of the round, as many as a point may list."""
        most, held = self._tuning.checkpoint_most, dict[bytes, IdsByEpoch]()
        while self._round and len(held) < self._tuning.checkpoint_queues:
            count = self._model.message_count(self._round[0])
            if count is not None and most < count <= self._tuning.checkpoint_most:
                break
            queue = self._round.popleft()
            if count is not None and count <= most:
                most -= count
                held[queue] = self._model.held(queue)
        return held

    def _name(self, position: Position) -> str:
        """No two points have the same: whoever compares goes by it."""
        self._again = self._again + 1 if position == self._last else 0
        self._last = position
        return f"{position.epoch}.{position.n}" + (f".{self._again}" if self._again else "")

    def history_checkpoint(self, backups: Iterable[RemoteBackup]) -> None:
        """Make one if every member is in sync, and all of them and this node hold, on disk, all up to the
        one before: nobody can return with what had settled by then.
        """
        reached = [b.acked_durable for b in backups if b.phase is Phase.IN_SYNC]
        everybody = len(reached) == self._tuning.members - 1
        if everybody and min([self._model.durable(), *reached]) >= self._history_checkpoint:
            position = self._model.position()
            if self._model.make_history_checkpoint():
                self._history_checkpoint = Position(position.epoch, position.n + 1)


def digest_of(ids: IdsByEpoch) -> bytes:
    """Of what a queue holds: equal copies have equal digests."""
    made = hashlib.blake2b(digest_size=DIGEST)
    for epoch in sorted(ids):
        made.update(b"%d:%r;" % (epoch, ids[epoch].ranges()))
    return made.digest()


def encode_checkpoint(name: str, held: Mapping[bytes, IdsByEpoch]) -> list[bytes]:
    """The body of a CHECKPOINT frame: the checkpoint's name with its length in one octet, then queue UUIDs,
    each with a digest of what the queue holds."""
    raw = name.encode()
    parts = [bytes([len(raw)]), raw]
    for queue, ids in held.items():
        parts += [queue, digest_of(ids)]
    return parts


def parse_checkpoint(body: bytes) -> tuple[str, dict[bytes, bytes]]:
    """The name, and the digest of each queue; LinkError if that is not what it holds."""
    at, size = 1 + body[0] if body else 0, UUID + DIGEST
    if not at or at > len(body) or (len(body) - at) % size:
        raise LinkError("a consistency checkpoint that cannot be read")
    name = body[1:at].decode("ascii", "replace")
    return name, {body[i : i + UUID]: body[i + UUID : i + size] for i in range(at, len(body), size)}


def note_checkpoint(outbox: Outbox, name: str, held: Mapping[bytes, IdsByEpoch]) -> None:
    """One ledger record a range; a queue without messages is noted as the empty range 0..-1."""
    for queue, by_epoch in held.items():
        ranges = [(epoch, span) for epoch, ids in by_epoch.items() for span in ids.ranges()]
        for epoch, (first, last) in ranges or [(0, (0, -1))]:
            outbox.note("quiesce", name=name, queue=queue.hex(), epoch=epoch, first=first, last=last)
