"""SQLite: a table of runs in order of arrival, and one of what is gone of some of them.

WAL, synchronous=FULL (OFF without sync), exclusive lock, so that there is no shared memory file. Its pages
have no checksums: each run carries one of ours. Pages of 16 KiB cost a quarter less CPU than those of 4 KiB.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence

from bench.store.engines import Damaged
from bench.store.pattern import Range, Run, Stored
from bench.store.run_index import RunIndex, pack_ranges, unpack_ranges

_TABLES = """
CREATE TABLE IF NOT EXISTS run (
    id INTEGER PRIMARY KEY, queue BLOB, epoch INTEGER, first INTEGER, count INTEGER, crc INTEGER, raw BLOB
);
CREATE TABLE IF NOT EXISTS gone (id INTEGER PRIMARY KEY, crc INTEGER, ranges BLOB);
"""
_ALL = """
SELECT run.id, queue, epoch, first, count, run.crc, raw, gone.id, gone.crc, ranges
FROM run LEFT JOIN gone ON gone.id = run.id ORDER BY run.id
"""
PAGE_BYTES = 16384
CHECKPOINT_PAGES = 1000


class SqliteEngine:
    def __init__(self, directory: str, sync: bool) -> None:
        self._db = sqlite3.connect(f"{directory}/runs.sqlite", isolation_level=None)
        self._db.executescript(
            f"PRAGMA page_size={PAGE_BYTES}; PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;"
            f"PRAGMA synchronous={'FULL' if sync else 'OFF'}; PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES};"
            + _TABLES
        )
        self.index = RunIndex()
        self._last = 0

    def recover(self) -> Iterator[Stored]:
        for id, queue, epoch, first, count, crc, raw, *about in self._db.execute(_ALL):
            if not isinstance(raw, bytes) or zlib.crc32(raw, _seed(id, queue, epoch, first, count)) != crc:
                raise Damaged(f"sqlite: run {id} fails its checksum")
            live = self.index.add(queue, epoch, first, count, len(raw))
            live.place = id, 0
            self._last = id
            for begin, end in _ranges(*about):
                live.take(begin, end)
            yield live.stored(raw)

    def commit(self, runs: Sequence[Run], gone: Sequence[Range]) -> None:
        change = self.index.change(runs, gone)
        rows = []
        for live, run in change.added:
            self._last += 1
            live.place = self._last, 0
            crc = zlib.crc32(run.raw, _seed(self._last, *run[:4]))
            rows.append((self._last, run.queue, run.epoch, run.first, run.messages, crc, run.raw))
        removed = [(live.place[0],) for live in change.removed]
        partial = [(live.place[0], *_packed(live.place[0], live.gone)) for live in change.partial]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany("DELETE FROM run WHERE id = ?", removed)
            self._db.executemany("DELETE FROM gone WHERE id = ?", removed)
            self._db.executemany("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            self._db.executemany("INSERT OR REPLACE INTO gone VALUES (?, ?, ?)", partial)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def read(self, queue: bytes, epoch: int, first: int) -> bytes:
        live = self.index.find(queue, epoch, first)
        row = self._db.execute("SELECT crc, raw FROM run WHERE id = ?", (live.place[0],)).fetchone()
        seed = _seed(live.place[0], queue, epoch, first, live.count)
        if row is None or not isinstance(row[1], bytes) or zlib.crc32(row[1], seed) != row[0]:
            raise Damaged(f"sqlite: run {first} of queue {queue.hex()} is missing or fails its checksum")
        return row[1]

    def close(self) -> None:
        self._db.close()


def _seed(*about: object) -> int:
    return zlib.crc32(repr(about).encode())


def _packed(id: int, ranges: list[tuple[int, int]]) -> tuple[int, bytes]:
    """Checksum and bytes."""
    raw = pack_ranges(ranges)
    return zlib.crc32(raw, _seed(id)), raw


def _ranges(id: int | None, crc: object, raw: object) -> list[tuple[int, int]]:
    if id is None:
        return []
    if not isinstance(raw, bytes) or zlib.crc32(raw, _seed(id)) != crc:
        raise Damaged(f"sqlite: what is gone of run {id} fails its checksum")
    return unpack_ranges(raw)


def open_store(directory: str, *, sync: bool) -> SqliteEngine:
    return SqliteEngine(directory, sync)
