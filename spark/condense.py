"""Records -> events: adjacent ranges of one writer become one row, and each batch is summed up.

Runs in Spark's Python workers on Arrow batches (`mapInArrow`), where the records of a file arrive in the
order in which they were written. Joining keeps multiplicity and order: only a range that begins right
after the previous one of its kind ends is joined to it, so an id recorded twice stays counted twice.

Besides the joined events it emits summaries, whose sizes do not grow with the number of ids:

* `chain`: writer, incarnation, first..last = `wseq` numbers seen without a hole;
* `span`: writer, incarnation, view, name = a kind of record: n = how many, from ts_us to ts_last_us;
* `rate`: name = sent | confirmed | received, first = time slot (RATE_BUCKET_US since 1970), n = ids in it;
* `pulse`: from ts_us to ts_last_us confirms arrived without a pause longer than PULSE_SLACK_US;
* `malformed`: a line that is no record; name = its file, reason = what is wrong;
* `version`: n records with another schema version, name = that version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schema as names

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

EVENTS: pa.Schema = to_arrow_schema(names.EVENT_SCHEMA)
CARRIED = [name for name in EVENTS.names if name != "ts_last_us"]
MERGE_KEYS = ("writer", "incarnation", "kind", "view", "queue", "epoch", "reason", "prod", "peer", "name")


def condense(records: DataFrame) -> DataFrame:
    """RECORD_SCHEMA -> EVENT_SCHEMA. The code travels to the workers by value: nothing to install there."""
    import spark.condense
    import spark.schema

    for module in (spark.condense, spark.schema):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return records.mapInArrow(condense_batches, names.EVENT_SCHEMA)


def condense_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What `mapInArrow` calls, once for each partition."""
    for batch in batches:
        if batch.num_rows:
            yield from condense_batch(batch)


def condense_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    good, bad, alien = _sort_out(batch)
    yield from (bad, alien)
    if not good.num_rows:
        return
    kinds = good.column("kind")
    merged = pc.is_in(kinds, pa.array(names.MERGED_KINDS))
    if pc.any(merged).as_py():
        yield _merge(good.filter(merged))
    if not pc.all(merged).as_py():
        rest = good.filter(pc.invert(merged))
        yield _events(rest.num_rows, {name: rest.column(name) for name in CARRIED})
    yield _chains(good)
    yield _spans(good)
    yield from _rates(good)
    confirmed = good.filter(pc.equal(kinds, "confirmed"))
    if confirmed.num_rows:
        yield _pulses(confirmed)


def _events(rows: int, columns: dict[str, object]) -> pa.RecordBatch:
    """A batch of EVENT_SCHEMA; what is not given is null. A single string or number fills its column."""
    arrays = []
    for field in EVENTS:
        given = columns.get(field.name)
        if given is None:
            arrays.append(pa.nulls(rows, field.type))
        elif isinstance(given, str | int):
            arrays.append(pa.repeat(pa.scalar(given, field.type), rows))
        elif isinstance(given, pa.Array):
            arrays.append(given.cast(field.type))
        else:
            arrays.append(pa.array(given, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS)


def _sort_out(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch, pa.RecordBatch]:
    """Split into records this job understands, `malformed` and `version` events."""

    def has(*columns: str) -> Bools:
        out = np.ones(batch.num_rows, dtype=bool)
        for name in columns:
            out &= batch.column(name).is_valid().to_numpy(zero_copy_only=False)
        return out

    def kind_in(kinds: Iterable[str]) -> Bools:
        found = pc.is_in(batch.column("kind"), pa.array(sorted(kinds), pa.string()))
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)

    unreadable = has(names.CORRUPT)
    header = has("v", "writer", "incarnation", "wseq", "ts_us", "kind") & ~unreadable
    alien = header & (_ints(batch, "v") != names.VERSION)
    body = has("first", "last") | ~kind_in(names.RANGE_KINDS)
    body &= has("queue", "epoch") | ~kind_in(names.QUEUE_KINDS)
    body &= has("prod") | ~kind_in(names.PRODUCER_KINDS)
    backwards = (_ints(batch, "first") > _ints(batch, "last")) & kind_in(names.RANGE_KINDS - {"quiesce"})
    for name in ("first", "last", "pfirst"):
        backwards |= np.abs(_ints(batch, name).astype(np.float64)) > names.GREATEST
    good = header & ~alien & body & ~backwards
    wrong = ~good & ~alien
    bad = batch.filter(pa.array(wrong))
    why = np.where(header, "fields missing, reversed or beyond reason", "no header")
    why = np.where(unreadable, "not a JSON record", why)
    malformed = _events(bad.num_rows, {
        "kind": "malformed", "name": bad.column(names.FILE), "reason": why[wrong],
        "writer": bad.column("writer"), "incarnation": bad.column("incarnation"), "wseq": bad.column("wseq"),
    })  # fmt: skip
    others, counts = np.unique(_ints(batch, "v")[alien], return_counts=True)
    version = _events(len(others), {"kind": "version", "name": others.astype(str), "n": counts})
    return batch.filter(pa.array(good)), malformed, version


