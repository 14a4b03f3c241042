"""The format of a segment file, as pure functions on bytes: no files, no state.

A segment is a header, then frames; a frame is one batch (little endian):

    header  8s magic | u32 version | u32 kind (0 log, 2 copy) | u64 number | u64 salt | u32 crc of these
    frame   4s magic | u32 head crc | u32 payload crc | u32 payload length | u64 epoch | u64 n | u64 synced
            | payload

The head crc covers the rest of the frame's head after it. Both crcs of a frame are seeded with the header's
crc, and the header has a salt drawn for each process life. So a frame is valid only in its own segment, and a
published message that contains a copy of a frame is not mistaken for one.

`synced` is the length in bytes to which this segment had been synced when the frame was written. It tells a
torn tail from damage. After a crash, bytes behind the last sync may be anything, in any order of pages, and
are cut. But if a later intact frame says that the bad bytes had been synced, the disk has lost synced data. A
finished segment ends with a seal, a frame with synced = SEALED, so that a cut at a frame boundary is detected
too.

The first frame of a log segment is its base, made by `base_codec`, and not a batch. A copy has only messages.
Version 1 had no bases and no copies but checkpoints (kind 1), which replaced all earlier segments; it is
still read. Version 2 had no directory entries (`EntryPut`, `EntryDelete`) in its records. Version 3 had no
paths of federated messages, and no entries of federation. Version 4 had no origins of these messages.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from broker.model.values import Position

VERSION = 6
OLDEST = 1
LOG, CHECKPOINT, COPY = 0, 1, 2
SEALED = 2**64 - 1

_KINDS = {
    1: (LOG, CHECKPOINT),
    2: (LOG, COPY),
    3: (LOG, COPY),
    4: (LOG, COPY),
    5: (LOG, COPY),
    6: (LOG, COPY),
}
_HEADER = struct.Struct("<8sIIQQ")
_CRC = struct.Struct("<I")
_HEAD = struct.Struct("<IIQQQ")
_MAGIC = b"UNDSTLOG"
FRAME_MAGIC = b"\xf5UB\x0a"
HEADER_BYTES = _HEADER.size + _CRC.size
FRAME_HEAD_BYTES = len(FRAME_MAGIC) + _CRC.size + _HEAD.size


class NotASegment(ValueError):
    """The header is incomplete, or not that of a segment."""


class WrongVersion(ValueError):
    """A later version of this program wrote the segment. `args[0]` is that version."""


class Header(NamedTuple):
    version: int
    kind: int
    number: int
    seed: int
    """Crc of the header: the seed of the frames' checksums."""


class FrameHead(NamedTuple):
    position: Position
    length: int
    """Of the payload, in bytes."""
    payload_crc: int
    synced: int

    @property
    def is_seal(self) -> bool:
        return self.synced == SEALED

    def fits_payload(self, payload: bytes, seed: int) -> bool:
        """Whether `payload` is what was written."""
        return len(payload) == self.length and zlib.crc32(payload, seed) == self.payload_crc


def pack_header(kind: int, number: int, salt: int) -> bytes:
    head = _HEADER.pack(_MAGIC, VERSION, kind, number, salt)
    return head + _CRC.pack(zlib.crc32(head))


def unpack_header(raw: bytes) -> Header:
    """Raises NotASegment or WrongVersion."""
    if len(raw) < HEADER_BYTES:
        raise NotASegment
    magic, version, kind, number, _salt = _HEADER.unpack_from(raw)
    (seed,) = _CRC.unpack_from(raw, _HEADER.size)
    if magic != _MAGIC or zlib.crc32(raw[: _HEADER.size]) != seed:
        raise NotASegment
    if not OLDEST <= version <= VERSION or kind not in _KINDS[version]:
        raise WrongVersion(version)
    return Header(version, kind, number, seed)


def pack_frame(position: Position, payload: Sequence[bytes], synced: int, seed: int) -> list[bytes]:
    """One batch as pieces to join with others. zlib lets other threads run while it sums long pieces."""
    crc = seed
    length = 0
    for piece in payload:
        crc = zlib.crc32(piece, crc)
        length += len(piece)
    head = _HEAD.pack(crc, length, position.epoch, position.n, synced)
    return [FRAME_MAGIC, _CRC.pack(zlib.crc32(head, seed)), head, *payload]


def pack_seal(position: Position, seed: int) -> bytes:
    return b"".join(pack_frame(position, (), SEALED, seed))


def unpack_head(raw: bytes, seed: int) -> FrameHead | None:
    """The head of the frame at raw[0]; None if it is short or not what was written."""
    if len(raw) < FRAME_HEAD_BYTES or not raw.startswith(FRAME_MAGIC):
        return None
    at = len(FRAME_MAGIC)
    (crc,) = _CRC.unpack_from(raw, at)
    head = raw[at + _CRC.size : FRAME_HEAD_BYTES]
    if zlib.crc32(head, seed) != crc:
        return None
    payload_crc, length, epoch, n, synced = _HEAD.unpack(head)
    return FrameHead(Position(epoch, n), length, payload_crc, synced)


def candidates(window: bytes) -> Iterator[int]:
    """Offsets in `window` where a frame may begin."""
    at = window.find(FRAME_MAGIC)
    while at >= 0:
        yield at
        at = window.find(FRAME_MAGIC, at + 1)
