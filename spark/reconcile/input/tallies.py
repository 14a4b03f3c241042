"""Packs the millions of records of clients that single checks need only if something is wrong.

Deliveries alternate between consumers, so one consumer's ranges hardly join. Confirms stay separate because
of their times. `condense` shelves both: it packs them into blocks, which only rare checks open (`unshelve`).

The sweep over ids must know how often each id was freshly received or acked, but not by whom. So `condense`
also emits the bare ranges by queue, epoch and stretch of ids, and `tally` joins those of all consumers.
Ranges that contain a sampled number, and the first and last receipts of each consumer, stay as they are,
because their times are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from spark import schema as names
from spark.reconcile.input.columns import Bools, Ints, dense, events, holds_sample, runs

STRETCH = 1 << 22
"""Number of ids of a queue and epoch that are tallied together."""
WIDE = 64
"""A range over more stretches than this cannot come from a client, and stays as it is."""
SHELVED_KINDS = frozenset({"confirmed", "received", "acked"})
TALLIED_KINDS = frozenset({"received", "acked"})
MANY_LAYERS = 8
TALLY = "kind string, queue string, epoch long, first long, last long"


def shelve(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split events of SHELVED_KINDS: those to keep, a block of the others, and the bare ranges of these."""
    first, last = _ints(batch, "first"), _ints(batch, "last")
    kept = holds_sample(first, last) | np.asarray(pc.is_valid(batch.column("reason")), dtype=bool)
    kept |= (last // STRETCH - first // STRETCH > WIDE) | _ends(batch)
    if kept.any():
        yield batch.filter(pa.array(kept))
    if kept.all():
        return
    others = batch.filter(pa.array(~kept))
    yield put_by(others, "shelved")
    tallied = pc.is_in(others.column("kind"), pa.array(sorted(TALLIED_KINDS)))
    if pc.any(tallied).as_py():
        yield _bare(others.filter(tallied))


def put_by(batch: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """Pack these events as a block into one event of the given kind."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_batch(batch)
    return events(1, {"kind": kind, "n": batch.num_rows, "packed": sink.getvalue().to_pybytes()})


def unshelve(packed: DataFrame, kind: str = "shelved") -> DataFrame:
    """EVENT_SCHEMA without `packed`: all events packed under this kind."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in batch.column(0).to_pylist():
                with pa.ipc.open_stream(block) as stream:
                    yield from stream

    shelved = packed.where(packed["kind"] == kind).select("packed")
    return shelved.mapInArrow(task, names.EVENT_SCHEMA).drop("packed")


def _ends(batch: pa.RecordBatch) -> Bools:
    """The first and the last fresh receipt of each consumer, queue and epoch, and its acks of these."""
    out = np.zeros(batch.num_rows, dtype=bool)
    kind, fresh = batch.column("kind"), pc.is_null(batch.column("reason"))
    received = np.flatnonzero(pc.and_(pc.equal(kind, "received"), fresh))
    if not len(received):
        return out
    code = _key(batch, ("writer", "incarnation", "queue", "epoch"))
    first, last, wseq = (_ints(batch, name) for name in ("first", "last", "wseq"))
    received = received[np.lexsort((wseq[received], code[received]))]
    starts, ends = runs(np.diff(code[received], prepend=-1) != 0)
    points = np.union1d(received[starts], received[ends])
    out[points] = True
    acked = np.flatnonzero(pc.equal(kind, "acked"))
    acked = acked[np.lexsort((first[acked], code[acked]))]
    for point in points:
        mine = acked[slice(*np.searchsorted(code[acked], [code[point], code[point] + 1]))]
        place = int(np.searchsorted(first[mine], first[point], side="right")) - 1
        if place >= 0 and last[mine[place]] >= first[point]:
            out[mine[place]] = True
    return out


def _key(batch: pa.RecordBatch, columns: Iterable[str]) -> Ints:
    """A number for each row, equal exactly if all columns are equal."""
    code = np.zeros(batch.num_rows, dtype=np.int64)
    for name in columns:
        column = batch.column(name).dictionary_encode()
        if len(column.dictionary) > 1 or column.indices.null_count:
            indices = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            code = dense(code * (len(column.dictionary) + 1) + indices + 1)
    return code


def _ints(batch: pa.RecordBatch, name: str) -> Ints:
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), dtype=np.int64)