def _ints(batch: pa.RecordBatch, name: str) -> Ints:
    """A column as int64, nulls as -1."""
    return np.asarray(batch.column(name).fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _codes(batch: pa.RecordBatch, columns: Iterable[str], extra: Ints | None = None) -> Ints:
    """One number a row: equal exactly where all `columns` (null equals null) and `extra` are equal."""
    code = np.zeros(batch.num_rows, dtype=np.int64)
    parts = [batch.column(name).dictionary_encode().indices.fill_null(-1) for name in columns]
    indices = [np.asarray(part.to_numpy(zero_copy_only=False), dtype=np.int64) + 1 for part in parts]
    for index in indices if extra is None else [*indices, extra - extra.min()]:
        width = int(index.max()) + 1
        if int(code.max()) > (1 << 62) // width:
            code = np.unique(code, return_inverse=True)[1].astype(np.int64)
        code = code * width + index
    return code


def _runs(begins: Bools) -> tuple[Ints, Ints]:
    """Indices at which runs begin and end, from a mask of the rows that begin one."""
    starts = np.flatnonzero(begins)
    return starts, np.append(starts[1:], len(begins)) - 1


def _merge(batch: pa.RecordBatch) -> pa.RecordBatch:
    slot = np.where(
        np.asarray(pc.equal(batch.column("kind"), "confirmed").to_numpy(zero_copy_only=False), dtype=bool),
        _ints(batch, "ts_us") // names.CONFIRM_SLOT_US,
        0,
    )
    code = _codes(batch, MERGE_KEYS, np.unique(slot, return_inverse=True)[1].astype(np.int64))
    order = np.argsort(code, kind="stable")
    code = code[order]
    first, last = _ints(batch, "first")[order], _ints(batch, "last")[order]
    unknown = batch.column("pfirst").is_null().to_numpy(zero_copy_only=False)[order]
    offset = np.where(unknown, np.iinfo(np.int64).min, _ints(batch, "pfirst")[order] - first)
    begins = np.ones(batch.num_rows, dtype=bool)
    begins[1:] = (code[1:] != code[:-1]) | (first[1:] != last[:-1] + 1) | (offset[1:] != offset[:-1])
    starts, ends = _runs(begins)
    head = batch.take(pa.array(order[starts]))
    columns: dict[str, object] = {name: head.column(name) for name in CARRIED}
    columns["last"] = last[ends]
    columns["ts_last_us"] = _ints(batch, "ts_us")[order][ends]
    return _events(len(starts), columns)


def _chains(batch: pa.RecordBatch) -> pa.RecordBatch:
    code = _codes(batch, ("writer", "incarnation"))
    order = np.argsort(code, kind="stable")
    code, wseq = code[order], _ints(batch, "wseq")[order]
    begins = np.ones(batch.num_rows, dtype=bool)
    begins[1:] = (code[1:] != code[:-1]) | (wseq[1:] != wseq[:-1] + 1)
    starts, ends = _runs(begins)
    head = batch.take(pa.array(order[starts]))
    return _events(len(starts), {
        "kind": "chain", "writer": head.column("writer"), "incarnation": head.column("incarnation"),
        "first": wseq[starts], "last": wseq[ends],
    })  # fmt: skip


def _spans(batch: pa.RecordBatch) -> pa.RecordBatch:
    code = _codes(batch, ("writer", "incarnation", "view", "kind"))
    order = np.argsort(code, kind="stable")
    code, when = code[order], _ints(batch, "ts_us")[order]
    begins = np.ones(batch.num_rows, dtype=bool)
    begins[1:] = code[1:] != code[:-1]
    starts, ends = _runs(begins)
    head = batch.take(pa.array(order[starts]))
    return _events(len(starts), {
        "kind": "span", "writer": head.column("writer"), "incarnation": head.column("incarnation"),
        "view": head.column("view"), "name": head.column("kind"), "n": ends - starts + 1,
        "ts_us": np.minimum.reduceat(when, starts), "ts_last_us": np.maximum.reduceat(when, starts),
    })  # fmt: skip


def _rates(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for kind in ("sent", "confirmed", "received"):
        rows = batch.filter(pc.equal(batch.column("kind"), kind))
        if rows.num_rows:
            slots, index = np.unique(_ints(rows, "ts_us") // names.RATE_BUCKET_US, return_inverse=True)
            ids = np.bincount(index, weights=_ints(rows, "last") - _ints(rows, "first") + 1)
            counts = ids.astype(np.int64)
            yield _events(len(slots), {"kind": "rate", "name": kind, "first": slots, "n": counts})


def _pulses(batch: pa.RecordBatch) -> pa.RecordBatch:
    when = np.sort(_ints(batch, "ts_us"))
    begins = np.ones(len(when), dtype=bool)
    begins[1:] = when[1:] - when[:-1] > names.PULSE_SLACK_US
    starts, ends = _runs(begins)
    return _events(len(starts), {"kind": "pulse", "ts_us": when[starts], "ts_last_us": when[ends]})
