"""The ledger writer: records the events of one process life as JSON lines, in append-only files.

Role: gathers records in memory and hands them to the kernel with one write(2) for each `flush`, which the
owner calls before any confirm leaves. Owner: the node or the client kit, on one thread. Only the constructor
raises. A failed write is counted and its records are lost; the gap in `wseq` shows the loss to a
reconciliation.

Lines are built with f-strings, and escaped strings are cached. Integers are int64, ranges inclusive, times in
microseconds. All records of a flush share one reading of the clock.

Files are `<writer>-<incarnation>-<k>.ledger.jsonl`, k from 0. A new file begins at the limit of size or age;
`wseq` continues.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import quote

from understudy.ledger import codes
from understudy.shared.file_errors import of_file
from understudy.shared.folders import make_folders

LOG = logging.getLogger(__name__)

SCHEMA_VERSION = 2
ROTATE_BYTES = 64 * 1024 * 1024
"""A flush that would exceed this size begins a new file."""
ROTATE_AGE = 86400.0
"""The first flush after this age, in seconds, begins a new file; 0: never."""
HEARTBEAT = 5.0
"""Longest silence of a live writer, in seconds; then it records a heartbeat."""

_POSITIONS = frozenset({"replicated", "durable"})
"""Kinds that a node records in nearly every tick; `record` has a faster path for them."""
_ESCAPED_LIMIT = 4096
"""Number of cached JSON strings; a full cache is emptied."""


class LedgerError(Exception):
    """The ledger cannot be opened. `str()` is one line."""


def parse_writer_name(value: str) -> str:
    """Check the name of a ledger's writer, which begins the names of its files. Spark ignores files that
    begin with `.` or `_`, so such a ledger would be written and never read. Raises ValueError."""
    if not value or value[0] in "._":
        raise ValueError(
            f"{value[:40]!r} cannot name the writer of a ledger: it is empty, or begins with '.' or '_',"
            " and readers of ledgers ignore such files"
        )
    return value


class LedgerFile(Protocol):
    """An open ledger file."""

    def write(self, data: bytes) -> int:
        """Write with one write(2). Returns the number of bytes written. Raises OSError."""

    def close(self) -> None: ...


class DescriptorFile:
    """A file of the system. It refuses a name that exists, because `wseq` begins at 0 in each incarnation.
    The file is locked while it is open, so that retention leaves it alone."""

    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        with suppress(OSError):  # the file system may not support locks
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write(self, data: bytes) -> int:
        return os.write(self._fd, data)

    def close(self) -> None:
        os.close(self._fd)


def wall_microseconds() -> int:
    return time.time_ns() // 1000


class LedgerWriter:
    """One writer's ledger for one incarnation.

    `view` is the writer's current epoch (0 for clients), which the owner keeps up to date. `lost` counts
    records that did not reach the file whole. `failures` counts failed writes and closes.
    """

    def __init__(
        self, directory: str, writer: str, role: str, *, incarnation: int, cluster: str = "", view: int = 0,
        rotate_bytes: int = ROTATE_BYTES, rotate_age: float = ROTATE_AGE,
        clock: Callable[[], int] = wall_microseconds, open_file: Callable[[str], LedgerFile] = DescriptorFile,
    ) -> None:  # fmt: skip
        """Create the directory and the first file, and write the `open` record.

        `role` is broker, producer or consumer. The directory must not contain a ledger of the same writer and
        incarnation. Raises LedgerError if the ledger cannot be opened.
        """
        self.view = view
        self.lost = 0
        self.failures = 0
        self.writer = writer
        self.incarnation = incarnation
        self._directory = directory
        self._stem = f"{quote(writer, safe='') or '_'}-{incarnation}"
        self._rotate_bytes = rotate_bytes
        self._rotate_after = round(rotate_age * 1_000_000) or 1 << 62
        self._clock = clock
        self._open_file = open_file
        self._escaped: dict[str, str] = {}
        self._prefix = (
            f'{{"v":{SCHEMA_VERSION},"writer":{json.dumps(writer)},"incarnation":{incarnation},"wseq":'
        )
        self._lines: list[str] = []
        self._wseq = 0
        self._ts = 0
        self._k = 0
        self._size = 0
        self._begun = 0
        """Time of the first record of the file."""
        self._written = 0
        """Time of the newest records that reached the kernel."""
        self._beaten = 0
        """Number of the next record at the last call of `beat`."""
        self._failing = False
        self._torn = False
        self._closed = False
        self._file: LedgerFile | None = None
        try:
            make_folders(directory, 0o700)
            self._file = open_file(self.path)
        except OSError as error:
            why = of_file(error, self.path)
            if isinstance(error, FileExistsError) and os.path.isdir(directory):
                why += "; this writer and incarnation already have a ledger there: use another directory"
            raise LedgerError(f"cannot open ledger {self.path}: {why}") from error
        self.record("open", name=role, reason=cluster)
        self.flush()

    @property
    def path(self) -> str:
        """The current file."""
        return f"{self._directory}/{self._stem}-{self._k}.ledger.jsonl"

    @property
    def next_wseq(self) -> int:
        """Number of the next record, and of all records so far."""
        return self._wseq

    def escaped(self, text: str) -> str:
        """`text` as a JSON string with its quotes."""
        known = self._escaped.get(text)
        if known is None:
            if len(self._escaped) >= _ESCAPED_LIMIT:
                self._escaped.clear()
            known = self._escaped[text] = json.dumps(text)
        return known

    def record(
        self, kind: str, *, queue: str | None = None, epoch: int | None = None, first: int | None = None,
        last: int | None = None, reason: str | None = None, prod: str | None = None,
        pfirst: int | None = None, name: str | None = None, peer: str | None = None, n: int | None = None,
        at: int | None = None,
    ) -> None:  # fmt: skip
        """Gather one record; the next `flush` writes it. `queue` is 32 hex digits. `at` is the time of the
        event, if the event is not new."""
        if not self._lines:
            self._ts = self._clock()
        ts = self._ts if at is None else at
        head = f'{self._prefix}{self._wseq},"ts_us":{ts},"view":{self.view},"kind":"{kind}"'
        self._wseq += 1
        if kind in _POSITIONS:
            whose = "" if peer is None else f',"reason":"{reason}","peer":{self.escaped(peer)}'
            self._lines.append(f'{head},"epoch":{epoch},"first":{first},"last":{last}{whose}}}\n')
            return
        fields = ""
        if queue is not None:
            fields += f',"queue":"{queue}"'
        if epoch is not None:
            fields += f',"epoch":{epoch}'
        if first is not None:
            fields += f',"first":{first}'
        if last is not None:
            fields += f',"last":{last}'
        if reason is not None:
            fields += f',"reason":{self.escaped(reason)}'
        if prod is not None:
            fields += f',"prod":{self.escaped(prod)}'
        if pfirst is not None:
            fields += f',"pfirst":{pfirst}'
        if name is not None:
            fields += f',"name":{self.escaped(name)}'
        if peer is not None:
            fields += f',"peer":{self.escaped(peer)}'
        if n is not None:
            fields += f',"n":{n}'
        self._lines.append(f"{head}{fields}}}\n")

    def flush(self) -> None:
        """Hand all gathered records to the kernel with one write(2). Costs nothing if there are none."""
        lines = self._lines
        if not lines:
            return
        self._lines = []
        if self._closed:
            self.lost += len(lines)
            return
        data = "".join(lines).encode()
        if self._torn:
            data = b"\n" + data
        if self._size and (
            self._size + len(data) > self._rotate_bytes or self._ts - self._begun >= self._rotate_after
        ):
            self._rotate()
        self._write(data, len(lines))

    def beat(self) -> None:
        """Record a heartbeat if nothing was recorded since the last call, then flush. Call it three times
        within the longest allowed silence: a record just after one call suppresses the heartbeat of the next.
        """
        if self._wseq == self._beaten:
            self.record("heartbeat")
        self._beaten = self._wseq
        self.flush()

    def health(self) -> dict[str, Any]:
        """For status and metrics. `last_write` is in seconds since 1970."""
        return {
            "path": self.path, "lost": self.lost, "failures": self.failures, "failing": self._failing,
            "last_write": self._written / 1_000_000,
        }  # fmt: skip

    def close(self, *, seal: bool = True) -> None:
        """Write the seal, which marks a clean end, and close. A second call does nothing.

        Records gathered after `close` are lost, and the next `flush` counts them.
        """
        if self._closed:
            return
        if seal:
            self.record("seal")
        self.flush()
        self._close_file()
        self._closed = True

    def abandon(self) -> None:
        """Close the file in a forked process without writing: the gathered records belong to the parent."""
        self._closed = True
        self._lines = []
        self._close_file()

    def _write(self, data: bytes, records: int) -> None:
        taken = 0
        try:
            if self._file is None:
                self._file = self._open_file(self.path)
            while taken < len(data):
                taken += self._file.write(data[taken:] if taken else data)
            self._torn = False
            self._written = self._ts
            if self._failing:
                self._failing = False
                LOG.warning(codes.WRITTEN_AGAIN.say(path=self.path, lost=self.lost))
        except OSError as error:
            whole = data[:taken].count(b"\n") - (1 if self._torn and taken else 0)
            self._torn = (self._torn and not taken) or (taken > 0 and not data[:taken].endswith(b"\n"))
            self.lost += records - whole
            self.failures += 1
            if not self._failing:
                self._failing = True
                LOG.error(codes.UNWRITABLE.say(path=self.path, cause=error.strerror or error))
        if not self._size:
            self._begun = self._ts
        self._size += taken

    def _rotate(self) -> None:
        """Begin the next file. If it cannot be opened, records are lost until it can."""
        self._close_file()
        self._k += 1
        self._size = 0
        self._torn = False

    def _close_file(self) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
        except OSError as error:
            self.failures += 1
            LOG.error(codes.NOT_CLOSED.say(path=self.path, cause=error.strerror or error))
        self._file = None
