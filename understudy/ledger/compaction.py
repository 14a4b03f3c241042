"""Converts finished segments to Parquet (zstd, 64-bit integers), about a fifteenth of the size.

Crash-safe: the Parquet file is written under a name that readers ignore, synced, read back and compared with
the lines. Then it is renamed, and the lines are deleted. If a crash leaves both files, readers take the
Parquet file. A segment with a line that is not a record stays unchanged, because the line may be evidence.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from understudy.ledger.segments import JSONL, PARQUET, VERSIONS, Segment, arrow
from understudy.shared.file_errors import named

LONGS = (
    "v", "incarnation", "wseq", "ts_us", "view", "epoch", "first", "last", "pfirst", "n", "durable", "number",
)  # fmt: skip
TEXTS = ("writer", "kind", "queue", "reason", "prod", "name", "peer")
"""The columns: all fields that a record can have (`spark.schema.RECORD_SCHEMA`)."""
_NEEDED = ("v", "writer", "incarnation", "wseq", "ts_us", "view", "kind")
_CHUNK = 8 * 1024 * 1024
_GROUP_ROWS = 500_000
_LEVEL = 3


class Kept(Exception):
    """The segment stays unchanged. `str()` is the reason."""


def parquet_of(segment: Segment) -> Path:
    return segment.path.with_name(segment.stem + PARQUET)


def compact(segment: Segment, progress: Callable[[int], None] = lambda octets: None) -> int:
    """Convert a finished segment of JSON lines. Returns the size of the Parquet file in bytes. Raises Kept,
    OSError and NeedsArrow."""
    assert segment.form == JSONL
    target = parquet_of(segment)
    part = target.with_name(target.name + ".part")
    with named(part), part.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Kept("another process is compacting it") from None
        try:
            file.truncate(0)
            _write(segment.path, file, progress)
            file.flush()
            os.fsync(file.fileno())
            _compare(segment.path, part, progress)
            os.replace(part, target)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    sync_folder(target.parent)
    segment.path.unlink()
    sync_folder(target.parent)
    return target.stat().st_size


def finish(segment: Segment, progress: Callable[[int], None] = lambda octets: None) -> None:
    """Delete the lines of a segment that has both forms, if the Parquet file holds the same records. Raises
    Kept, OSError and NeedsArrow."""
    _compare(segment.path, parquet_of(segment), progress)
    segment.path.unlink()
    sync_folder(segment.path.parent)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with named(folder):
            os.fsync(fd)
    finally:
        os.close(fd)


def arrow_schema() -> Any:
    pa = arrow()
    return pa.schema([(name, pa.int64()) for name in LONGS] + [(name, pa.string()) for name in TEXTS])


def _write(source: Path, file: Any, progress: Callable[[int], None]) -> None:
    pa = arrow()
    with pa.parquet.ParquetWriter(
        file, arrow_schema(), compression="zstd", compression_level=_LEVEL
    ) as writer:  # fmt: skip
        for table in _groups(source, progress):
            writer.write_table(table, row_group_size=_GROUP_ROWS * 2)


def _compare(source: Path, target: Path, progress: Callable[[int], None]) -> None:
    pa = arrow()
    try:
        with pa.parquet.ParquetFile(target) as file:
            groups = _groups(source, progress)
            for place in range(file.num_row_groups):
                if not next(groups, pa.table({})).equals(file.read_row_group(place)):
                    raise Kept("the Parquet file differs from the lines")
            if next(groups, None) is not None:
                raise Kept("the Parquet file is shorter than the lines")
    except pa.ArrowInvalid as error:
        raise Kept(f"the Parquet file cannot be read ({str(error).splitlines()[0]})") from None


def _groups(source: Path, progress: Callable[[int], None]) -> Iterator[Any]:
    """The lines as tables of at least `_GROUP_ROWS` rows, except the last. A second call gives
    equal tables."""
    pa = arrow()
    gathered: list[Any] = []
    rows = 0
    for table in _tables(source, progress):
        gathered.append(table)
        rows += table.num_rows
        if rows >= _GROUP_ROWS:
            yield pa.concat_tables(gathered).combine_chunks()
            gathered, rows = [], 0
    if rows:
        yield pa.concat_tables(gathered).combine_chunks()


def _tables(source: Path, progress: Callable[[int], None]) -> Iterator[Any]:
    pa = arrow()
    schema = arrow_schema()
    with source.open("rb") as file:
        rest = b""
        while chunk := file.read(_CHUNK):
            progress(len(chunk))
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            if not newline:
                continue
            data = whole + newline
            try:
                table = pa.json.read_json(
                    pa.BufferReader(data),
                    read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                    parse_options=pa.json.ParseOptions(
                        explicit_schema=schema, unexpected_field_behavior="error"
                    ),
                )
            except pa.ArrowInvalid as error:
                why = " ".join(str(error).split())
                raise Kept(f"a line is not a record ({why[:100]})") from None
            yield _checked(table.select(schema.names), data)
    if rest:
        raise Kept("its last line is cut short")


def _checked(table: Any, data: bytes) -> Any:
    if table.num_rows != data.count(b"\n"):
        raise Kept("lines and records differ in number")
    for name in _NEEDED:
        if table.column(name).null_count:
            raise Kept(f"a line has no {name}")
    unknown = set(table.column("v").unique().to_pylist()) - set(VERSIONS)
    if unknown:
        raise Kept(f"unsupported schema version {max(unknown)}")
    return table
