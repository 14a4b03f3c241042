"""Ledgers as lists of plain dicts by process, and how they are written to files. Shares no code with the
writers."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.records import Process, Record, Records, remainder

VERSION = 2


@dataclass
class Ledgers(Records):
    """Records with true times. `write` adds record numbers and the error of each clock."""

    skew_us: dict[str, int] = field(default_factory=dict)
    """How far a writer's clock is ahead of true time."""
    torn: dict[Process, str] = field(default_factory=dict)
    """Text after the last whole line of a process."""
    dropped: dict[Process, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Record numbers that never reach the file."""

    def insert(self, process: Process, place: int, kind: str, *, like: Record, **fields: Any) -> Record:
        """Insert a record at `place`, with the time and view of `like`."""
        given = {key: value for key, value in fields.items() if value is not None}
        record = {"ts_us": like["ts_us"], "view": like["view"], "kind": kind, **given}
        self.records[process].insert(place, record)
        return record

    def cut(self, chosen: Iterable[Record], first: int, last: int) -> None:
        """Remove first..last from these records, and keep what remains of each in its place."""
        marked = {id(record) for record in chosen if record["first"] <= last and record["last"] >= first}
        for process, records in self.records.items():
            kept = [[r] if id(r) not in marked else remainder(r, first, last) for r in records]
            self.records[process] = [record for some in kept for record in some]

    def write(self, folder: Path, rng: random.Random) -> Path:
        """Write files of random length and form, named as the real writers name theirs."""
        folder.mkdir(parents=True, exist_ok=True)
        for (writer, incarnation), records in self.records.items():
            head = {"v": VERSION, "writer": writer, "incarnation": incarnation}
            skew, gone = self.skew_us.get(writer, 0), self.dropped.get((writer, incarnation), set())
            whole = [
                {**head, "wseq": wseq, **record, "ts_us": record["ts_us"] + skew}
                for wseq, record in enumerate(records)
                if wseq not in gone
            ]
            cuts = [rng.randrange(1, len(whole)) for _ in range(rng.randint(0, 2))] if len(whole) > 30 else []
            torn = self.torn.get((writer, incarnation), "")
            for k, (begin, end) in enumerate(pairwise(sorted({0, len(whole), *cuts}))):
                last = end == len(whole)
                form = "jsonl" if last else rng.choice(("jsonl", "jsonl", "zst", "parquet", "both"))
                stem = folder / f"{writer}-{incarnation}-{k}.ledger"
                write_file(stem, form, whole[begin:end], torn if last else "")
        return folder


LONGS = (
    "v", "incarnation", "wseq", "ts_us", "view", "epoch", "first", "last", "pfirst", "n", "durable", "number",
)  # fmt: skip
STRINGS = ("writer", "kind", "queue", "reason", "prod", "name", "peer")
COLUMNS = pa.schema([*((name, pa.int64()) for name in LONGS), *((name, pa.string()) for name in STRINGS)])


def write_file(stem: Path, form: str, records: list[Record], torn: str) -> None:
    """Write one file: `jsonl`, compacted (`zst`, `parquet`), or `both`.

    `both` is what a crash leaves between the compaction and the removal.
    """
    text = "".join(json.dumps(record) + "\n" for record in records) + torn
    if form in ("jsonl", "both"):
        stem.with_name(stem.name + ".jsonl").write_text(text)
    if form in ("parquet", "both"):
        table = pa.Table.from_pylist(records, schema=COLUMNS)
        pq.write_table(table, stem.with_name(stem.name + ".parquet"), compression="zstd")
    if form == "zst":
        with pa.output_stream(str(stem) + ".jsonl.zst", compression="zstd") as stream:
            stream.write(text.encode())
