"""Quiesce points: places in the stream at which a copy must equal its primary; both note what they hold.

Called by Primary, which cuts a point right after a flush that left nothing gathered, and by Backup when the
point comes down its stream. Whoever reconciles the ledgers compares the two (invariant 13). A point names its
queues: deep ones are left out, since listing their ids would hold the tick up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ha.core.errors import LinkError
from ha.core.ports import IdsByEpoch
from ha.core.role import Context

UUID = 16


def encode_point(name: str, queues: Iterable[bytes]) -> list[bytes]:
    """The body of a QUIESCE frame: the point's name with its length in one octet, then queue UUIDs."""
    raw = name.encode()
    return [bytes([len(raw)]), raw, *queues]


def parse_point(body: bytes) -> tuple[str, list[bytes]]:
    """The name and the queues; LinkError if that is not what it holds."""
    at = 1 + body[0] if body else 0
    if not at or at > len(body) or (len(body) - at) % UUID:
        raise LinkError("a quiesce point that cannot be read")
    return body[1:at].decode("ascii", "replace"), [body[i : i + UUID] for i in range(at, len(body), UUID)]


def note_point(context: Context, name: str, held: Mapping[bytes, IdsByEpoch]) -> None:
    """One ledger record a range; a queue without messages is noted as the empty range 0..-1."""
    for queue, by_epoch in held.items():
        ranges = [(epoch, span) for epoch, ids in by_epoch.items() for span in ids.ranges()]
        for epoch, (first, last) in ranges or [(0, (0, -1))]:
            context.note("quiesce", name=name, queue=queue.hex(), epoch=epoch, first=first, last=last)
