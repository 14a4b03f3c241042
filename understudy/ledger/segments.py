"""Ledger files in folders: which writer they belong to, which are finished, and the records in them.

Used by the commands of `understudy ledger`. One incarnation of a writer is a series of segments, numbered
from 0. Only the last segment may still be written. Nothing here changes a file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

Record = dict[str, Any]
Process = tuple[str, int]
"""Writer and incarnation."""

JSONL = ".ledger.jsonl"
PARQUET = ".ledger.parquet"
FORMS = (PARQUET, JSONL + ".zst", JSONL)
"""If a crash left several forms of one segment, the first of these counts."""
PRUNED = ".pruned"
VERSIONS = (1, 2)
GREATEST = 1 << 53
"""All numbers in a record are below this limit."""
_NAME = re.compile(r"(.*)-(\d+)-(\d+)(\.pruned)?(\.ledger\.(?:parquet|jsonl|jsonl\.zst))\Z", re.DOTALL)
_TAIL = 64 * 1024
_PIECE = 1024 * 1024
CUT_SHORT = "cut short"


class NeedsArrow(Exception):
    """pyarrow is not installed. The extra `spark` installs it."""

    def __init__(self) -> None:
        super().__init__("Parquet needs pyarrow: pip install 'understudy-amqp[spark]'")


@dataclass(slots=True, frozen=True)
class Segment:
    """One ledger file. `pruned`: the file replaces this segment and all earlier ones (`retention`)."""

    path: Path
    writer: str
    incarnation: int
    number: int
    form: str
    pruned: bool = False

    @property
    def stem(self) -> str:
        return self.path.name.removesuffix(self.form)


@dataclass(slots=True)
class Series:
    """The segments of one incarnation in one folder, in order. `doubles` are other forms of the same
    segments, and segments that a pruned file replaces."""

    folder: Path
    process: Process
    segments: list[Segment] = field(default_factory=list)
    doubles: list[Segment] = field(default_factory=list)


@dataclass(slots=True)
class Damage:
    """A line that is not a record."""

    line: int
    why: str


def segment_of(path: Path) -> Segment | None:
    found = _NAME.match(path.name)
    if found is None:
        return None
    writer, incarnation, number, pruned, form = found.groups()
    return Segment(path, unquote(writer), int(incarnation), int(number), form, pruned is not None)


def find(folders: Iterable[Path]) -> tuple[list[Series], int]:
    """The series of each incarnation below `folders`, which may name files too, and the number of files that
    are not ledgers."""
    series: dict[tuple[Path, Process], Series] = {}
    seen: set[Path] = set()
    foreign = 0
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            real = Path(os.path.realpath(path))  # a loop of symbolic links fails is_file()
            if real in seen or not real.is_file():
                continue
            seen.add(real)
            segment = segment_of(real)
            if segment is None:
                foreign += 1
                continue
            process = (segment.writer, segment.incarnation)
            series.setdefault((real.parent, process), Series(real.parent, process)).segments.append(segment)
    for one in series.values():
        _sort(one)
    return sorted(series.values(), key=lambda s: (s.process, s.folder)), foreign


def _sort(series: Series) -> None:
    pruned = max((s.number for s in series.segments if s.pruned), default=-1)
    best: dict[int, Segment] = {}
    for segment in sorted(series.segments, key=lambda s: (not s.pruned, FORMS.index(s.form))):
        gone = segment.number < pruned or (segment.number == pruned and not segment.pruned)
        if gone or best.setdefault(segment.number, segment) is not segment:
            series.doubles.append(segment)
    series.segments = [best[number] for number in sorted(best)]


def records(
    segment: Segment, damage: Callable[[Damage], None], progress: Callable[[int], None] = lambda octets: None
) -> Iterator[Record]:
    """Yield the records in order. Lines that are not records go to `damage`. Raises OSError and
    NeedsArrow."""
    if segment.form == PARQUET:
        yield from _rows(segment.path, progress)
        return
    with segment.path.open("rb") if segment.form == JSONL else _unpacked(segment.path) as lines:
        for number, line in enumerate(lines, 1):
            progress(len(line) if segment.form == JSONL else 0)
            fault = "" if line.endswith(b"\n") else CUT_SHORT
            record = None
            try:
                record = json.loads(line)
            except ValueError:
                fault = fault or "not JSON"
            fault = fault or fault_of(record)
            if fault or record is None:
                if line.strip():
                    damage(Damage(number, fault))
                continue
            yield record


def fault_of(record: object) -> str:
    """Why `record` is not a ledger record, or "" if it is one. The reconciler checks the fields of
    each kind."""
    if not isinstance(record, dict):
        return "not a JSON object"
    if record.get("v") not in VERSIONS:
        return f"unsupported schema version {record.get('v')}"
    for name in ("incarnation", "wseq", "ts_us", "view"):
        value = record.get(name)
        if type(value) is not int or not 0 <= value < GREATEST:
            return f"{name} is {value!r}"
    for name in ("writer", "kind"):
        if not isinstance(record.get(name), str):
            return f"{name} is {record.get(name)!r}"
    return ""


def arrow() -> Any:
    """The pyarrow package. Raises NeedsArrow."""
    try:
        import pyarrow.json
        import pyarrow.parquet
    except ImportError:
        raise NeedsArrow from None
    return pyarrow


def _rows(path: Path, progress: Callable[[int], None]) -> Iterator[Record]:
    pa = arrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            total, size = max(1, file.metadata.num_rows), path.stat().st_size
            for batch in file.iter_batches():
                progress(size * batch.num_rows // total)
                for row in batch.to_pylist():
                    yield {name: value for name, value in row.items() if value is not None}
    except pa.ArrowInvalid as error:
        raise OSError(0, f"not a Parquet file ({str(error).splitlines()[0]})", str(path)) from None


@contextmanager
def _unpacked(path: Path) -> Iterator[Iterator[bytes]]:
    """The lines of a zstd file. Reading a line raises OSError if the file ends too soon."""
    with arrow().input_stream(str(path), compression="zstd") as stream:

        def lines() -> Iterator[bytes]:
            rest = b""
            try:
                while piece := stream.read(_PIECE):
                    *whole, rest = (rest + piece).split(b"\n")
                    yield from (line + b"\n" for line in whole)
            except OSError as error:
                raise OSError(0, " ".join(str(error).split()), str(path)) from None
            if rest:
                yield rest

        yield lines()


def last_record(segment: Segment) -> Record | None:
    """The last whole record, or None. In a file of JSON lines the end of the file usually suffices."""
    if segment.form != JSONL:
        last = None
        for last in records(segment, lambda damage: None):  # noqa: B007
            pass
        return last
    with segment.path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        for back in (_TAIL, size):
            file.seek(max(0, size - back))
            lines = file.read().split(b"\n")[:-1]
            for line in reversed(lines if back >= size else lines[1:]):
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if not fault_of(record):
                    found: Record = record
                    return found
    return None


def is_sealed(segment: Segment) -> bool:
    last = last_record(segment)
    return last is not None and last["kind"] == "seal"


def is_held(segment: Segment) -> bool:
    """Does a process of this machine write to the segment? Writers hold a lock on their file."""
    with segment.path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def finished(series: Series) -> list[Segment]:
    """The segments that are no longer written: all but the last, and the last too if it is sealed, pruned or
    compacted."""
    if not series.segments:
        return []
    *before, last = series.segments
    return [*before, last] if last.pruned or last.form != JSONL or is_sealed(last) else before
