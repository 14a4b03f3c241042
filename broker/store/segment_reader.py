"""Reads one segment file and detects damage. Owner: SegmentLog and the cleaner.

Read-only; its only state is the directory. OSErrors go to the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.model.values import Position
from broker.store.errors import StoreCorrupt, StoreUnusable
from broker.store.files import FileLayer
from broker.store.segment_format import (
    FRAME_HEAD_BYTES,
    HEADER_BYTES,
    LOG,
    VERSION,
    FrameHead,
    Header,
    NotASegment,
    WrongVersion,
    candidates,
    unpack_head,
    unpack_header,
)

WINDOW = 4 * 1024 * 1024
"""Bytes read at once in recovery, and written at once."""


class StoredBatch(NamedTuple):
    """One batch as it was written. `payload`: its encoded records, joined."""

    position: Position
    payload: bytes


class End(NamedTuple):
    """Where the valid part of a segment ends."""

    offset: int
    sealed: bool


class Torn(Exception):
    """The segment was being created: its header, or the base that must follow it, is incomplete."""


class SegmentReader:
    """The segments of one directory."""

    def __init__(self, files: FileLayer, directory: str) -> None:
        self._files = files
        self._directory = directory

    def path(self, number: int) -> str:
        return f"{self._directory}/{number:016d}.segment"

    def header(self, number: int, *, newest: bool = False) -> Header:
        """Raises StoreCorrupt or StoreUnusable; for the newest segment, Torn if it is shorter than a
        header."""
        path = self.path(number)
        try:
            header = unpack_header(self._files.read(path, 0, HEADER_BYTES))
        except WrongVersion as error:
            raise StoreUnusable(
                f"{path} has format {error}, and this version reads up to {VERSION}: run the version that "
                f"wrote it, or a later one; nothing was changed"
            ) from error
        except NotASegment:
            # The header is synced before any later data is confirmed.
            if newest and self._files.size(path) <= HEADER_BYTES:
                raise Torn from None
            raise StoreCorrupt(path, 0, "its header is not what was written") from None
        except FileNotFoundError:
            raise StoreCorrupt(path, 0, "the segment is missing") from None
        if header.number != number:
            raise StoreCorrupt(path, 0, f"it is segment {header.number} under another name")
        return header

    def base(self, number: int, header: Header) -> StoredBatch:
        """The first frame of a log segment. Raises Torn if it was being written when the node stopped."""
        path = self.path(number)
        size = self._files.size(path)
        head = unpack_head(self._files.read(path, HEADER_BYTES, FRAME_HEAD_BYTES), header.seed)
        if head is not None and not head.is_seal:
            payload = self._files.read(path, HEADER_BYTES + FRAME_HEAD_BYTES, head.length)
            if head.fits_payload(payload, header.seed):
                return StoredBatch(head.position, payload)
        self._refuse_damage(path, size, HEADER_BYTES, header.seed)
        raise Torn

    def batches(self, number: int, header: Header, *, open_end: bool) -> Iterator[StoredBatch | End]:
        """The batches of one segment without its base, and finally its End.

        `open_end`: the segment may end anywhere after its last sync. Raises StoreCorrupt if synced bytes are
        not what was written.
        """
        path = self.path(number)
        size = self._files.size(path)
        window, base, offset = b"", 0, HEADER_BYTES
        passing = header.kind == LOG and header.version > 1
        while offset < size:
            if offset - base + FRAME_HEAD_BYTES > len(window):
                window, base = self._files.read(path, offset, WINDOW), offset
            at = offset - base
            head = unpack_head(window[at : at + FRAME_HEAD_BYTES], header.seed)
            if head is None:
                break
            end = offset + FRAME_HEAD_BYTES + head.length
            if end - base > len(window):
                window, base = self._files.read(path, offset, max(WINDOW, end - offset)), offset
            payload = window[offset - base + FRAME_HEAD_BYTES : end - base]
            if not head.fits_payload(payload, header.seed):
                break
            if head.is_seal:
                if end != size:
                    raise StoreCorrupt(path, end, "something follows its seal")
                yield End(end, True)
                return
            if not passing:
                yield StoredBatch(head.position, payload)
            passing, offset = False, end
        if not open_end:
            raise StoreCorrupt(path, offset, "a batch is missing or its checksum does not match")
        if offset < size:
            self._refuse_damage(path, size, offset, header.seed)
        yield End(offset, False)

    def _refuse_damage(self, path: str, size: int, bad: int, seed: int) -> None:
        """Raises StoreCorrupt if a later frame proves that the bytes at `bad` had been synced."""
        base = bad + 1
        while base + FRAME_HEAD_BYTES <= size:
            window = self._files.read(path, base, WINDOW)
            for at in candidates(window):
                head = unpack_head(window[at : at + FRAME_HEAD_BYTES], seed)
                if head is not None and head.synced > bad and self._is_whole(path, base + at, head, seed):
                    raise StoreCorrupt(path, bad, "a batch that had been synced fails its checksum")
            base += max(1, len(window) - FRAME_HEAD_BYTES + 1)

    def _is_whole(self, path: str, offset: int, head: FrameHead, seed: int) -> bool:
        return head.fits_payload(self._files.read(path, offset + FRAME_HEAD_BYTES, head.length), seed)
