"""Finds the file that holds, or should hold, a record of a writer, for sentences that an operator can act on.

It reads the first record of a file only on demand, that is, when records are missing.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from spark.reconcile.ledgers.state import Process

NAME = re.compile(r"(?P<writer>.+)-(?P<incarnation>\d+)-(?P<number>\d+)\.(?:pruned\.)?ledger\.")
"""The name of a ledger file: `<writer>-<incarnation>-<k>.ledger.<form>`."""


class Places:
    """The files of each process, with their numbers and the first `wseq` of each."""

    def __init__(self, ledgers: Iterable[Path]) -> None:
        self._files: dict[tuple[str, int], list[tuple[int, Path]]] = defaultdict(list)
        for path in ledgers:
            named = NAME.match(path.name)
            if named:
                process = unquote(named["writer"]), int(named["incarnation"])
                self._files[process].append((int(named["number"]), path))
        self._heads: dict[Path, int | None] = {}

    def of_gap(self, writer: str, incarnation: int, first: int, last: int) -> str:
        """Where records first..last should be: in a file, between two files, or in a missing file. Returns ""
        if the file names do not show it."""
        before, after = (
            self._holds(writer, incarnation, first - 1),
            self._holds(writer, incarnation, last + 1),
        )
        if before is None and after is None:
            return ""
        if before is None or after is None or before == after:
            file = before or after
            return f"in {file[1].name}" if file else ""
        if after[0] > before[0] + 1:
            stem = after[1].name.split(".ledger.")[0].rsplit("-", 1)[0]
            absent = [f"{stem}-{number}" for number in range(before[0] + 1, after[0])]
            more = f" and {len(absent) - 1} more files" if len(absent) > 1 else ""
            return f"file {absent[0]}{more} of that ledger is not here"
        return f"between {before[1].name} and {after[1].name}"

    def _holds(self, writer: str, incarnation: int, wseq: int) -> tuple[int, Path] | None:
        """The file that would hold this record: the last one that begins no later."""
        found = None
        for number, path in sorted(self._files[writer, incarnation]):
            head = self._head(path)
            if wseq >= 0 and head is not None and head <= wseq:
                found = number, path
        return found

    def _head(self, path: Path) -> int | None:
        if path not in self._heads:
            self._heads[path] = first_wseq(path)
        return self._heads[path]


def first_wseq(path: Path) -> int | None:
    """Number of the first record of a ledger file; None if it cannot be read."""
    found = _first(path, "wseq")
    return int(found[0]) if found else None


def process_of(path: Path) -> Process | None:
    """The process whose ledger this file is of, by its name or its first record; None: it cannot be read."""
    named = NAME.match(path.name)
    if named:
        return unquote(named["writer"]), int(named["incarnation"])
    found = _first(path, "writer", "incarnation")
    return (str(found[0]), int(found[1])) if found else None


def _first(path: Path, *fields: str) -> list[Any] | None:
    """Fields of the first record; None if it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix == ".parquet":
            rows = next(pq.ParquetFile(path).iter_batches(1, columns=list(fields))).to_pylist()
            return [rows[0][name] for name in fields]
        with pa.input_stream(str(path), compression="zstd" if path.suffix == ".zst" else None) as stream:
            head = stream.read(1 << 16)
        record = json.loads(head.split(b"\n", 1)[0])
        return [record[name] for name in fields]
    except (OSError, ValueError, KeyError, TypeError, IndexError, StopIteration, pa.ArrowException):
        return None
