"""Finds ledgers below folders, and has Spark's Python workers read them: files -> events, or records.

A task condenses pieces of files, in order, as it reads them, so Spark itself handles little data. Foreign
files are counted, never opened.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark import schema as names
from spark.reconcile.input import columns, condense, files, runs, tallies
from spark.reconcile.input.condense import condense_tables
from spark.reconcile.input.files import Piece, read_piece, record_batches

SUFFIXES = (".ledger.parquet", ".ledger.jsonl.zst", ".ledger.jsonl")
"""Forms of a ledger file. Of several forms with one stem the first is read; a crash left the others."""
PRUNED = re.compile(r"(.+)-(\d+)\.pruned\.ledger\..+")
"""A pruned file, which replaces the files of its ledger up to this number."""
PIECE_BYTES = 64 * 1024 * 1024
"""Files larger than this are read in pieces, if their form allows it."""
TASK_WEIGHT = 256 * 1024 * 1024
"""Bytes of JSON lines (or their equivalent) that a task reads."""
WEIGHTS = {".ledger.parquet": 16, ".ledger.jsonl.zst": 16, ".ledger.jsonl": 1}
"""Approximate bytes of JSON lines per byte of each form."""
LEAST_TASKS = 2


@dataclass(slots=True)
class Found:
    """The files below the given folders: ledgers to read, foreign files, copies, and names hidden from
    Spark."""

    ledgers: list[Path] = field(default_factory=list)
    ignored: int = 0
    copies: list[Path] = field(default_factory=list)
    hidden: list[Path] = field(default_factory=list)
    empty: list[Path] = field(default_factory=list)
    """Ledgers of zero bytes, which `ledgers` also lists."""
    older: list[Path] = field(default_factory=list)
    """Files that a compacted or pruned file replaces; not read."""


def find_ledgers(folders: Iterable[Path]) -> Found:
    """Search below each folder (or take a single file). A file reached twice counts once.

    A byte-for-byte copy of another file is left out: it would make every delivery look like a duplicate.
    Names that begin with `.` or `_` are invisible to Spark, and are reported as hidden.
    """
    found, seen = Found(), set[Path]()
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            real = Path(os.path.realpath(path))  # a loop of links is not a file
            if not real.is_file() or real in seen:
                continue
            seen.add(real)
            if not form_of(real.name):
                found.ignored += 1
            elif real.name.startswith((".", "_")):
                found.hidden.append(real)
            else:
                found.ledgers.append(real)
    every = sorted(found.ledgers, key=_along)
    found.ledgers = _without_pruned(_one_form_each(every))
    found.older = [path for path in every if path not in set(found.ledgers)]
    found.empty = [path for path in found.ledgers if not path.stat().st_size]
    found.copies = _copies(found.ledgers)
    found.ledgers = [path for path in found.ledgers if path not in set(found.copies)]
    return found


def _along(path: Path) -> tuple[str, str, int, str]:
    """Sort key: files of one ledger in the order of writing, so 10 follows 9."""
    stem, _, number = path.name.removesuffix(form_of(path.name)).removesuffix(".pruned").rpartition("-")
    return str(path.parent), stem, int(number) if number.isdigit() else -1, path.name


def _without_pruned(paths: list[Path]) -> list[Path]:
    """Keep the newest pruned file of each ledger and the files after it; a crash left the others."""
    horizon: dict[tuple[Path, str], int] = {}
    for path in paths:
        found = PRUNED.fullmatch(path.name)
        if found:
            key = path.parent, found[1]
            horizon[key] = max(int(found[2]), horizon.get(key, -1))
    kept = []
    for path in paths:
        stem, _, number = path.name.split(".ledger.")[0].removesuffix(".pruned").rpartition("-")
        end = horizon.get((path.parent, stem), -1) if number.isdigit() else -1
        if end < 0 or int(number) > end or (int(number) == end and PRUNED.fullmatch(path.name)):
            kept.append(path)
    return kept


def _one_form_each(paths: list[Path]) -> list[Path]:
    best: dict[tuple[Path, str], Path] = {}
    for path in sorted(paths, key=lambda p: SUFFIXES.index(form_of(p.name))):
        best.setdefault((path.parent, path.name.removesuffix(form_of(path.name))), path)
    kept = set(best.values())
    return [path for path in paths if path in kept]


def _copies(paths: list[Path]) -> list[Path]:
    by_size: dict[int, list[Path]] = defaultdict(list)
    for path in paths:
        by_size[path.stat().st_size].append(path)
    copies = []
    for size, group in by_size.items():
        digests: set[bytes] = set()
        for path in group if size and len(group) > 1 else []:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "blake2b").digest()
            if digest in digests:
                copies.append(path)
            digests.add(digest)
    return copies


def pieces(ledgers: Sequence[Path]) -> list[Piece]:
    """Files in pieces of about PIECE_BYTES of JSON lines (or their equivalent), in order."""
    out = []
    for path in ledgers:
        size, form = path.stat().st_size, form_of(path.name)
        count = max(1, -(-size * WEIGHTS[form] // PIECE_BYTES))
        if form == ".ledger.parquet":
            count = min(count, -(-size // PIECE_BYTES))
            out += [Piece(str(path), share, count) for share in range(max(1, count))]
        elif form == ".ledger.jsonl":
            width = -(-size // count)
            out += [
                Piece(str(path), begin, min(begin + width, size)) for begin in range(0, size, max(1, width))
            ]
        else:
            out.append(Piece(str(path), 0, size))
    return out


def form_of(name: str) -> str:
    """The file's suffix of SUFFIXES; "" if it is not a ledger."""
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")


