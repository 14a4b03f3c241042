"""Columns of records as numpy arrays: integers with nulls as -1, strings as codes into a short list.

Used inside Spark's Python workers by `condense` and `runs`. Work on a string column is done once for each
distinct value, never for each row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schema as names

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
EVENTS: pa.Schema = to_arrow_schema(names.EVENT_SCHEMA)
WIDEST = 1 << 62


class Frame:
    """Columns of records, converted to arrays on first use and cached."""

    def __init__(self, table: pa.Table) -> None:
        self.rows: int = table.num_rows
        self._table = table
        self._longs: dict[str, Long] = {}
        self._texts: dict[str, Text] = {}

    @classmethod
    def of(cls, rows: int, longs: Mapping[str, Long], texts: Mapping[str, Text]) -> Frame:
        """Make a frame from existing columns; all other columns have no values."""
        frame = cls(pa.table({}))
        frame.rows, frame._longs, frame._texts = rows, dict(longs), dict(texts)
        return frame

    def long(self, name: str) -> Long:
        if name not in self._longs:
            self._longs[name] = self._read_long(name)
        return self._longs[name]

    def _read_long(self, name: str) -> Long:
        if name not in self._table.schema.names:
            return Long(np.full(self.rows, -1), np.zeros(self.rows, dtype=bool))
        column = self._table.column(name)
        if not column.null_count:
            return Long(np.asarray(column.to_numpy(), dtype=np.int64), None)
        valid = np.asarray(column.is_valid().to_numpy(), dtype=bool)
        return Long(np.asarray(column.fill_null(-1).to_numpy(), dtype=np.int64), valid)

    def text(self, name: str) -> Text:
        if name not in self._texts:
            self._texts[name] = self._read_text(name)
        return self._texts[name]

    def _read_text(self, name: str) -> Text:
        if name not in self._table.schema.names:
            return Text(np.zeros(self.rows, dtype=np.int32), [None])
        column = self._table.column(name)
        if column.null_count == self.rows:
            return Text(np.zeros(self.rows, dtype=np.int32), [None])
        chunk = column.unify_dictionaries().combine_chunks()
        chunk = chunk.chunk(0) if isinstance(chunk, pa.ChunkedArray) else chunk
        indices = chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices
        codes = indices.to_numpy(zero_copy_only=False).astype(np.int32) + np.int32(1)
        return Text(codes, [None, *chunk.dictionary.to_pylist()])

    def has(self, name: str) -> bool:
        """Whether any row has a value."""
        if name in names.LONG_FIELDS:
            valid = self.long(name).valid
            return valid is None or bool(valid.any())
        return len(self.text(name).values) > 1

    def valid(self, name: str) -> Bools:
        if name in names.LONG_FIELDS:
            valid = self.long(name).valid
            return np.ones(self.rows, dtype=bool) if valid is None else valid
        return self.text(name).codes > 0

    def whole(self, name: str) -> bool:
        """Whether every row has a value, if this is known at no cost."""
        if name in names.LONG_FIELDS:
            return self.long(name).valid is None
        text = self.text(name)
        return len(text.values) > 1 and bool(text.codes.all())

    def ints(self, name: str) -> Ints:
        """An integer column; nulls are -1."""
        return self.long(name).values

    def among(self, name: str, wanted: Collection[str]) -> Bools:
        """Rows whose string is one of `wanted`."""
        text = self.text(name)
        return np.array([value in wanted for value in text.values])[text.codes]

    def take(self, rows: Ints) -> Frame:
        """A frame of these rows, including columns that are not converted yet."""
        longs = {name: self.long(name).take(rows) for name in names.LONG_FIELDS}
        texts = {name: self.text(name).take(rows) for name in names.RECORD_SCHEMA.names if name not in longs}
        return Frame.of(len(rows), longs, texts)

    def key(self, columns: Iterable[str], rows: Ints | None, *extra: Ints) -> Ints:
        """One small number for each of `rows` (None: all), equal exactly if columns and `extra` are equal."""
        parts: list[npt.NDArray[Any]] = []
        for name in columns:
            column = self.long(name) if name in names.LONG_FIELDS else self.text(name)
            if not column.constant():
                codes = column.marks()
                parts.append(codes if rows is None else codes[rows])
        return combine([*parts, *extra], self.rows if rows is None else len(rows))


@dataclass(slots=True)
class Long:
    """Integers, with -1 for nulls. `valid` is None if there are no nulls."""

    values: Ints
    valid: Bools | None
    _constant: bool | None = None

    def constant(self) -> bool:
        if self._constant is None:
            same = not len(self.values) or bool(self.values.min() == self.values.max())
            self._constant = same and (self.valid is None or not self.valid.any() or bool(self.valid.all()))
        return self._constant

    def marks(self) -> Ints:
        return self.values

    def take(self, rows: Ints) -> Long:
        return Long(self.values[rows], None if self.valid is None else self.valid[rows])

    def arrow(self, rows: Ints) -> pa.Array:
        return pa.array(self.values[rows], mask=None if self.valid is None else ~self.valid[rows])


@dataclass(slots=True)
class Text:
    """Strings as indices into a list of distinct values, which begins with None."""

    codes: npt.NDArray[np.int32]
    values: list[str | None]
    _constant: bool | None = None

    def constant(self) -> bool:
        if self._constant is None:
            few = len(self.values) < 2 or not len(self.codes)
            self._constant = few or bool(self.codes.min() == self.codes.max())
        return self._constant

    def marks(self) -> npt.NDArray[np.int32]:
        return self.codes

    def take(self, rows: Ints) -> Text:
        return Text(self.codes[rows], self.values)

    def arrow(self, rows: Ints) -> pa.Array:
        codes = self.codes[rows]
        indices = pa.array(codes - 1, pa.int32(), mask=codes == 0)
        return pa.DictionaryArray.from_arrays(indices, pa.array(self.values[1:], pa.string()))


def combine(parts: Iterable[npt.NDArray[Any]], rows: int) -> Ints:
    """One number for each row, from 0 on without large gaps, equal exactly if all `parts` are equal."""
    code = np.zeros(rows, dtype=np.int64)
    if not rows:
        return code
    for part in parts:
        low, high = int(part.min()), int(part.max())
        if low == high:
            continue
        if high - low >= 1 << 20:
            part, low, high = dense(part), 0, rows
        width = high - low + 1
        if int(code.max()) > WIDEST // width:
            code = dense(code)
        code = code * width + (part - low)
    return dense(code) if rows and int(code.max()) > rows else code


def dense(values: Ints) -> Ints:
    """Numbers from 0 on, in order of first appearance, equal exactly if the values are equal."""
    return np.asarray(pa.array(values).dictionary_encode().indices.to_numpy(), dtype=np.int64)


def sort_by(code: Ints, then: Ints | None = None) -> Ints:
    """A stable order by `code`, then by `then`. Small codes use a faster radix sort."""
    small = code.astype(np.uint16) if len(code) and int(code.max()) < 1 << 16 else code
    if then is None:
        return np.argsort(small, kind="stable")
    first = np.argsort(then, kind="stable")
    return first[np.argsort(small[first], kind="stable")]


def holds_sample(first: Ints, last: Ints) -> Bools:
    """Ranges that contain a sampled number, whose time is kept: 1, or a multiple of SAMPLE_EVERY."""
    return (first <= 1) | (last // names.SAMPLE_EVERY > (first - 1) // names.SAMPLE_EVERY)


def runs(begins: Bools) -> tuple[Ints, Ints]:
    """Indices at which runs begin and end, from a mask of the rows that begin one."""
    starts = np.flatnonzero(begins)
    return starts, np.append(starts[1:], len(begins)) - 1


def events(rows: int, columns: Mapping[str, object]) -> pa.RecordBatch:
    """A batch of EVENT_SCHEMA. Missing columns are null; a single value fills its column."""
    arrays = []
    for field in EVENTS:
        given = columns.get(field.name)
        if given is None:
            arrays.append(pa.nulls(rows, field.type))
        elif isinstance(given, str | int | bytes):
            arrays.append(pa.repeat(pa.scalar(given, field.type), rows))
        elif isinstance(given, pa.Array):
            arrays.append(given.cast(field.type))
        else:
            arrays.append(pa.array(given, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS)


def picked(frame: Frame, rows: Ints) -> dict[str, object]:
    """The columns of an event, from these rows of the frame."""
    columns: dict[str, object] = {}
    for name in EVENTS.names:
        if name in names.LONG_FIELDS:
            columns[name] = frame.long(name).arrow(rows)
        elif name in names.TEXT_FIELDS:
            columns[name] = frame.text(name).arrow(rows)
    return {"ts_last_us": columns["ts_us"], **columns}
