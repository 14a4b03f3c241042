"""Converts ledger lines to rows for the judge. Drops records that do not matter to a loss, and joins adjacent
ranges.

Runs in Spark's Python workers, on one stretch of one file. Order is kept where it matters: promotions,
inventories and ends are rows of their own, and ranges are not joined across them. `at` sorts the rows of one
writer. Invalid lines become rows, too, so that the judge sees lost records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from spark import schema as names
from spark.watch.tail import LINES, WHOLE, Stretch, stem

VERSIONS = (1, 2)
BARRIERS = frozenset({"open", "promote", "demote", "insync", "quiesce", "present", "seal", "definition"})
JOINED = frozenset(
    {"enqueue", "backup_enqueue", "confirmed", "unrouted", "duplicate", "dequeue", "backup_dequeue", "acked"}
)
BATCH = 50_000
"""Most rows in one Arrow batch."""

ROW = pa.schema(
    [(name, pa.string()) for name in ("kind", "writer", "queue", "reason", "prod", "name", "peer", "file")]
    + [
        (name, pa.int64())
        for name in ("incarnation", "at", "ts_us", "view", "epoch", "first", "last", "pfirst")
    ]
)
"""Columns of a row. `at` is the place in the writer's order: `wseq` of a barrier, or of the first record
after one.

