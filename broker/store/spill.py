"""The overflow on disk: paged-out bytes in files that a restart discards.

Owner: the node. Called on the broker's thread. A thread of its own writes, reads ahead and removes files, so
the broker waits for the disk only on a read that nobody could foresee. Nothing is synced: data that must
survive is in the store. Every block has a checksum and comes back as it was put, or not at all.

A failed write loses nothing: its bytes stay in memory, and no further bytes are paged out.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from broker import codes
from broker.store.errors import StoreCorrupt, StoreError, StoreMisuse, StoreUnusable
from broker.store.files import AppendFile, FileLayer
from understudy.shared.codes import Coded
from understudy.shared.file_errors import of_file

FILE_BYTES = 64 << 20
"""Size at which a file is finished. A file is removed when none of its blocks is needed."""
_GROUP = 16 << 20
"""Bytes written at once: each write makes the thread wait for the interpreter lock."""
_PENDING = 128 << 20
"""While more bytes than this wait to be written, `wanted` is 0 and publishers must wait."""
_AHEAD = 32 << 20
"""Maximum bytes read ahead."""


class _Place(NamedTuple):
    file: int
    offset: int
    length: int
    crc: int


class Spill:
    """An `Overflow`. `resident`: memory of the process, in bytes. Above `limit`, messages are paged out."""

    def __init__(
        self, files: FileLayer, directory: str, limit: int, resident: Callable[[], int],
        log: Callable[[Coded], None],
    ) -> None:  # fmt: skip
        self._files = files
        self._directory = directory
        self._limit = limit
        self._resident = resident
        self._log = log
        self._lock = threading.Lock()
        self._flushed = threading.Condition(self._lock)
        self._work = threading.Event()
        self._memory: dict[int, bytes] = {}
        """Blocks not written yet."""
        self._sums: dict[int, int] = {}
        """Their checksums. `put` computes them, so that the thread need not stop at each block."""
        self._order: deque[int] = deque()
        self._places: dict[int, _Place] = {}
        self._wanted_ahead: deque[int] = deque()
        self._ahead: dict[int, bytes] = {}
        self.failed: str | None = None
        self._number = 0
        self._pending = self._ahead_bytes = 0
        self._live: dict[int, int] = {}
        """Blocks by file."""
        self._file: AppendFile | None = None
        self._current = self._size = 0
        self._broken = False
        self._stopping = False
        self._thread: threading.Thread | None = None

    # -- life cycle

    def start(self) -> None:
        """Discard the files of an earlier life and start the thread. Raises StoreUnusable."""
        try:
            self._files.make_directory(self._directory)
            for name in self._files.list(self._directory):
                if name.endswith(".overflow"):
                    self._files.unlink(f"{self._directory}/{name}")
        except OSError as error:
            raise StoreUnusable(f"cannot use {self._directory}: {of_file(error, self._directory)}") from error
        self._thread = threading.Thread(target=self._run, name="overflow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and remove the files."""
        self._stopping = True
        self._work.set()
        if self._thread is not None:
            self._thread.join()
        if self._file is not None:
            self._file.close()
        for number in list(self._live):
            self._unlink(number)

    # -- the overflow

    def wanted(self) -> int:
        if self._broken or self._pending > _PENDING:
            return 0
        return max(0, self._resident() - self._limit - self._pending)

    @property
    def behind(self) -> bool:
        return self._pending > _PENDING and not self._broken

    def put(self, data: bytes) -> int:
        crc = zlib.crc32(data)
        with self._lock:
            self._number = number = self._number + 1
            self._memory[number], self._sums[number] = data, crc
            self._order.append(number)
            self._pending += len(data)
        self._wake()
        return number

    def get(self, number: int) -> bytes:
        with self._lock:
            data = self._memory.get(number, self._ahead.get(number))
            place = self._places.get(number)
        if data is not None:
            return data
        if place is None:
            raise StoreMisuse(f"block {number} of {self._directory} was asked for, and is not there")
        try:
            return self._read(place)
        except StoreError as error:
            self.failed = str(error)
            raise

    def drop(self, number: int) -> None:
        with self._lock:
            data = self._memory.pop(number, None)
            if data is not None:
                self._pending -= len(data)
                del self._sums[number]
            ahead = self._ahead.pop(number, None)
            if ahead is not None:
                self._ahead_bytes -= len(ahead)
            place = self._places.pop(number, None)
            empty = False
            if place is not None and place.file in self._live:
                self._live[place.file] -= 1
                empty = not self._live[place.file] and place.file != self._current
        if empty:
            self._wake()

    def ahead(self, number: int) -> None:
        with self._lock:
            known = number in self._ahead or number not in self._places
            if known or self._ahead_bytes > _AHEAD:
                return
            self._wanted_ahead.append(number)
        self._wake()

    def flush(self) -> None:
        with self._flushed:
            self._flushed.wait_for(lambda: self._broken or self._stopping or not self._pending)

    # -- the thread

    def _wake(self) -> None:
        if not self._work.is_set():
            self._work.set()

    def _run(self) -> None:
        while not self._stopping:
            self._work.wait()
            self._work.clear()
            while not self._stopping and (self._read_ahead() or self._write() or self._remove()):
                pass

    def _read_ahead(self) -> bool:
        with self._lock:
            if not self._wanted_ahead:
                return False
            number = self._wanted_ahead.popleft()
            place = self._places.get(number)
            if place is None or number in self._ahead:
                return True
        try:
            data = self._read(place)
        except StoreError:
            return True  # the reader of this block gets the error
        with self._lock:
            if number in self._places:
                self._ahead[number] = data
                self._ahead_bytes += len(data)
        return True

    def _write(self) -> bool:
        """Write a group of blocks to the file. False if there is nothing to write, or writing is
        impossible."""
        group: list[tuple[int, bytes]] = []
        gathered = 0
        with self._lock:
            while self._order and gathered < _GROUP and not self._broken:
                number = self._order.popleft()
                data = self._memory.get(number)
                if data is not None:
                    group.append((number, data))
                    gathered += len(data)
        if not group:
            return False
        try:
            self._append(group)
        except OSError as error:
            with self._flushed:
                self._broken = True
                self._flushed.notify_all()
            self._log(codes.OVERFLOW.say(directory=self._directory, cause=error.strerror or error))
            return False
        return True

    def _append(self, group: list[tuple[int, bytes]]) -> None:
        if self._file is None or self._size >= FILE_BYTES:
            if self._file is not None:
                self._file.close()
            with self._lock:
                self._current += 1
                self._live[self._current] = 0
            self._file, self._size = self._files.open_append(self._path(self._current)), 0
        self._file.write(b"".join([data for _, data in group]))
        with self._flushed:
            for number, data in group:
                if self._memory.pop(number, None) is not None:
                    self._pending -= len(data)
                    crc = self._sums.pop(number)
                    self._places[number] = _Place(self._current, self._size, len(data), crc)
                    self._live[self._current] += 1
                self._size += len(data)
            if not self._pending:
                self._flushed.notify_all()

    def _remove(self) -> bool:
        with self._lock:
            empty = [file for file, live in self._live.items() if not live and file != self._current]
        for number in empty:
            self._unlink(number)
        return bool(empty)

    def _unlink(self, number: int) -> None:
        with contextlib.suppress(OSError):
            self._files.unlink(self._path(number))
        with self._lock:
            del self._live[number]

    def _read(self, place: _Place) -> bytes:
        path = self._path(place.file)
        try:
            data = self._files.read(path, place.offset, place.length)
        except OSError as error:
            raise StoreUnusable(
                f"cannot read {path}: {error.strerror or error}; this node stops. See to the disk, then "
                f"start the node again: what was confirmed is in its store"
            ) from error
        if len(data) != place.length or zlib.crc32(data) != place.crc:
            raise StoreCorrupt(path, place.offset, "a block is not what was written")
        return data

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:08d}.overflow"
