"""The register of one pair, kept by a witness: a record behind compare-and-set, and a lease of its owner.

Pure. It says what is to be saved; whoever owns it saves before it answers. The lease is in memory only: after
a start of the witness, each owner has a whole lease before it counts as gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ha.core.errors import LinkError
from ha.core.record.in_sync_record import InSyncRecord, RecordVersion, count, label, record_from_json

KINDS = ("read", "renew", "swap", "release")
LEAST, MOST = 1.0, 60.0
"""Seconds of a lease."""


class BadRequest(ValueError):
    """`str()` says what is wrong with it."""


@dataclass(slots=True, frozen=True)
class WitnessRequest:
    """`read`, by anybody; `renew`, a read by the owner that keeps its lease alive; `swap`; `release`, the
    owner ends its lease. `asker`: node id and incarnation. `expected`: of a swap, None for no record."""

    number: int
    kind: Literal["read", "renew", "swap", "release"]
    asker: tuple[str, int]
    seconds: float
    expected: RecordVersion | None = None
    record: InSyncRecord | None = None


@dataclass(slots=True, frozen=True)
class WitnessAnswer:
    """As `Node.authority_answered` takes it."""

    outcome: Literal["done", "conflict"]
    record: InSyncRecord | None
    owner_gone: bool = False

    def as_json(self, number: int) -> dict[str, Any]:
        record = self.record.as_json() if self.record is not None else None
        return {"id": number, "outcome": self.outcome, "record": record, "owner_gone": self.owner_gone}


def request_from_json(told: Any) -> WitnessRequest:
    """BadRequest if it is none."""
    try:
        kind, seconds = told["kind"], told["seconds"]
        if kind not in KINDS or type(seconds) not in (int, float) or not LEAST <= seconds <= MOST:
            raise BadRequest(f"kind {kind!r:.40} with a lease of {seconds!r:.40} s")
        expected = None
        if told.get("expected") is not None:
            epoch, revision = told["expected"]
            expected = RecordVersion(count(epoch), count(revision))
        record = record_from_json(told["record"]) if kind == "swap" else None
        node_id, incarnation = told["asker"]
        asker = (label(node_id), count(incarnation))
        return WitnessRequest(count(told["id"]), kind, asker, float(seconds), expected, record)
    except (KeyError, TypeError, ValueError, LinkError) as error:
        if isinstance(error, BadRequest):
            raise
        raise BadRequest(f"{type(error).__name__}: {error}"[:200]) from None


Kept = tuple[InSyncRecord | None, dict[tuple[str, int], float]]
"""The record, and by owner when its lease runs out."""


class WitnessRegister:
    """`record`: what is held; `born`: when the witness began to listen."""

    def __init__(self, record: InSyncRecord | None, born: float) -> None:
        self.record = record
        self._born = born
        self._until: dict[tuple[str, int], float] = {}
        """By owner: when its lease runs out."""

    def answer(self, request: WitnessRequest, now: float) -> tuple[WitnessAnswer, bool]:
        """The answer, and whether `record` has changed: it has to be durable before the answer leaves."""
        held = self.record
        match request.kind:
            case "swap" if request.record is not None:
                if request.expected != (held.version if held is not None else None):
                    return WitnessAnswer("conflict", held, self.owner_gone(request.seconds, now)), False
                self.record = request.record
                self._renew(request, now)
                return WitnessAnswer("done", self.record), True
            case "renew":
                self._renew(request, now)
            case "release" if self._owns(request):
                self._until[request.asker] = now
        return WitnessAnswer("done", held, self.owner_gone(request.seconds, now)), False

    @property
    def kept(self) -> Kept:
        """For `put_back`. `answer` changes neither part in place when it swaps."""
        return self.record, self._until

    def put_back(self, kept: Kept) -> None:
        """A swap could not be made durable. The lease of the owner goes on: it may be alive."""
        self.record, self._until = kept

    def owner_gone(self, seconds: float, now: float) -> bool:
        """The owner's lease, of so many seconds, has run out."""
        return self.record is not None and now >= self.lease_until(seconds)

    def lease_until(self, seconds: float) -> float:
        if self.record is None:
            return self._born + seconds
        owner = (self.record.owner.node_id, self.record.owner.number)
        return self._until.get(owner, self._born + seconds)

    def stood_still(self, length: float) -> None:
        """The witness heard nobody for that long: renewals may wait in its sockets."""
        self._born += length
        self._until = {owner: until + length for owner, until in self._until.items()}

    def _renew(self, request: WitnessRequest, now: float) -> None:
        if self._owns(request):
            self._until = {request.asker: now + request.seconds}

    def _owns(self, request: WitnessRequest) -> bool:
        return self.record is not None and tuple(self.record.owner) == request.asker
