"""Runs of enqueues: packed on the way in, unpacked only where their details matter.

A pair writes `enqueue` and `backup_enqueue` for every run of a producer. These are by far the most records,
and few of them join, because runs of several producers alternate. Nearly all need no closer look: all tags
were confirmed, and every in-sync node had acknowledged the position. `condense` packs them into a block of
columns for each stretch of records. Once the driver knows the confirmed tags and the missing acks, `expand`
turns the blocks into events:

* a run of interest stays as it is: `enqueue` or `backup_enqueue` with `prod`, `pfirst` and `n`;
* the others are joined by their ids, across publishers: the same kinds without `prod`, `pfirst` and `n`;
* `placed`: prod, first..last: publish tags of the joined runs; `sure`: queue, epoch, first..last: their ids,
  if confirmed.

A sum over all events of a kind thus counts every id as often as the records do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from spark import schema as names
from spark.reconcile.input.columns import (
    Bools,
    Frame,
    Ints,
    Long,
    Text,
    events,
    holds_sample,
    picked,
    runs,
    sort_by,
)

PACKED_KINDS = frozenset({"enqueue", "backup_enqueue"})

ID_KEYS = ("writer", "incarnation", "kind", "view", "queue", "epoch", "durable")
ORDER_KEYS = ("writer", "queue", "epoch", "prod")
PACKED = (
    "writer", "incarnation", "kind", "view", "wseq", "ts_us", "queue", "epoch", "first", "last", "pfirst",
    "prod", "n", "durable", "reason", "peer", "name", "number",
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class Spans:
    """Disjoint inclusive ranges, in order, for each key (a producer session or a view)."""

    by_key: Mapping[Any, tuple[Ints, Ints]]

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, int, int]]) -> Spans:
        """The union of ranges (key, first, last)."""
        gathered: dict[Any, list[tuple[int, int]]] = {}
        for key, first, last in rows:
            gathered.setdefault(key, []).append((first, last))
        return cls({key: union(np.array(pairs, dtype=np.int64)) for key, pairs in gathered.items()})

    def meets(self, key: object, first: Ints, last: Ints) -> Bools:
        """Which of the ranges first..last share a number with this key's."""
        if key not in self.by_key:
            return np.zeros(len(first), dtype=bool)
        begins, ends = self.by_key[key]
        place = np.searchsorted(begins, last, side="right") - 1
        return (place >= 0) & (ends[place] >= first)

    def covers(self, key: object, first: Ints, last: Ints) -> Bools:
        """Which of the ranges first..last lie completely within one range of this key."""
        if key not in self.by_key:
            return np.zeros(len(first), dtype=bool)
        begins, ends = self.by_key[key]
        place = np.searchsorted(begins, first, side="right") - 1
        return (place >= 0) & (ends[place] >= last)


def union(pairs: Ints) -> tuple[Ints, Ints]:
    """Ranges as rows of two -> disjoint ranges in order; touching ranges become one."""
    first, last = pairs[np.argsort(pairs[:, 0], kind="stable")].T
    reach = np.maximum.accumulate(last)
    begins = np.ones(len(first), dtype=bool)
    begins[1:] = first[1:] > reach[:-1] + 1
    starts, ends = runs(begins)
    return first[starts], reach[ends]


@dataclass(slots=True, frozen=True)
class Interest:
    """Which runs must stay as they are, and which tags were confirmed. Small, since every worker gets it."""

    confirmed: Spans
    """By session: the confirmed tags."""
    tags: Spans = field(default_factory=lambda: Spans({}))
    """By session: tags whose runs stay as they are."""
    positions: Spans = field(default_factory=lambda: Spans({}))
    """By view: positions whose runs stay as they are."""
    durable_positions: Spans = field(default_factory=lambda: Spans({}))
    """By view: positions whose `durable` runs stay as they are."""
    tangled: frozenset[tuple[str, str]] = frozenset()
    """Pairs of queue and session whose order is not plain: their runs stay as they are."""
    numbers: Spans = field(default_factory=lambda: Spans({}))
    """By queue and producer: numbers whose runs stay as they are."""
    everything: bool = False
    """Whether all runs stay as they are."""