def tasks(ledgers: Sequence[Path]) -> list[list[Piece]]:
    """Pieces in order, in groups of about equal weight."""
    every = pieces(ledgers)
    weights = [_weight(piece) for piece in every]
    count = min(len(every), max(LEAST_TASKS, -(-sum(weights) // TASK_WEIGHT)))
    out: list[list[Piece]] = [[] for _ in range(count)]
    before, total = 0, max(1, sum(weights))
    for piece, weight in zip(every, weights, strict=True):
        out[min(count - 1, before * count // total)].append(piece)
        before += weight
    return [group for group in out if group]


def _weight(piece: Piece) -> int:
    form = form_of(piece.path)
    size = (
        Path(piece.path).stat().st_size // piece.end if form == ".ledger.parquet" else piece.end - piece.begin
    )
    return size * WEIGHTS[form] + 1


def read_events(session: SparkSession, ledgers: Sequence[Path]) -> DataFrame:
    """EVENT_SCHEMA: the ledgers, condensed as they are read."""
    return session_map(session, tasks(ledgers), condense_tables, names.EVENT_SCHEMA)


def read_records(session: SparkSession, ledgers: Sequence[Path], *, files: bool = False) -> DataFrame:
    """RECORD_SCHEMA, one row per line. A line that is not a record has `_corrupt` and `_file` set.

    `files` sets `_file` in every row.
    """
    return session_map(session, tasks(ledgers), partial(record_batches, files=files), names.RECORD_SCHEMA)


def _send_by_value() -> None:
    """Send the code with the job: this package is not installed on the workers."""
    for module in (columns, condense, files, runs, names, tallies):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def session_map(
    session: SparkSession, groups: Sequence[Sequence[Piece]],
    work: Callable[[Iterable[tuple[Piece, pa.Table]]], Iterator[pa.RecordBatch]], schema: StructType,
) -> DataFrame:  # fmt: skip
    """The results of `work` on the records of each group; one task per group."""
    _send_by_value()

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield from work((piece, table) for piece in groups[place] for table in read_piece(piece))

    return session.range(0, len(groups), 1, max(1, len(groups))).mapInArrow(task, schema)
