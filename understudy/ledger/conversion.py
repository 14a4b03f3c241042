"""Converts the logs of single messages that other clients write into a ledger of ranges.

A row of CSV, or a JSON object on its own line, is one event. A producer sent a publish tag, or got the answer
to it. A consumer received or acked a replication id. Named columns hold the values (`FIELDS`). Rows are read
in order and not kept in memory. Adjacent numbers become ranges. Confirms and acks come in any order, so they
are gathered for up to `SLOT_US`.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from understudy.ledger.ranges import RangeGatherer
from understudy.ledger.segments import GREATEST
from understudy.ledger.writer import DescriptorFile, LedgerWriter

FIELDS = {
    "producer": ("time", "event", "session", "tag", "number", "route"),
    "consumer": ("time", "event", "id", "queue", "epoch", "sequence", "redelivered", "name"),
}
"""The values that a row can hold, by role. `NEEDED` lists the required ones."""
NEEDED = {"producer": (("time",), ("tag",)), "consumer": (("time",), ("id", "queue"))}
"""Required values, by role: one of each group."""
EVENTS = {
    "producer": ("sent", "confirmed", "nacked", "returned"),
    "consumer": ("received", "acked"),
}
"""Names of events, by role. A row without one is the first of them."""
SLOT_US = 50_000
"""Events are gathered into ranges for this time, in microseconds."""
_UNITS = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0}
TIMES = ("iso", *_UNITS)
_TRUE, _FALSE = ("1", "true", "yes", "t", "y"), ("0", "false", "no", "f", "n", "")


class Unconvertible(Exception):
    """A log cannot be converted. `str()` is one line that names the file and, where there is one,
    the line."""


@dataclass(slots=True)
class Converted:
    """The result of `convert`. `first_us` is the time of the first row, `last_us` the latest time of all
    rows."""

    rows: int = 0
    records: int = 0
    files: list[Path] = field(default_factory=list)
    first_us: int = 0
    last_us: int = 0


@dataclass(slots=True, frozen=True)
class Mapped:
    """How to read a row: the role, the format (csv or jsonl), the column of each value, and the format of
    times (one of TIMES)."""

    role: str
    form: str
    columns: Mapping[str, str]
    time: str = "iso"


Row = Mapping[str, Any]


def rows_of(path: Path, form: str, progress: Callable[[int], None]) -> Iterator[tuple[int, Row]]:
    """Yield each row with its line number. Raises Unconvertible and OSError."""
    with path.open("r", encoding="utf-8-sig", newline="") as file:

        def lines() -> Iterator[str]:
            for line in file:
                progress(len(line))
                yield line

        number = 0
        try:
            if form == "csv":
                reader = csv.DictReader(lines(), strict=True)
                for row in reader:
                    number = reader.line_num
                    if None in row:
                        raise Unconvertible(f"{path}:{number}: more columns than the header")
                    yield number, row
                return
            for number, line in enumerate(lines(), 1):
                if line.strip():
                    found = json.loads(line)
                    if not isinstance(found, dict):
                        raise Unconvertible(f"{path}:{number}: not a JSON object")
                    yield number, found
        except (ValueError, csv.Error) as error:
            raise Unconvertible(
                f"{path}:{number + (form == 'csv')}: {' '.join(str(error).split())}"
            ) from None


def convert(
    paths: Sequence[Path], target: Path, writer: str, mapped: Mapped,
    progress: Callable[[int], None] = lambda octets: None,
) -> Converted:  # fmt: skip
    """Convert all files, in the given order, into one ledger of `writer`.

    The ledger's files get their names after the last row; if a row is wrong, no file stays. Raises
    Unconvertible, LedgerError and OSError. The incarnation is the time of the first event in milliseconds, so
    converting the same log again is refused.
    """
    ledger: _Ledger | None = None
    parts: list[str] = []

    def open_part(path: str) -> DescriptorFile:
        if os.path.exists(path):
            raise FileExistsError(17, os.strerror(17), path)
        parts.append(path)
        return DescriptorFile(path + ".part")

    converted = Converted()
    try:
        for path in paths:
            for number, row in rows_of(path, mapped.form, progress):
                event = _Event(mapped, row, f"{path}:{number}")
                if ledger is None:
                    ledger = _Ledger(target, writer, mapped, event.ts_us, open_part)
                    converted.first_us = event.ts_us
                ledger.take(event)
                converted.rows += 1
                converted.last_us = max(converted.last_us, event.ts_us)
        if ledger is None:
            raise Unconvertible(f"{paths[0]}: no rows")
        converted.records = ledger.close()
        for name in parts:
            os.rename(name + ".part", name)
        converted.files = [Path(name) for name in parts]
        return converted
    except BaseException:
        for name in parts:
            with suppress(OSError):
                os.unlink(name + ".part")
        raise


class _Event:
    """One row of a log."""

    __slots__ = ("_columns", "_place", "_row", "kind", "ts_us")

    def __init__(self, mapped: Mapped, row: Row, place: str) -> None:
        self._columns, self._row, self._place = mapped.columns, row, place
        self.ts_us = self._time(mapped.time)
        kinds = EVENTS[mapped.role]
        self.kind = self.text("event", kinds[0]) or kinds[0]
        if self.kind not in kinds:
            self.wrong(f"event {self.kind!r} is not one of {', '.join(kinds)}")

    def wrong(self, why: str) -> None:
        raise Unconvertible(f"{self._place}: {why}")

    def value(self, what: str) -> Any:
        column = self._columns.get(what)
        if column is None:
            return None
        if column not in self._row:
            self.wrong(f"there is no column {column!r}")
        return self._row[column]

    def text(self, what: str, default: str = "") -> str:
        value = self.value(what)
        return default if value is None else str(value)

    def number(self, what: str, default: int | None = None) -> int:
        value = self.value(what)
        if (value is None or value == "") and default is not None:
            return default
        if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal():
            value = int(value)
        if type(value) is not int or not 0 <= value < GREATEST:
            self.wrong(f"{what} is {value!r}, not a whole number from 0 to 2^53 - 1")
        assert isinstance(value, int)
        return value

    def flag(self, what: str) -> bool:
        value = self.text(what).strip().lower()
        if value not in (*_TRUE, *_FALSE, "none"):
            self.wrong(f"{what} is {value!r}, neither yes nor no")
        return value in _TRUE

    def id(self) -> tuple[str, int, int]:
        """Queue, epoch and sequence, from one column `queue:epoch:sequence` or from three columns."""
        if "id" in self._columns:
            parts = self.text("id").split(":")
            if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
                self.wrong(f"id {self.text('id')!r} is not of the form QUEUE:EPOCH:SEQUENCE")
            queue, epoch, sequence = parts[0], int(parts[1]), int(parts[2])
        else:
            queue, epoch, sequence = self.text("queue"), self.number("epoch"), self.number("sequence")
        if len(queue) != 32 or set(queue) - set("0123456789abcdef"):
            self.wrong(f"queue {queue!r} is not a UUID of 32 lower-case hex digits")
        return queue, epoch, sequence

    def _time(self, unit: str) -> int:
        value = self.value("time")
        try:
            if unit != "iso":
                return max(0, round(float(value) * _UNITS[unit]))
            moment = datetime.fromisoformat(str(value))
            zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            return round(zoned.timestamp() * 1_000_000)
        except (TypeError, ValueError, OverflowError):
            raise Unconvertible(f"{self._place}: time {value!r} cannot be read as {unit}") from None


class _Ledger:
    """The ledger being written, with the current run and the numbers gathered so far."""

    def __init__(
        self, target: Path, writer: str, mapped: Mapped, ts_us: int,
        open_part: Callable[[str], DescriptorFile],
    ) -> None:  # fmt: skip
        self._now = ts_us
        self._writer, self._mapped = writer, mapped
        self._ledger = LedgerWriter(
            str(target), writer, mapped.role, incarnation=ts_us // 1000, rotate_age=0.0,
            clock=lambda: self._now, open_file=open_part,
        )  # fmt: skip
        self._since = ts_us
        self._run: dict[str, Any] | None = None
        self._gathered: RangeGatherer[tuple[tuple[str, Any], ...]] = RangeGatherer()
        self._named: set[str] = set()

    def take(self, event: _Event) -> None:
        if abs(event.ts_us - self._since) >= SLOT_US:
            self.flush()
            self._since = event.ts_us
        self._now = event.ts_us
        if self._mapped.role == "producer":
            self._produced(event)
        else:
            self._consumed(event)

    def _produced(self, event: _Event) -> None:
        tag = event.number("tag")
        session = event.text("session") or f"{self._writer}.{self._ledger.incarnation}.1"
        prod = session if "/" in session else f"{session}/1"
        if event.kind == "sent":
            self._join("sent", tag, event.number("number", tag), prod=prod, name=event.text("route", "|"))
        else:
            self._end_run()
            self._gathered.add((("kind", event.kind), ("prod", prod)), tag)

    def _consumed(self, event: _Event) -> None:
        queue, epoch, sequence = event.id()
        if queue not in self._named and "name" in self._mapped.columns:
            self._named.add(queue)
            self._end_run()
            self._ledger.record("definition", queue=queue, name=event.text("name"))
        if event.kind == "received":
            reason = "redelivered" if event.flag("redelivered") else None
            self._join("received", sequence, None, queue=queue, epoch=epoch, reason=reason)
        else:
            self._end_run()
            self._gathered.add((("kind", "acked"), ("queue", queue), ("epoch", epoch)), sequence)

    def _join(self, kind: str, number: int, own: int | None, **same: Any) -> None:
        """Extend the current run, or begin a new one. Runs stay in order of arrival, so that disorder and
        repetition stay visible."""
        run = self._run
        follows = run is not None and number == run["last"] + 1 and all(run[k] == v for k, v in same.items())
        if run is not None and follows and (own is None or own == run["pfirst"] + number - run["first"]):
            run["last"] = number
            return
        self._end_run()
        self._run = {"kind": kind, "first": number, "last": number, "pfirst": own, **same}

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._ledger.record(run.pop("kind"), **run)

    def flush(self) -> None:
        self._end_run()
        for key, first, last in self._gathered.drain():
            fields: dict[str, Any] = dict(key)
            self._ledger.record(fields.pop("kind"), first=first, last=last, **fields)
        self._ledger.flush()

    def close(self) -> int:
        """Flush, seal and close. Returns the number of records. Raises OSError if a record could not be
        written."""
        self.flush()
        self._ledger.close()
        if self._ledger.lost:
            raise OSError(28, f"{self._ledger.lost} records could not be written to {self._ledger.path}")
        return self._ledger.next_wseq