def pack(frame: Frame, rows: Ints) -> pa.RecordBatch:
    """Pack these rows into one event of kind `packed`: narrow integers, and constant columns as one value."""
    arrays: dict[str, pa.Array] = {}
    said: dict[str, Any] = {}
    for name in PACKED:
        if name in names.LONG_FIELDS:
            long = frame.long(name).take(rows)
            if long.constant():
                said[name] = None if long.valid is not None and not long.valid.any() else int(long.values[0])
                continue
            base = int(long.values.min())
            wide = int(long.values.max()) - base >= 1 << 31
            narrow = long.values - base if wide else (long.values - base).astype(np.int32)
            arrays[name], said[name] = (
                pa.array(narrow, mask=None if long.valid is None else ~long.valid),
                base,
            )
        else:
            text = frame.text(name).take(rows)
            said[name] = [text.values[text.codes[0]]] if text.constant() else text.values
            if not text.constant():
                arrays[name] = pa.array(
                    text.codes.astype(np.int16) if len(text.values) < 1 << 15 else text.codes
                )
    block = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    block = block.replace_schema_metadata({"said": json.dumps([len(rows), said])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, block.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(block)
    return events(1, {"kind": "packed", "n": len(rows), "packed": sink.getvalue().to_pybytes()})


def unpack(packed: bytes) -> Frame:
    with pa.ipc.open_stream(packed) as stream:
        rows, said = json.loads(stream.schema.metadata[b"said"])
        block = stream.read_next_batch()
    longs, texts = {}, {}
    for name in PACKED:
        given = said[name]
        if name not in block.schema.names:
            if name in names.LONG_FIELDS:
                there = None if given is not None else np.zeros(rows, dtype=bool)
                longs[name] = Long(np.full(rows, -1 if given is None else given), there, True)
            else:
                code = 0 if given[0] is None else 1
                texts[name] = Text(np.full(rows, code, dtype=np.int32), [None, *given][: code + 1], True)
        elif name in names.LONG_FIELDS:
            column = block.column(name)
            valid = np.asarray(column.is_valid(), dtype=bool) if column.null_count else None
            values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) + given
            longs[name] = Long(values if valid is None else np.where(valid, values, -1), valid)
        else:
            texts[name] = Text(block.column(name).to_numpy().astype(np.int32), given)
    return Frame.of(rows, longs, texts)


def hulls(frame: Frame, rows: Ints) -> Iterator[pa.RecordBatch]:
    """`hull` events: writer, queue, epoch, prod, ids first..last, tags pfirst..n of a stretch of `enqueue` in
    which both rise from run to run; reason = tangled if not. Plain stretches cannot be findings of
    `order`."""
    rows = rows[(frame.valid("prod") & frame.valid("pfirst"))[rows]]
    if not len(rows):
        return
    code = frame.key(ORDER_KEYS, rows)
    order = sort_by(code)
    code, rows = code[order], rows[order]
    first, last, tag = frame.ints("first")[rows], frame.ints("last")[rows], frame.ints("pfirst")[rows]
    last_tag = tag + last - first
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = code[1:] != code[:-1]
    back = np.zeros(len(rows), dtype=bool)
    back[1:] = ~begins[1:] & ((first[1:] <= last[:-1]) | (tag[1:] <= last_tag[:-1]))
    starts, ends = runs(begins)
    tangled = np.logical_or.reduceat(back, starts)
    columns = picked(frame, rows[starts])
    yield events(len(starts), {
        **{name: columns[name] for name in ORDER_KEYS}, "kind": "hull",
        "first": first[starts], "last": last[ends], "pfirst": tag[starts], "n": last_tag[ends],
        "reason": np.where(tangled, "tangled", "plain"),
    })  # fmt: skip


def numbers(frame: Frame, rows: Ints) -> Iterator[pa.RecordBatch]:
    """`numbers` events of a stretch of `enqueue`: writer, queue, name (of a producer), its numbers
    first..last; n = how many. Those with reason = back: a run whose numbers are not above all before it. A
    number that a queue has twice is in two of these events."""
    rows = rows[frame.valid("number")[rows]]
    if not len(rows):
        return
    code = frame.key(("writer", "queue", "name"), rows)
    order = sort_by(code)
    code, rows = code[order], rows[order]
    first, size = frame.ints("number")[rows], (frame.ints("last") - frame.ints("first"))[rows]
    last = first + size
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = code[1:] != code[:-1]
    starts, ends = runs(begins)
    reach = _reach(code, last)
    back = np.zeros(len(rows), dtype=bool)
    back[1:] = ~begins[1:] & (first[1:] <= reach[:-1])
    columns = picked(frame, rows[starts])
    yield events(len(starts), {
        **{name: columns[name] for name in ("writer", "queue", "name")}, "kind": "numbers",
        "first": np.minimum.reduceat(first, starts), "last": reach[ends],
        "n": np.add.reduceat(size + 1, starts),
    })  # fmt: skip
    again = np.flatnonzero(back)
    if len(again):
        columns = picked(frame, rows[again])
        yield events(len(again), {
            **{name: columns[name] for name in ("writer", "queue", "name")}, "kind": "numbers",
            "first": first[again], "last": last[again], "reason": "back",
        })  # fmt: skip


def tangled_pairs(hull_rows: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """Pairs of queue and session in which, by all `hull` events, ids and tags may not rise together."""
    out: set[tuple[str, str]] = set()
    by_pair: dict[tuple[str, str], list[tuple[int, int, str, int, int, int]]] = {}
    for row in hull_rows:
        pair = row["queue"], row["prod"]
        if row["reason"] == "tangled":
            out.add(pair)
        hull = row["pfirst"], row["n"], row["writer"], row["epoch"], row["first"], row["last"]
        by_pair.setdefault(pair, []).append(hull)
    for pair, found in by_pair.items():
        reach: dict[tuple[str, int], int] = {}
        tags = -1
        for tag, last_tag, writer, epoch, first, last in sorted(found):
            if tag <= tags or first <= reach.get((writer, epoch), -1):
                out.add(pair)
            tags, reach[writer, epoch] = last_tag, last
    return frozenset(out)


def expand(events: DataFrame, interest: Interest) -> DataFrame:
    """EVENT_SCHEMA without `packed`: the packed runs, unpacked as far as `interest` requires."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in batch.column(0).to_pylist():
                yield from expand_block(block, interest)

    packed = events.where("kind = 'packed'").select("packed")
    return packed.mapInArrow(task, names.EVENT_SCHEMA).drop("packed")


def expand_block(block: bytes, interest: Interest) -> Iterator[pa.RecordBatch]:
    """The events of one packed block."""
    frame = unpack(block)
    kept, sure = _judge(frame, interest)
    if kept.any():
        yield events(int(kept.sum()), picked(frame, np.flatnonzero(kept)))
    plain = np.flatnonzero(~kept)
    if not len(plain):
        return
    first, last = frame.ints("first"), frame.ints("last")
    yield _joined(frame, plain, ID_KEYS, first, last, times=True)
    certain = plain[sure[plain]]
    if len(certain):
        yield _joined(frame, certain, ("queue", "epoch"), first, last, kind="sure")
    named = plain[(frame.valid("prod") & frame.valid("pfirst"))[plain]]
    if len(named):
        tag = frame.ints("pfirst")
        yield _joined(frame, named, ("prod",), tag, tag + last - first, kind="placed")


def _judge(frame: Frame, interest: Interest) -> tuple[Bools, Bools]:
    """Rows that stay as they are; rows with every tag confirmed."""
    kept, sure = np.full(frame.rows, interest.everything), np.zeros(frame.rows, dtype=bool)
    first, last, tag = frame.ints("first"), frame.ints("last"), frame.ints("pfirst")
    last_tag = tag + last - first
    named = frame.valid("prod") & frame.valid("pfirst")
    for rows, prod in _groups(frame, ("prod",), np.flatnonzero(named)):
        a, b = tag[rows], last_tag[rows]
        sure[rows] = interest.confirmed.covers(prod, a, b)
        partly = interest.confirmed.meets(prod, a, b) & ~sure[rows]
        kept[rows] |= partly | interest.tags.meets(prod, a, b)
    for rows, view in _groups(frame, ("view",), np.flatnonzero(frame.valid("n"))):
        n = frame.ints("n")[rows]
        kept[rows] |= interest.positions.meets(view, n, n)
        lacking = interest.durable_positions.meets(view, n, n)
        kept[rows] |= lacking & (frame.ints("durable")[rows] == 1)
    for queue, prod in interest.tangled:
        if queue in frame.text("queue").values and prod in frame.text("prod").values:
            kept |= frame.among("queue", {queue}) & frame.among("prod", {prod})
    if interest.numbers.by_key:
        kept |= _of_numbers(frame, interest.numbers)
    sampled = holds_sample(first, last) | holds_sample(tag, last_tag)
    return kept | (sampled & named & frame.among("kind", {"enqueue"})), sure


def _of_numbers(frame: Frame, wanted: Spans) -> Bools:
    """Rows with a number of these, by queue and producer."""
    found = np.zeros(frame.rows, dtype=bool)
    numbered = frame.valid("number")
    queues, producers = set(frame.text("queue").values), set(frame.text("name").values)
    for queue, name in wanted.by_key:
        if queue in queues and name in producers:
            mine = frame.among("queue", {queue}) & frame.among("name", {name}) & numbered
            rows = np.flatnonzero(mine)
            number = frame.ints("number")[rows]
            size = (frame.ints("last") - frame.ints("first"))[rows]
            found[rows] = wanted.meets((queue, name), number, number + size)
    return found


def _groups(frame: Frame, keys: tuple[str, ...], rows: Ints) -> Iterator[tuple[Ints, Any]]:
    """Groups of rows with equal keys, and the value of the first key."""
    if not len(rows):
        return
    code = frame.key(keys, rows)
    order = sort_by(code)
    code, rows = code[order], rows[order]
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = code[1:] != code[:-1]
    starts, ends = runs(begins)
    for start, end in zip(starts, ends, strict=True):
        mine = rows[start : end + 1]
        text = keys[0] not in names.LONG_FIELDS
        value = frame.text(keys[0]).arrow(mine[:1]) if text else frame.long(keys[0]).arrow(mine[:1])
        yield mine, value[0].as_py()


def _joined(
    frame: Frame, rows: Ints, keys: tuple[str, ...], first: Ints, last: Ints, *, kind: str | None = None,
    times: bool = False,
) -> pa.RecordBatch:  # fmt: skip
    """Ranges of these rows by key: with `times` joined but keeping multiplicity, otherwise their union."""
    code = frame.key(keys, rows)
    order = sort_by(code, first[rows])
    code, rows = code[order], rows[order]
    a, b = first[rows], last[rows]
    begins = np.ones(len(rows), dtype=bool)
    if times:
        begins[1:] = (code[1:] != code[:-1]) | (a[1:] != b[:-1] + 1)
        starts, ends = runs(begins)
        reach = b[ends]
    else:
        base = code * (np.int64(names.GREATEST) * 2)
        along = (
            np.maximum.accumulate(b + base) - base if len(code) and int(code.max()) < 256 else _reach(code, b)
        )
        begins[1:] = (code[1:] != code[:-1]) | (a[1:] > along[:-1] + 1)
        starts, ends = runs(begins)
        reach = along[ends]
    columns = picked(frame, rows[starts])
    made: dict[str, object] = {name: columns[name] for name in keys}
    made |= {"first": a[starts], "last": reach}
    if times:
        when = frame.ints("ts_us")[rows]
        made |= {
            "wseq": np.minimum.reduceat(frame.ints("wseq")[rows], starts),
            "ts_us": np.minimum.reduceat(when, starts),
            "ts_last_us": np.maximum.reduceat(when, starts),
        }  # fmt: skip
    return events(len(starts), made | ({"kind": kind} if kind else {}))


def _reach(code: Ints, last: Ints) -> Ints:
    """The greatest `last` so far within each code; codes in order."""
    out = np.empty_like(last)
    starts, ends = runs(np.diff(code, prepend=code[0] - 1) != 0)
    for start, end in zip(starts, ends, strict=True):
        out[start : end + 1] = np.maximum.accumulate(last[start : end + 1])
    return out
