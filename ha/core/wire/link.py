"""The link's wire: methods of extension class 250, and the one ordered stream inside `DATA`.

Pure codec. The stream is frames of u32 length | u8 type | body, cut anywhere into DATA methods. Numbers are
big endian. Called by Primary, Backup and HaBroker.
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from broker.model.values import Position
from ha.core.clocks import Clocks
from ha.core.errors import LinkError
from ha.core.record.in_sync_record import RecordVersion

VERSION = 12
"""Of the link protocol. A peer with another major version is refused with a sentence."""
UUID = 16
"""Octets of a queue's."""
FRAME_LIMIT = 1 << 30
"""Largest frame that a decoder waits for, in bytes; more is a broken or hostile peer."""


class Method(enum.IntEnum):
    """Methods of class 250. 10-31 are the link's, 50-51 an operator's, 52-53 those of a pair to its witness;
    40-46 are those of queue mirrors (`mirror.wire`), 60-66 those of federation (`federation.wire`)."""

    HELLO = 10
    HELLO_OK = 11
    HAVE = 12
    JOIN = 13
    JOIN_OK = 14
    RESET_QUEUE = 15
    """Queue uuid and a sentence, from a backup in sync whose copy of that queue is not to be trusted: the
    primary sends the queue again, whole, in the stream."""
    FAREWELL = 16
    """From a backup whose process ends, its last word: it is never promoted, and need not be waited for."""
    PEER_MESSAGE = 17
    """See `peer_message`: between any two nodes of a pair that know it (`messages` in the hello)."""
    DATA = 20
    ACK = 21
    HEARTBEAT = 22
    EXCLUDED = 30
    """The record without the backup, and the reason: the last thing on its link."""
    HANDOVER = 31
    """A switchover, from the primary: with the final position the last thing that it says as one, upon which
    the backup promotes itself; before that without, so that it holds clients that come early."""
    MANAGE = 50
    MANAGE_OK = 51
    WITNESS = 52
    WITNESS_OK = 53


class Frame(enum.IntEnum):
    """Types of stream frames, primary to backup."""

    BATCH = 1
    """epoch, n, wall_ms, sent_at, then the batch's encoded records."""
    DEFINITIONS = 2
    """epoch, n of the history it belongs after, then encoded records: a part of all replicated objects."""
    QUEUE_BEGIN = 3
    """Queue uuid, then the sequence from which on this epoch's messages come as history: its snapshot, of all
    before that, begins."""
    QUEUE_RUNS = 4
    """A piece of it: queue uuid, the id up to which it goes, which ids the primary holds of those after the
    one before, then encoded EnqueueRun records that the backup lacked. It drops all others."""
    QUEUE_END = 5
    """Queue uuid: its snapshot is whole; the primary holds nothing after the last piece."""
    GUARD = 6
    """epoch, n: all snapshots are sent; from after this position on confirms wait for this backup."""
    RECORD = 7
    """An in-sync record as JSON; to be fsynced, then acknowledged."""
    CHECKPOINT = 8
    """A point's name and queue uuids with digests of what the queues hold: here the copy equals the primary,
    and both note what they hold."""
    DEFINED = 9
    """epoch, n, as in the parts before: that was the last of them, and the batch after that position is next.
    """
    CONTENT = 10
    """A number, then octets: the next piece of a large message that is still to be published, in order. The
    first one of a number begins it."""
    CONTENT_GONE = 11
    """A number: no batch brings that message."""
    BATCH_OF_CONTENTS = 12
    """As BATCH, but between its head and its records a count, then so many times a number and an offset in
    the records, growing: there the octets of that message are left out, all of which have come before."""
    BATCH_OF_TARGETS = 13
    """As BATCH, but between its head and its records a list of runs to many queues: see `known_targets`."""


_HEAD = struct.Struct(">IB")
_BATCH = struct.Struct(">QQQd")
_POSITION = struct.Struct(">QQ")
_LIVE_FROM = struct.Struct(">Q")
_NUMBER = struct.Struct(">Q")
_COUNT = struct.Struct(">H")
_PLACE = struct.Struct(">QQ")
_ACK = struct.Struct(">QQQQdQQQBd")
_BEAT = struct.Struct(">ddd")


def frame(kind: enum.IntEnum, parts: list[bytes]) -> list[bytes]:
    """One stream frame as parts to be joined by the writer; the payload itself is not copied."""
    return [_HEAD.pack(sum(map(len, parts)), kind), *parts]


class LeftOut(NamedTuple):
    """Octets of a message that a batch leaves out: of the record with this index, from `at` on."""

    number: int
    record: int
    at: int
    octets: int


