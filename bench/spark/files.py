"""Ledger files from columns: numbers the records of a writer and puts them into Parquet or JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Ints = npt.NDArray[np.int64]
Objects = npt.NDArray[np.object_]
Value = Ints | Objects | int | str
Columns = Mapping[str, Value]

LONGS = ("v", "incarnation", "wseq", "ts_us", "view", "epoch", "first", "last", "pfirst", "n", "durable")
STRINGS = ("writer", "kind", "queue", "reason", "prod", "name", "peer")
SCHEMA = pa.schema([*((name, pa.int64()) for name in LONGS), *((name, pa.string()) for name in STRINGS)])
ROTATE_ROWS = 300_000
"""Rows after which a file is full: about what 64 MiB of JSON lines hold."""


def table(kind: str, ts_us: Ints, columns: Columns) -> pa.Table:
    """Records of one kind; a single number or string fills its column, what is not given is null."""
    rows, given = len(ts_us), {"kind": kind, "ts_us": ts_us, **columns}
    arrays = []
    for column in SCHEMA:
        value = given.get(column.name)
        if value is None:
            arrays.append(pa.nulls(rows, column.type))
        elif isinstance(value, int | str):
            arrays.append(pa.repeat(pa.scalar(value, column.type), rows))
        else:
            arrays.append(pa.array(value, column.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


@dataclass(slots=True)
class Ledger:
    """One process life of a writer. `note` gathers, `turn` puts a stretch of time in order and writes it."""

    folder: Path
    writer: str
    incarnation: int
    form: str
    """parquet | jsonl"""
    role: str
    cluster: str = ""
    view: int = 0
    rows: int = 0
    _wseq: int = 0
    _k: int = 0
    _gathered: list[pa.Table] = field(default_factory=list)
    _ready: list[pa.Table] = field(default_factory=list)

    def note(self, kind: str, ts_us: Ints | int, **columns: Value) -> None:
        """Records of the current view; times in microseconds, one record for each."""
        times = np.atleast_1d(np.asarray(ts_us, dtype=np.int64))
        if len(times):
            self._gathered.append(table(kind, times, {"view": self.view, **columns}))

    def turn(self) -> None:
        """All gathered since the last turn, in order of time, follow what was there before."""
        if not self._gathered:
            return
        rows = pa.concat_tables(self._gathered)
        self._gathered = []
        order = np.argsort(rows.column("ts_us").to_numpy(), kind="stable")
        rows = rows.take(pa.array(order))
        fixed: dict[str, Value] = {
            "v": 2, "writer": self.writer, "incarnation": self.incarnation,
            "wseq": np.arange(self._wseq, self._wseq + len(order)),
        }  # fmt: skip
        filled = table("", rows.column("ts_us").to_numpy(), fixed)
        for name in fixed:
            rows = rows.set_column(SCHEMA.get_field_index(name), SCHEMA.field(name), filled.column(name))
        self._wseq += len(order)
        self._ready.append(rows)
        if sum(part.num_rows for part in self._ready) >= ROTATE_ROWS:
            self._write()

    def close(self) -> None:
        self.turn()
        if self._ready:
            self._write()

    def _write(self) -> None:
        rows, self._ready = pa.concat_tables(self._ready), []
        for begin in range(0, rows.num_rows, ROTATE_ROWS):
            part = rows.slice(begin, ROTATE_ROWS)
            path = self.folder / f"{self.writer}-{self.incarnation}-{self._k}.ledger.{self.form}"
            if self.form == "parquet":
                pq.write_table(part, path, compression="zstd", compression_level=3)
            else:
                path.write_bytes(json_lines(part))
            self._k += 1
            self.rows += part.num_rows


def json_lines(rows: pa.Table) -> bytes:
    """A line for each row, without its nulls. No string in these ledgers needs an escape."""
    pieces = []
    for name in rows.schema.names:
        column = rows.column(name).combine_chunks()
        quote = '"' if pa.types.is_string(column.type) else ""
        text = pc.binary_join_element_wise(f',"{name}":{quote}', column.cast(pa.string()), quote, "")
        pieces.append(pc.fill_null(text, ""))
    lines = pc.binary_join_element_wise(*pieces, "")
    lines = pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(lines, 1), "}\n", "")
    lines = lines.combine_chunks() if isinstance(lines, pa.ChunkedArray) else lines
    offsets = np.frombuffer(lines.buffers()[1], dtype=np.int32)
    begin, end = offsets[lines.offset], offsets[lines.offset + len(lines)]
    return bytes(memoryview(lines.buffers()[2])[begin:end])
