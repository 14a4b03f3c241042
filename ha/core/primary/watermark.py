"""Watermark: up to which position confirms may go, by what the counting backups have and what policy demands.

Owner: Primary, one for an epoch, which says when anything has moved. Makes no calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.model.values import FOREVER, Position
from ha.core.primary.queue_guard import before_all_of
from ha.core.primary.remote_backup import Phase, RemoteBackup
from ha.core.record.in_sync_record import RecordVersion


class Watermark:
    """`applied` for transient messages, `durable` for persistent ones."""

    def __init__(self, epoch: int) -> None:
        self.applied = self.durable = FOREVER
        nothing = before_all_of(epoch)
        self.hold: tuple[Position, Position] | None = (nothing, nothing)
        """Up to where confirms may go while fewer backups are in sync than are wanted; else None."""
        self._unheard: list[tuple[RemoteBackup, RecordVersion]] = []
        """Excluded by that record, which not all who count have on disk."""

    def stop(self, last: Position) -> None:
        """A backup is gone: no further than `last`, the end of history, before enough are in sync."""
        if self.hold is None:
            self.hold = (min(self.applied, last), min(self.durable, last))

    def unheard(self, backup: RemoteBackup, version: RecordVersion) -> None:
        """Excluded by that record, it counts until all who count have that."""
        self._unheard.append((backup, version))

    def settle(self, all_of_them: Iterable[RemoteBackup], wanted: int) -> None:
        """Compute it. `all_of_them`: those that are being excluded included; `wanted`: how many have to be
        in sync.
        """
        known = list(all_of_them)
        if self._unheard:
            heard = [b.record for b in known if b.counted]
            self._unheard = [(b, by) for b, by in self._unheard if any(record < by for record in heard)]
        guards = [b.guard for b in (*known, *(b for b, _ in self._unheard)) if b.guard is not None]
        self.applied = min((g.applied for g in guards), default=FOREVER)
        self.durable = min((g.durable for g in guards), default=FOREVER)
        if self.hold is not None:
            if sum(b.phase is Phase.IN_SYNC for b in known) >= wanted:
                self.hold = None
            else:
                self.applied = min(self.applied, self.hold[0])
                self.durable = min(self.durable, self.hold[1])
