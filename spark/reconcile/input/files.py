"""Ledger files -> Arrow tables of records. Runs only inside Spark's Python workers.

A `Piece` is the part of a file that one task reads: a range of bytes of a JSONL file, with the lines that
begin in it; a share of a Parquet file's row groups; or a whole compressed file. Records come in the order of
writing. Unreadable input (Parquet without a footer, a foreign table, a torn line) becomes rows with
`_corrupt` and `_file`, never an exception.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schema as names

BLOCK_BYTES = 16 * 1024 * 1024
"""Bytes of JSON lines that are parsed at once."""
PARQUET_ROWS = 300_000
"""Rows of Parquet that are read at once."""

RECORDS: pa.Schema = to_arrow_schema(names.RECORD_SCHEMA)
PLAIN = pa.schema([field for field in RECORDS if field.name not in (names.CORRUPT, names.FILE)])
CODED = pa.schema(
    [(f.name, pa.dictionary(pa.int32(), f.type) if f.type == pa.string() else f.type) for f in RECORDS]
)
"""RECORD_SCHEMA with dictionary-coded strings, since few are distinct."""


@dataclass(slots=True, frozen=True)
class Piece:
    """`begin`..`end`: bytes of a JSONL file; share `begin` of `end` of a Parquet file (0 of 1: whole)."""

    path: str
    begin: int
    end: int

    @property
    def pruned(self) -> bool:
        """Whether the file is pruned: its ids and tags are marks of removed records, not records
        themselves."""
        return ".pruned.ledger." in self.path


def read_piece(piece: Piece) -> Iterator[pa.Table]:
    """Tables of CODED, in order. OSError if the file cannot be opened."""
    if piece.path.endswith(".parquet"):
        return _parquet(piece)
    if piece.path.endswith(".zst"):
        return _compressed(piece.path)
    return _lines(piece)


def file_url(path: str) -> str:
    """The name of a file in findings, in Spark's form."""
    return "file://" + quote(path)


def coded(table: pa.Table) -> pa.Table:
    """The columns of RECORD_SCHEMA that the table has, with coded strings."""
    columns = []
    for field in CODED:
        if field.name not in table.schema.names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        if field.type == column.type:
            columns.append(column)
        elif pa.types.is_dictionary(field.type):
            plain = column.cast(pa.string())
            columns.append(plain.dictionary_encode().cast(field.type))
        else:
            columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=CODED)


def _spoilt(path: str, lines: list[str]) -> pa.Table:
    """Rows for lines that are not records: the shortened text and the file."""
    shown = [line[:200] for line in lines]
    return coded(pa.table({names.CORRUPT: shown, names.FILE: [file_url(path)] * len(lines)}))


# -- JSON lines


def _lines(piece: Piece) -> Iterator[pa.Table]:
    with open(piece.path, "rb") as file:
        at = piece.begin
        if at:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < piece.end:
            block = file.read(min(BLOCK_BYTES, piece.end - at))
            if not block:
                return
            if not block.endswith(b"\n"):
                block += file.readline()
            at += len(block)
            yield parse(block, piece.path)


def _compressed(path: str) -> Iterator[pa.Table]:
    rest = b""
    try:
        with pa.input_stream(path, compression="zstd") as stream:
            while block := stream.read(BLOCK_BYTES):
                whole, newline, rest = (rest + block).rpartition(b"\n")
                if newline:
                    yield parse(whole + newline, path)
    except (pa.ArrowException, OSError) as error:
        yield _spoilt(path, [f"{type(error).__name__}: the compressed file is damaged"])
    if rest:
        yield parse(rest, path)


def parse(block: bytes, path: str) -> pa.Table:
    """Whole lines -> records. If a line is invalid, all lines of the block are parsed one by one."""
    block = block.removeprefix(b"\xef\xbb\xbf")
    expected = block.count(b"\n") + (not block.endswith(b"\n"))
    try:
        block.decode()
        table = pj.read_json(
            io.BytesIO(block),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pj.ParseOptions(explicit_schema=PLAIN, unexpected_field_behavior="ignore"),
        )
        if table.num_rows == expected:
            return _with_files(coded(table), path)
    except (pa.ArrowException, UnicodeDecodeError):
        pass
    return _one_by_one(block, path)


def _with_files(table: pa.Table, path: str) -> pa.Table:
    """Name the file in each row if a record lacks its number: such a record is malformed, and the report
    names its file."""
    if not table.column("wseq").null_count:
        return table
    place = CODED.get_field_index(names.FILE)
    whose = pa.DictionaryArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int32()), table.num_rows), [file_url(path)]
    )
    return table.set_column(place, CODED.field(place), whose)


def _one_by_one(block: bytes, path: str) -> pa.Table:
    records: list[dict[str, Any]] = []
    for line in block.split(b"\n"):
        if not line.strip():
            continue
        record = _record(line)
        if record is None:
            text = line.decode(errors="replace")[:200]
            records.append({names.CORRUPT: text, names.FILE: file_url(path)})
        else:
            records.append(record if "wseq" in record else {**record, names.FILE: file_url(path)})
    return coded(pa.Table.from_pylist(records, schema=RECORDS))


def _record(line: bytes) -> dict[str, Any] | None:
    """The fields of one line; None if it is not an object or a field has a wrong type."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    record = {}
    for field in PLAIN:
        value = found.get(field.name)
        if value is None:
            continue
        if field.type == pa.int64():
            fits = isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
        else:
            fits = isinstance(value, str) and _encodes(value)
        if not fits:
            return None
        record[field.name] = value
    return record


def _encodes(text: str) -> bool:
    """False for half a surrogate pair, which JSON can express and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- Parquet


def _parquet(piece: Piece) -> Iterator[pa.Table]:
    try:
        footer = pq.read_metadata(piece.path)
        have = {field.name: field.type for field in footer.schema.to_arrow_schema()}
        strings = [field.name for field in PLAIN if field.type == have.get(field.name) == pa.string()]
        with pq.ParquetFile(piece.path, metadata=footer, read_dictionary=strings) as file:
            if not {"v", "writer", "incarnation", "wseq", "kind"} <= set(have) or not file.metadata.num_rows:
                if not piece.begin:
                    yield _spoilt(piece.path, [names.NOT_PARQUET])
                return
            groups = file.metadata.num_row_groups
            share = range(groups * piece.begin // piece.end, groups * (piece.begin + 1) // piece.end)
            if share:
                columns = [field.name for field in PLAIN if field.name in have]
                batches = file.iter_batches(
                    PARQUET_ROWS, row_groups=list(share), columns=columns, use_threads=False
                )
                for batch in batches:
                    yield coded(pa.Table.from_batches([batch]))
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        yield _spoilt(piece.path, [names.NOT_PARQUET])


def record_batches(tables: Iterable[tuple[Piece, pa.Table]], *, files: bool) -> Iterator[pa.RecordBatch]:
    """RECORD_SCHEMA with plain strings, as Spark needs them. With `files`, each row names its file."""
    for piece, table in tables:
        if files:
            place = table.schema.get_field_index(names.FILE)
            named = pa.repeat(pa.scalar(file_url(piece.path)), table.num_rows)
            table = table.set_column(place, pa.field(names.FILE, pa.string()), named)
        yield from table.cast(RECORDS).combine_chunks().to_batches()