def batch_frame(position: Position, wall_ms: int, sent_at: float, payload: list[bytes]) -> list[bytes]:
    """Costs O(records), however many messages they carry."""
    head = batch_head(position, wall_ms, sent_at)
    return [_HEAD.pack(len(head) + sum(map(len, payload)), Frame.BATCH) + head, *payload]


def batch_head(position: Position, wall_ms: int, sent_at: float) -> bytes:
    return _BATCH.pack(position.epoch, position.n, wall_ms, sent_at)


def content_number(number: int) -> bytes:
    return _NUMBER.pack(number)


def parse_content(body: bytes) -> tuple[int, bytes]:
    """A message's number, and a piece of it."""
    if len(body) < _NUMBER.size:
        raise LinkError("a frame is too short for the number of its message")
    return int(_NUMBER.unpack_from(body)[0]), body[_NUMBER.size :]


def batch_of_contents(
    position: Position, wall_ms: int, sent_at: float, payload: list[bytes], left_out: list[LeftOut]
) -> list[bytes]:
    """A batch without the octets of messages that have gone ahead. `left_out` is in the order of records."""
    offsets, parts = batch_parts(payload, [(place.record, place.at, place.octets) for place in left_out])
    places = [_PLACE.pack(place.number, at) for place, at in zip(left_out, offsets, strict=True)]
    head = batch_head(position, wall_ms, sent_at)
    return frame(Frame.BATCH_OF_CONTENTS, [head, _COUNT.pack(len(places)), *places, *parts])


def batch_parts(
    payload: list[bytes], left_out: Sequence[tuple[int, int, int]]
) -> tuple[list[int], list[bytes]]:
    """The records without some octets, and where these are missing. `left_out`: the index of a record, where
    the octets begin in it, and how many they are; at most one of each record, in order."""
    offsets: list[int] = []
    parts: list[bytes] = []
    at, record = 0, 0
    for index, start, octets in left_out:
        whole = payload[index]
        at += sum(map(len, payload[record:index])) + start
        parts += payload[record:index]
        parts += filter(None, (whole[:start], whole[start + octets :]))
        offsets.append(at)
        at += len(whole) - start - octets
        record = index + 1
    return offsets, parts + payload[record:]


def parse_batch_of_contents(body: bytes, take: Callable[[int], list[bytes]]) -> BatchHead:
    """The batch as BATCH would have brought it. `take` gives the pieces of a message by its number."""
    head = parse_batch(body)
    rest = head.payload
    if len(rest) < _COUNT.size or len(rest) < (
        base := _COUNT.size + _PLACE.size * _COUNT.unpack_from(rest)[0]
    ):
        raise LinkError("a batch is too short for its list of messages")
    parts: list[bytes] = []
    done = base
    for number, offset in _PLACE.iter_unpack(rest[_COUNT.size : base]):
        at = base + offset
        if not done <= at <= len(rest):
            raise LinkError(f"a message at {offset} of a batch of {len(rest) - base} bytes")
        parts += [rest[done:at], *take(number)]
        done = at
    return head._replace(payload=b"".join([*parts, rest[done:]]))


def begin_frame(queue: bytes, live_from: int) -> list[bytes]:
    return frame(Frame.QUEUE_BEGIN, [queue, _LIVE_FROM.pack(live_from)])


def parse_begin(body: bytes) -> tuple[bytes, int]:
    """A queue's uuid, and from which sequence on it comes as history."""
    if len(body) != UUID + _LIVE_FROM.size:
        raise LinkError(f"a queue begins with {len(body)} bytes")
    return body[:UUID], int(_LIVE_FROM.unpack_from(body, UUID)[0])


class BatchHead(NamedTuple):
    position: Position
    wall_ms: int
    sent_at: float
    payload: bytes


def parse_batch(body: bytes) -> BatchHead:
    if len(body) < _BATCH.size:
        raise LinkError("a batch frame is too short")
    epoch, n, wall_ms, sent_at = _BATCH.unpack_from(body)
    return BatchHead(Position(epoch, n), wall_ms, sent_at, body[_BATCH.size :])


def position_bytes(position: Position) -> bytes:
    return _POSITION.pack(position.epoch, position.n)


def parse_position(body: bytes) -> tuple[Position, bytes]:
    """A position and what follows it."""
    if len(body) < _POSITION.size:
        raise LinkError("a frame is too short for its position")
    return Position(*_POSITION.unpack_from(body)), body[_POSITION.size :]


