"""RocksDB: a run is a value under queue, epoch and first, and so is what is gone of one.

Write-ahead log synced at each commit; no compression; no blob files, which cost more CPU at every size tried.
Its blocks and its log have checksums of its own. Log recovery stops with an error at damage before the log's
last record, where by default it drops what follows without a word.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from rocksdict import DBCompressionType, DBRecoveryMode, Options, Rdict, RdictIter, WriteBatch, WriteOptions

from bench.store.engines import Damaged
from bench.store.pattern import Range, Run, Stored
from bench.store.run_index import Live, RunIndex, pack_ranges, unpack_ranges

BUFFER_BYTES = 32 << 20
_KEY = struct.Struct(">c16sQQ")
_COUNT = struct.Struct("<I")
RUN, GONE = b"r", b"g"
RANGES = (1, 0)
"""As a run's place: there is an entry for what is gone of it."""


class RocksDbEngine:
    def __init__(self, directory: str, sync: bool) -> None:
        self._db = Rdict(directory, _options())
        self._write = WriteOptions()
        self._write.sync = sync
        self.index = RunIndex()

    def recover(self) -> Iterator[Stored]:
        gone = {key: unpack_ranges(value) for key, value in self._all(GONE)}
        for key, value in self._all(RUN):
            _kind, queue, epoch, first = _KEY.unpack(RUN + key)
            (count,) = _COUNT.unpack_from(value)
            raw = value[_COUNT.size :]
            live = self.index.add(queue, epoch, first, count, len(raw))
            for begin, end in gone.get(key, ()):
                live.take(begin, end)
                live.place = RANGES
            yield live.stored(raw)

    def _all(self, kind: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor: RdictIter = self._db.iter()
        cursor.seek(kind)
        while cursor.valid() and (key := cursor.key()).startswith(kind):
            yield key[1:], cursor.value()
            cursor.next()
        cursor.status()  # an error ends the loop above as the last key does

    def commit(self, runs: Sequence[Run], gone: Sequence[Range]) -> None:
        change = self.index.change(runs, gone)
        batch = WriteBatch(raw_mode=True)
        for live in change.removed:
            batch.delete(_key(RUN, live))
            if live.place == RANGES:
                batch.delete(_key(GONE, live))
        for live, run in change.added:
            batch.put(_key(RUN, live), b"".join((_COUNT.pack(run.messages), run.raw)))
        for live in change.partial:
            batch.put(_key(GONE, live), pack_ranges(live.gone))
            live.place = RANGES
        self._db.write(batch, self._write)

    def read(self, queue: bytes, epoch: int, first: int) -> bytes:
        value = self._db.get(_KEY.pack(RUN, queue, epoch, first))
        if value is None:
            raise Damaged(f"rocksdb: run {first} of queue {queue.hex()} is missing")
        return bytes(value[_COUNT.size :])

    def close(self) -> None:
        self._db.close()


def _key(kind: bytes, live: Live) -> bytes:
    return _KEY.pack(kind, live.queue, live.epoch, live.first)


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(BUFFER_BYTES)
    options.set_max_background_jobs(2)
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_paranoid_checks(True)
    return options


def open_store(directory: str, *, sync: bool) -> RocksDbEngine:
    return RocksDbEngine(directory, sync)