def _bare(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`tally` events: name = kind, queue, epoch, first = number of the stretch, packed = pairs of int64."""
    code = _key(batch, ("kind", "queue", "epoch"))
    first, last, row = _cut(_ints(batch, "first"), _ints(batch, "last"))
    stretch = first // STRETCH
    key = dense(code[row] * (int(stretch.max()) + 1) + stretch)
    order = np.argsort(key, kind="stable")
    starts, ends = runs(np.diff(key[order], prepend=-1) != 0)
    pairs = np.stack([first[order], last[order]], axis=1)
    heads = pa.array(row[order[starts]])
    queue, epoch = batch.column("queue").take(heads), batch.column("epoch").take(heads)
    return events(len(starts), {
        "kind": "tally", "name": batch.column("kind").take(heads), "queue": queue, "epoch": epoch,
        "first": stretch[order[starts]],
        "packed": pa.array([pairs[a : b + 1].tobytes() for a, b in zip(starts, ends, strict=True)]),
    })  # fmt: skip


def _cut(first: Ints, last: Ints) -> tuple[Ints, Ints, Ints]:
    """Ranges cut at the ends of stretches, and the index of the range that each part comes from."""
    parts = last // STRETCH - first // STRETCH + 1
    row = np.repeat(np.arange(len(first)), parts)
    place = np.arange(len(row)) - np.repeat(np.cumsum(parts) - parts, parts)
    begin = (first[row] // STRETCH + place) * STRETCH
    return np.maximum(first[row], begin), np.minimum(last[row], begin + STRETCH - 1), row


def tally(packed: DataFrame) -> DataFrame:
    """kind, queue, epoch, first..last: ranges that cover each id as often as the records of all clients
    do."""

    def joined(table: pa.Table) -> pa.Table:
        pairs = np.concatenate([np.frombuffer(b, np.int64) for b in table.column("packed").to_pylist()])
        first, last = layers(pairs.reshape(-1, 2))
        named = {name: pa.repeat(table.column(name)[0], len(first)) for name in ("name", "queue", "epoch")}
        columns = {"kind": named["name"], "queue": named["queue"], "epoch": named["epoch"]}
        return pa.table({**columns, "first": first, "last": last})

    bare = packed.where("kind = 'tally'").select("name", "queue", "epoch", "first", "packed")
    return bare.groupBy("name", "queue", "epoch", "first").applyInArrow(joined, TALLY)


def layers(pairs: Ints) -> tuple[Ints, Ints]:
    """Ranges -> fewer ranges that cover every number equally often."""
    order = np.argsort(pairs[:, 0], kind="stable")
    first, last = pairs[order].T
    if (first[1:] > last[:-1]).all():
        starts, ends = runs(np.append(True, first[1:] != last[:-1] + 1))
        return first[starts], last[ends]
    at = np.concatenate([first, last + 1])
    steps = np.repeat(np.array([1, -1]), len(first))
    order = np.argsort(at, kind="stable")
    at, depth = at[order], np.cumsum(steps[order])
    if int(depth.max()) > MANY_LAYERS:
        return first, last
    out = []
    for layer in range(1, int(depth.max()) + 1):
        inside = (depth[:-1] >= layer) & (at[1:] > at[:-1])
        starts, ends = _stretches(inside, at)
        out.append((at[starts], at[ends + 1] - 1))
    return np.concatenate([a for a, _ in out]), np.concatenate([b for _, b in out])


def _stretches(inside: Bools, at: Ints) -> tuple[Ints, Ints]:
    """Indices at which stretches of touching segments with `inside` set begin and end."""
    places = np.flatnonzero(inside)
    if not len(places):
        return places, places
    starts, ends = runs(np.append(True, at[places[1:]] != at[places[:-1] + 1]))
    return places[starts], places[ends]


def receipt_hulls(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """`receipts` events: writer, incarnation, queue, epoch, ids first..last and least wseq of a stretch of
    fresh receipts; reason = tangled if an id followed a later one."""
    fresh = batch.filter(pc.is_null(batch.column("reason")))
    if not fresh.num_rows:
        return
    keys = ("writer", "incarnation", "queue", "epoch")
    code = _key(fresh, keys)
    order = np.lexsort((_ints(fresh, "wseq"), code))
    code, first, last = code[order], _ints(fresh, "first")[order], _ints(fresh, "last")[order]
    begins = np.diff(code, prepend=-1) != 0
    back = np.append(False, first[1:] <= last[:-1]) & ~begins
    starts, _ = runs(begins)
    tangled = np.logical_or.reduceat(back, starts)
    heads = pa.array(order[starts])
    yield events(len(starts), {
        **{name: fresh.column(name).take(heads) for name in (*keys, "wseq")}, "kind": "receipts",
        "first": first[starts], "last": np.maximum.reduceat(last, starts),
        "reason": np.where(tangled, "tangled", "plain"),
    })  # fmt: skip


def any_late(receipts: Iterable[Mapping[str, Any]]) -> bool:
    """Whether, by all `receipts` events, a consumer may have received an id after a later one."""
    by_key: dict[tuple[Any, ...], list[tuple[int, int, int]]] = {}
    for row in receipts:
        if row["reason"] == "tangled":
            return True
        key = row["writer"], row["incarnation"], row["queue"], row["epoch"]
        by_key.setdefault(key, []).append((row["wseq"], row["first"], row["last"]))
    for hulls in by_key.values():
        reach = -1
        for _, first, last in sorted(hulls):
            if first <= reach:
                return True
            reach = max(reach, last)
    return False