`chain` rows have the record numbers first..last. `unreadable` and `vanished` rows have the file. `horizon`
rows have the id or tag up to which records were pruned.
"""
DDL = ", ".join(f"{field.name} {'string' if field.type == pa.string() else 'bigint'}" for field in ROW)

Row = dict[str, Any]
_TEXT = frozenset({"queue", "reason", "prod", "name", "peer"})


def read_stretch(stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """The rows of one stretch.

    A file that was compacted in the meantime is read whole in its new form. Records that come twice do no
    harm.
    """
    rows: list[Row] = []
    if stretch.replaced:
        rows.append({"kind": "replaced", "file": stretch.path, "writer": _writer_of(stretch.path)})
    for row in condense(_records(stretch), stretch.path, torn=stretch.torn):
        rows.append(row)
        if len(rows) >= BATCH:
            yield to_arrow(rows)
            rows = []
    if rows:
        yield to_arrow(rows)


def to_arrow(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=ROW)


def _records(stretch: Stretch) -> Iterator[Row | str | None]:
    """The records of a stretch: None for an invalid line, a string with the reason if reading fails."""
    try:
        if stretch.end != WHOLE:
            with open(stretch.path, "rb") as file:
                file.seek(stretch.start)
                yield from _parsed(file.read(stretch.end - stretch.start).splitlines())
        else:
            yield from _compacted(stretch.path)
    except FileNotFoundError:
        other = next((p for p in (stem(stretch.path) + s for s in _FORMS) if os.path.exists(p)), None)
        if other is None:
            yield "the file vanished before it was read"
        else:
            yield from _compacted(other)
    except (OSError, pa.ArrowException) as error:
        yield getattr(error, "strerror", None) or str(error).splitlines()[0]


_FORMS = (".ledger.parquet", ".ledger.jsonl.zst", LINES)


def _compacted(path: str) -> Iterator[Row | str | None]:
    if path.endswith(".parquet"):
        for batch in pq.ParquetFile(path).iter_batches(batch_size=BATCH):
            yield from batch.to_pylist()
    elif path.endswith(".zst"):
        with pa.input_stream(path, compression="zstd") as stream:
            yield from _parsed(stream.read().splitlines())
    else:
        with open(path, "rb") as file:
            yield from _parsed(file.read().splitlines())


def _parsed(lines: Iterable[bytes]) -> Iterator[Row | None]:
    loads = json.loads
    for line in lines:
        try:
            record = loads(line)
        except ValueError:
            record = None
        yield record if isinstance(record, dict) else None


def condense(records: Iterable[Row | str | None], path: str, *, torn: bool = False) -> Iterator[Row]:
    """The rows of these records, in order of `at`; the chains come last."""
    section = _Section(path, torn)
    for record in records:
        if isinstance(record, str):
            yield {"kind": "vanished", "file": path, "writer": _writer_of(path), "reason": record}
        elif record is None or not _is_record(record):
            section.unreadable += 1
        elif record["v"] not in VERSIONS:
            section.versions.add((record["writer"], record["incarnation"], record["v"]))
        else:
            yield from section.take(record)
    yield from section.end()


class _Section:
    """Collects the records between two barriers, by key, and the unbroken record numbers of each writer."""

    def __init__(self, path: str, torn: bool) -> None:
        self.path = path
        self.torn = torn
        self.unreadable = 0
        self.versions: set[tuple[str, int, int]] = set()
        self._pruned = ".pruned.ledger." in path
        self._rows: dict[tuple[Any, ...], Row] = {}
        self._done: list[Row] = []
        self._at = 0
        self._chains: list[Row] = []
        self._point: tuple[Any, ...] | None = ()

    def take(self, r: Row) -> Iterator[Row]:
        kind, wseq = r["kind"], r["wseq"]
        whole = kind == "pruned" and r.get("reason") is None
        self._chain(r, r["first"] if whole else wseq, wseq)
        if self._pruned and kind in names.MARKING_KINDS:
            yield from _horizons(r)
            return
        point = (r["writer"], r["incarnation"], r.get("name")) if kind == "quiesce" else None
        if self._point is not None and self._point != point:
            yield from self._flush(wseq)
            yield {**_head_of(r), "kind": "point-end", "at": wseq}
        self._point = point
        if kind in BARRIERS:
            yield from self._flush(wseq + 1)
            yield {**_head_of(r), "at": wseq, **{name: r.get(name) for name in _CARRIED}}
        elif kind in JOINED:
            prod = r.get("prod")
            if prod is not None and names.LINK.fullmatch(prod):
                r = {**r, "prod": None, "pfirst": None}  # no client waits for a confirm
            if kind == "duplicate":  # their queue has had them: no more is due to these tags
                r, kind = {**r, "prod": prod, "queue": None}, "unrouted"
            if kind != "unrouted" or r["prod"] is not None:
                self._join(r, kind, wseq)

    def _flush(self, at: int) -> Iterator[Row]:
        yield from self._done
        yield from self._rows.values()
        self._done, self._rows, self._at = [], {}, at

    def _join(self, r: Row, kind: str, wseq: int) -> None:
        reason, pfirst = r.get("reason"), r.get("pfirst")
        queue, prod = r.get("queue"), r.get("prod")
        first = r["first"]
        key = (r["writer"], r["incarnation"], kind, r["view"], queue, r.get("epoch"), prod, bool(reason))
        row = self._rows.get(key)
        if row is not None:
            follows = first == row["last"] + 1
            if follows and (pfirst is None or pfirst - first == row["pfirst"] - row["first"]):
                row["last"] = r["last"]
                return
            self._done.append(row)
        self._rows[key] = {
            "kind": kind, "writer": r["writer"], "incarnation": r["incarnation"], "ts_us": r["ts_us"],
            "at": self._at or wseq, "view": r["view"], "queue": queue, "epoch": r.get("epoch"),
            "first": first, "last": r["last"], "prod": prod, "pfirst": pfirst, "reason": reason,
        }  # fmt: skip
        self._at = self._at or wseq

    def _chain(self, r: Row, first: int, wseq: int) -> None:
        last = self._chains[-1] if self._chains else None
        whose = r["writer"], r["incarnation"]
        if last is not None and first == last["last"] + 1 and whose == (last["writer"], last["incarnation"]):
            last["last"], last["ts_us"] = wseq, r["ts_us"]
            return
        self._chains.append({
            **_head_of(r), "kind": "chain", "at": wseq, "first": first, "last": wseq, "epoch": r["v"],
            "file": self.path, "reason": "torn" if self.torn else None,
        })  # fmt: skip

    def end(self) -> Iterator[Row]:
        yield from self._flush(0)
        yield from self._chains
        if self.unreadable:
            writer = _writer_of(self.path)
            yield {
                "kind": "unreadable",
                "file": self.path,
                "writer": writer,
                "first": 1,
                "last": self.unreadable,
            }
        for writer, incarnation, version in sorted(self.versions):
            yield {"kind": "version", "writer": writer, "incarnation": incarnation, "first": version}


_CARRIED = ("queue", "epoch", "first", "last", "reason", "name", "peer")


def _horizons(r: Row) -> Iterator[Row]:
    """The last id and the last tag of a record in a pruned ledger."""
    head = {**_head_of(r), "kind": "horizon", "at": r["wseq"]}
    if r.get("queue") is not None:
        yield {**head, "queue": r["queue"], "epoch": r["epoch"], "last": r["last"]}
    if r.get("prod") is not None:
        run = r["kind"] in ("enqueue", "backup_enqueue")
        tag = (r.get("pfirst") or 0) + r["last"] - r["first"] if run else r["last"]
        yield {**head, "prod": r["prod"], "last": tag}


def _head_of(r: Row) -> Row:
    return {name: r[name] for name in ("kind", "writer", "incarnation", "ts_us", "view")}


def _is_record(r: Row) -> bool:
    """Whether `r` has the fields that its kind needs, with the right types, as in `reconcile`."""
    if type(r.get("v")) is int and r["v"] not in VERSIONS:
        return isinstance(r.get("writer"), str) and type(r.get("incarnation")) is int
    for name in ("v", "incarnation", "wseq", "ts_us"):
        if type(r.get(name)) is not int:
            return False
    if type(r.setdefault("view", 0)) is not int:
        return False
    kind = r.get("kind")
    if not isinstance(kind, str) or not isinstance(r.get("writer"), str):
        return False
    for name in ("first", "last", "pfirst", "epoch"):
        value = r.get(name)
        if value is not None and (type(value) is not int or abs(value) > names.GREATEST):
            return False
    if any(not isinstance(r.get(name) or "", str) for name in _TEXT):
        return False
    if kind in names.RANGE_KINDS:
        first, last = r.get("first"), r.get("last")
        if first is None or last is None or (first > last and kind != "quiesce"):
            return False
    if kind in names.QUEUE_KINDS and (r.get("queue") is None or r.get("epoch") is None):
        return False
    return kind not in names.PRODUCER_KINDS or r.get("prod") is not None


def _writer_of(path: str) -> str:
    """The writer by the file name, `<writer>-<incarnation>-<k>`, for lines that do not name it."""
    return unquote(os.path.basename(stem(path)).rsplit("-", 2)[0])
