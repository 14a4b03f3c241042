"""QueueSnapshot: the ids that a node holds of a queue, as ranges by epoch; its wire form, and set
arithmetic on it.

Called by Backup (what it has), ReplicatingSubscription (what to send) and QueueReplicator (what to keep).
After Qpid's class of this name; with epochs, so that one id never names two messages.
"""

from __future__ import annotations

import struct
from itertools import groupby
from operator import itemgetter

from broker.model.history.records import Entry, MessageId
from broker.model.history.replication_id_set import ReplicationIdSet, to_ranges
from ha.core.errors import LinkError
from ha.core.ports import IdsByEpoch
from ha.core.wire.link import UUID

_COUNT = struct.Struct(">I")
_EPOCH = struct.Struct(">QI")
_RANGE = struct.Struct(">QQ")


def encode_piece(upto: MessageId, ids: IdsByEpoch) -> bytes:
    """The head of a piece: how far it goes, and what the primary holds of that."""
    return _RANGE.pack(*upto) + encode_ids(ids)


def decode_piece(body: bytes) -> tuple[MessageId, IdsByEpoch, bytes]:
    """Head and the records that follow. LinkError if cut short."""
    if len(body) < _RANGE.size:
        raise LinkError("a piece of a queue is cut short")
    ids, end = decode_ids(body, _RANGE.size)
    epoch, sequence = _RANGE.unpack_from(body)
    return (epoch, sequence), ids, body[end:]


def encode_ids(ids: IdsByEpoch) -> bytes:
    parts = [_COUNT.pack(len(ids))]
    for epoch in sorted(ids):
        ranges = list(ids[epoch].ranges())
        parts.append(_EPOCH.pack(epoch, len(ranges)))
        parts += [_RANGE.pack(first, last) for first, last in ranges]
    return b"".join(parts)


def decode_ids(body: bytes, at: int = 0) -> tuple[IdsByEpoch, int]:
    """Ids and the offset behind them. LinkError if cut short, not ascending, or none of an epoch."""
    ids: IdsByEpoch = {}
    try:
        (epochs,) = _COUNT.unpack_from(body, at)
        at += _COUNT.size
        for _ in range(epochs):
            epoch, count = _EPOCH.unpack_from(body, at)
            at += _EPOCH.size
            end = at + count * _RANGE.size
            if end > len(body):
                raise LinkError("ids are cut short")
            if not count:
                raise LinkError(f"epoch {epoch} without an id")
            ids[epoch] = ReplicationIdSet.from_ranges(list(_RANGE.iter_unpack(body[at:end])))
            at = end
    except (struct.error, ValueError) as error:
        raise LinkError(f"ids that cannot be read: {error}") from error
    return ids, at


def ids_of(entries: list[Entry]) -> IdsByEpoch:
    """Of entries sorted by id."""
    if not entries:
        return {}
    one = _epoch_of(entries[0]) == _epoch_of(entries[-1])
    by_epoch = [(_epoch_of(entries[0]), entries)] if one else groupby(entries, _epoch_of)
    return {
        epoch: ReplicationIdSet.from_ranges(to_ranges(list(map(_seq_of, some)))) for epoch, some in by_epoch
    }


_seq_of = itemgetter(0)


def _epoch_of(entry: Entry) -> int:
    return entry[1].epoch


def minus(left: IdsByEpoch, right: IdsByEpoch) -> IdsByEpoch:
    """What `left` has and `right` has not."""
    out: IdsByEpoch = {}
    for epoch, ids in left.items():
        other = right.get(epoch)
        rest = ids if other is None else ids.difference(other)
        if len(rest):
            out[epoch] = rest
    return out


def total(ids: IdsByEpoch) -> int:
    return sum(len(s) for s in ids.values())


def encode_have(held: dict[bytes, IdsByEpoch], room: int) -> list[bytes]:
    """Payloads for HAVE, each at most about `room` bytes unless one queue alone needs more."""
    payloads: list[bytes] = []
    parts: list[bytes] = []
    size = 0
    for queue, ids in held.items():
        piece = queue + encode_ids(ids)
        if parts and size + len(piece) > room:
            payloads.append(b"".join(parts))
            parts, size = [], 0
        parts.append(piece)
        size += len(piece)
    if parts:
        payloads.append(b"".join(parts))
    return payloads


class HaveDecoder:
    """Takes HAVE payloads as they come, so that no one of them costs much; a queue may be cut anywhere."""

    def __init__(self) -> None:
        self.held: dict[bytes, IdsByEpoch] = {}
        self.received = 0
        """Octets taken."""
        self._rest = bytearray()
        self._needed = 0

    def feed(self, payload: bytes) -> None:
        """LinkError for what cannot be ids."""
        self.received += len(payload)
        self._rest += payload
        if len(self._rest) < self._needed:
            return
        body, at = bytes(self._rest), 0
        while (end := _end_of_queue(body, at)) <= len(body):
            self.held[body[at : at + UUID]], at = decode_ids(body, at + UUID)
        del self._rest[:at]
        self._needed = end - at

    def whole(self) -> dict[bytes, IdsByEpoch]:
        """All queues, with the ids held of each. LinkError if the last one is cut short."""
        if self._rest:
            raise LinkError("a queue of a have message is cut short")
        return self.held


def _end_of_queue(body: bytes, at: int) -> int:
    """Where a queue of a HAVE ends, or where more has to be known to tell."""
    at += UUID + _COUNT.size
    if at > len(body):
        return at
    (epochs,) = _COUNT.unpack_from(body, at - _COUNT.size)
    for _ in range(epochs):
        at += _EPOCH.size
        if at > len(body):
            return at
        at += _EPOCH.unpack_from(body, at - _EPOCH.size)[1] * _RANGE.size
    return at