def parse_queue(body: bytes) -> tuple[bytes, bytes]:
    """A queue's uuid and what follows it."""
    if len(body) < UUID:
        raise LinkError("a frame is too short for its queue")
    return body[:UUID], body[UUID:]


class Ack(NamedTuple):
    """What a backup tells its primary, at most once a tick. All of it cumulative."""

    applied: Position
    durable: Position
    echo: float
    """`sent_at` of the newest frame or heartbeat handled: dates the primary's lease."""
    received: int
    """Bytes of the link stream handled so far, for the joiner's window."""
    record: RecordVersion
    """Newest in-sync record fsynced by the sender."""
    complete: bool
    """Everything before GUARD, snapshots included, is applied and on disk."""
    machine_ms: float = 0.0
    """What the machine's wall clock showed when the newest heartbeat came; 0: none has come."""

    def encode(self) -> bytes:
        return _ACK.pack(
            *self.applied,
            *self.durable,
            self.echo,
            self.received,
            *self.record,
            self.complete,
            self.machine_ms,
        )


def parse_ack(payload: bytes) -> Ack:
    if len(payload) != _ACK.size:
        raise LinkError(f"an ack of {len(payload)} bytes")
    ae, an, de, dn, echo, received, epoch, revision, complete, machine_ms = _ACK.unpack(payload)
    record = RecordVersion(epoch, revision)
    return Ack(Position(ae, an), Position(de, dn), echo, received, record, bool(complete), machine_ms)


class Heartbeat(NamedTuple):
    """A primary's sign of life: when it was sent, on its own clock, in seconds; and what two wall clocks show
    there, in milliseconds: the one that messages are dated by, and the machine's."""

    sent_at: float
    wall_ms: float
    machine_ms: float

    def encode(self) -> bytes:
        return _BEAT.pack(*self)


def heartbeat(clocks: Clocks, now: float) -> bytes:
    """A primary's, with what its clocks show `now`."""
    return Heartbeat(now, clocks.wall_at(now), clocks.machine_at(now)).encode()


def parse_heartbeat(payload: bytes) -> Heartbeat:
    if len(payload) != _BEAT.size:
        raise LinkError("a heartbeat of the wrong size")
    return Heartbeat(*_BEAT.unpack(payload))


def to_json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def parse_json(payload: bytes, what: str = "a link message") -> dict[str, Any]:
    """An object; LinkError otherwise, of `what` it was to be."""
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise LinkError(f"{what} is not JSON") from error
    if not isinstance(document, dict):
        raise LinkError(f"{what} is not a JSON object")
    return document


Made = TypeVar("Made")


def read_json(payload: bytes, what: str, make: Callable[[dict[str, Any]], Made]) -> Made:
    """What `make` makes of an object. LinkError if it is none, or lacks something, or has something that
    cannot be right."""
    document = parse_json(payload, what)
    try:
        return make(document)
    except (KeyError, TypeError, ValueError) as error:
        raise LinkError(f"{what} that cannot be read") from error


Kind = TypeVar("Kind", bound=enum.IntEnum)


class StreamDecoder(Generic[Kind]):
    """Puts DATA pieces together again. One per link; never keeps more than one frame plus one piece."""

    def __init__(self, kinds: type[Kind], largest: int = FRAME_LIMIT) -> None:
        """`kinds`: what types of frames there are. `largest`: octets of one."""
        self._kinds = kinds
        self._largest = largest
        self._pieces: list[bytes] = []
        self._held = 0
        self._needed = _HEAD.size
        self.received = 0
        """All bytes of the stream taken so far."""

    def feed(self, data: bytes) -> list[tuple[Kind, bytes]]:
        """Whole frames, in order. LinkError on an unknown type or an absurd length."""
        self.received += len(data)
        self._pieces.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return []
        buffer = data if len(self._pieces) == 1 else b"".join(self._pieces)
        frames: list[tuple[Kind, bytes]] = []
        at, end = 0, len(buffer)
        self._needed = _HEAD.size
        while end - at >= _HEAD.size:
            length, kind = _HEAD.unpack_from(buffer, at)
            if length > self._largest:
                raise LinkError(f"a link frame of {length} bytes")
            if end - at < _HEAD.size + length:
                self._needed = _HEAD.size + length
                break
            try:
                known = self._kinds(kind)
            except ValueError as error:
                raise LinkError(f"unknown link frame type {kind}") from error
            body = at + _HEAD.size
            frames.append((known, buffer[body : body + length]))
            at = body + length
        rest = buffer[at:]
        self._pieces = [rest] if rest else []
        self._held = len(rest)
        return frames
