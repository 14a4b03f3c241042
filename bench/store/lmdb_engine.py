"""LMDB: one tree; a run is a value under queue, epoch and first, and so is what is gone of one.

Without `writemap`, so that each write is a system call; with its own two syncs a commit. LMDB has no
checksums: each value carries one of ours, which is tied to its key.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import lmdb

from bench.store.engines import Damaged
from bench.store.pattern import Range, Run, Stored
from bench.store.run_index import Live, RunIndex, pack_ranges, unpack_ranges

MAP_BYTES = 64 << 30
"""Address space only; the file is as long as it must be."""
_KEY = struct.Struct(">c16sQQ")
_HEAD = struct.Struct("<II")
RUN, GONE = b"r", b"g"
RANGES = (1, 0)
"""As a run's place: there is an entry for what is gone of it."""


class LmdbEngine:
    def __init__(self, directory: str, sync: bool) -> None:
        self._env = lmdb.open(directory, map_size=MAP_BYTES, sync=sync, max_readers=4)
        self.index = RunIndex()

    def recover(self) -> Iterator[Stored]:
        with self._env.begin() as txn, txn.cursor() as cursor:
            gone = {}
            if cursor.set_range(GONE):
                for key, value in cursor:
                    if not key.startswith(GONE):
                        break
                    gone[key[1:]] = unpack_ranges(_checked(key, value)[1])
            if not cursor.set_range(RUN):
                return
            for key, value in cursor:
                count, raw = _checked(key, value)
                _kind, queue, epoch, first = _KEY.unpack(key)
                live = self.index.add(queue, epoch, first, count, len(raw))
                for begin, end in gone.get(key[1:], ()):
                    live.take(begin, end)
                    live.place = RANGES
                yield live.stored(raw)

    def commit(self, runs: Sequence[Run], gone: Sequence[Range]) -> None:
        change = self.index.change(runs, gone)
        with self._env.begin(write=True) as txn:
            for live in change.removed:
                txn.delete(_key(RUN, live))
                if live.place == RANGES:
                    txn.delete(_key(GONE, live))
            for live, run in change.added:
                _put(txn, _key(RUN, live), run.messages, run.raw)
            for live in change.partial:
                _put(txn, _key(GONE, live), 0, pack_ranges(live.gone))
                live.place = RANGES

    def read(self, queue: bytes, epoch: int, first: int) -> bytes:
        key = _KEY.pack(RUN, queue, epoch, first)
        with self._env.begin() as txn:
            value = txn.get(key)
        if value is None:
            raise Damaged(f"lmdb: run {first} of queue {queue.hex()} is missing")
        return _checked(key, value)[1]

    def close(self) -> None:
        self._env.close()


def _key(kind: bytes, live: Live) -> bytes:
    return _KEY.pack(kind, live.queue, live.epoch, live.first)


def _put(txn: lmdb.Transaction, key: bytes, count: int, raw: bytes) -> None:
    crc = zlib.crc32(raw, zlib.crc32(key, count))
    txn.put(key, b"".join((_HEAD.pack(crc, count), raw)))


def _checked(key: bytes, value: bytes) -> tuple[int, bytes]:
    """Count and raw bytes. Raises Damaged."""
    if len(key) != _KEY.size or len(value) < _HEAD.size:
        raise Damaged(f"lmdb: an entry of {len(key)} and {len(value)} bytes is not one of ours")
    crc, count = _HEAD.unpack_from(value)
    raw = value[_HEAD.size :]
    if zlib.crc32(raw, zlib.crc32(key, count)) != crc:
        raise Damaged(f"lmdb: run {_KEY.unpack(key)[3]} of queue {key[1:17].hex()} fails its checksum")
    return count, raw


def open_store(directory: str, *, sync: bool, verify: bool = False) -> LmdbEngine:
    """`verify`: have py-lmdb's own verifier walk the whole file first, without LMDB. Raises Damaged."""
    if verify and os.path.exists(f"{directory}/data.mdb"):
        verifier: Any = import_module("lmdb.verify")
        try:
            problems = verifier.verify(directory)
        except verifier.VerifyError as error:
            problems = [str(error)]
        if problems:
            raise Damaged(f"{directory}/data.mdb: {problems[0]}")
    return LmdbEngine(directory, sync)
