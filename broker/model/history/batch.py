"""The records of one tick. `History` hands them to each sink, all or nothing."""

from __future__ import annotations

from typing import Protocol

from broker.model.history.record_codec import encode_record
from broker.model.history.records import Record
from broker.model.values import Position, Scope


class Batch:
    """Records are encoded once, when a sink first asks for the bytes."""

    __slots__ = ("_encoded", "position", "records", "wall_ms")

    def __init__(self, position: Position, wall_ms: int, records: list[Record]) -> None:
        self.position = position
        self.wall_ms = wall_ms
        self.records = records
        self._encoded: list[bytes] | None = None

    def payload(self, scope: Scope) -> list[bytes]:
        """The encoded records that `scope` sees, in order. Sinks share the encoding."""
        if self._encoded is None:
            self._encoded = [encode_record(r) if r.scope else b"" for r in self.records]
        return [e for e, r in zip(self._encoded, self.records, strict=True) if r.scope & scope]


class BatchSink(Protocol):
    """Receives each tick's history before any confirm: the store, the link, the ledger."""

    def batch(self, batch: Batch) -> None: ...
