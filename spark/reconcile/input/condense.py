"""Records -> events: joins adjacent ranges of one writer into one row, and sums up each stretch of records.

Runs in Spark's Python workers (`mapInArrow`), on some hundred thousand records at a time, in the order of
writing. Joining keeps multiplicity: an id recorded twice counts twice. `received` also keeps the order of
arrival. Other kinds are sorted by range first, so that ranges recorded out of order join, too. A joined event
has the least `wseq` and `ts_us`, and as `ts_last_us` the greatest. `runs` packs `enqueue` and
`backup_enqueue`; `tallies` packs most records of clients.

It also emits summaries, whose sizes do not grow with the number of ids:

* `chain`: writer, incarnation, first..last = `wseq` numbers seen without a gap;
* `span`: writer, incarnation, view, name = kind of record: n = their number, from ts_us to ts_last_us;
  reason = pruned: they come from a pruned file;
* `measured`: a block (`tallies.unshelve`) of events whose number grows with the time covered:
  `rate`: name = sent | confirmed | received, first = time slot (RATE_BUCKET_US since 1970), n = ids in it;
  `pulse`: confirms arrived from ts_us to ts_last_us without a pause longer than PULSE_SLACK_US;
* `answered`: `confirmed` ranges, joined whatever their time;
* `horizon`: an id (queue, epoch, last) or a tag (prod, last) up to which records were pruned, name = kind of
  the record; all ids and tags in a pruned file are of this sort;
* `malformed`: an invalid line; name = its file, reason = what is wrong;
* `version`: n records with another schema version, name = that version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark import schema as names
from spark.reconcile.input.columns import Bools, Frame, Ints, events, holds_sample, picked, runs, sort_by
from spark.reconcile.input.runs import PACKED_KINDS, hulls, numbers, pack
from spark.reconcile.input.tallies import SHELVED_KINDS, put_by, receipt_hulls, shelve

if TYPE_CHECKING:
    from spark.reconcile.input.files import Piece

CONDENSE_ROWS = 400_000
"""Number of records condensed at once. With more, more of them join, but more memory is needed."""

MERGE_KEYS = (
    "writer", "incarnation", "kind", "view", "queue", "epoch", "reason", "prod", "peer", "name", "durable",
)  # fmt: skip
DROPPED_KINDS = frozenset({"heartbeat"})
"""Kinds that are counted, but not passed on."""


def condense_tables(tables: Iterable[tuple[Piece, pa.Table]]) -> Iterator[pa.RecordBatch]:
    """Records of pieces, with coded strings (`files`) -> EVENT_SCHEMA, gathered to CONDENSE_ROWS."""
    gathered: list[pa.Table] = []
    rows = 0
    for piece, table in tables:
        if piece.pruned:
            yield from condense_frame(Frame(table), pruned=True)
            continue
        if rows and rows + table.num_rows > CONDENSE_ROWS:
            yield from condense_frame(Frame(pa.concat_tables(gathered)))
            gathered, rows = [], 0
        gathered.append(table)
        rows += table.num_rows
    if rows:
        yield from condense_frame(Frame(pa.concat_tables(gathered)))


def condense_frame(every: Frame, *, pruned: bool = False) -> Iterator[pa.RecordBatch]:
    """The events of one frame. `pruned`: it comes from a pruned file, whose ids and tags are horizons."""
    good, wrong, alien = _sort_out(every)
    if wrong.any():
        yield _malformed(every, wrong)
    if alien.any():
        others, counts = np.unique(every.ints("v")[alien], return_counts=True)
        yield events(len(others), {"kind": "version", "name": others.astype(str), "n": counts})
    frame = every if good.all() else every.take(np.flatnonzero(good))
    if not frame.rows:
        return
    yield _chains(frame)
    yield _spans(frame, pruned=pruned)
    if pruned:
        marks = frame.among("kind", names.MARKING_KINDS)
        yield from _horizons(frame, np.flatnonzero(marks))
        frame = frame.take(np.flatnonzero(~marks))
    if frame.rows:
        yield from _records(frame)
        yield from _measures(frame)


def _measures(frame: Frame) -> Iterator[pa.RecordBatch]:
    measured = list(_rates(frame))
    confirmed = np.flatnonzero(frame.among("kind", {"confirmed"}))
    if len(confirmed):
        yield _merge(frame, confirmed, kind="answered")
        measured.append(_pulses(frame, confirmed))
    if measured:
        yield put_by(pa.concat_batches(measured), "measured")


def _records(frame: Frame) -> Iterator[pa.RecordBatch]:
    packed, merged = frame.among("kind", PACKED_KINDS), frame.among("kind", names.MERGED_KINDS)
    ordered = frame.among("kind", {"received"})
    if packed.any():
        yield pack(frame, np.flatnonzero(packed))
        given = np.flatnonzero(frame.among("kind", {"enqueue"}))
        yield from hulls(frame, given)
        if frame.has("number"):
            yield from numbers(frame, given)
    shelved = frame.among("kind", SHELVED_KINDS) & ~ordered
    noted = []
    if ordered.any():
        noted.append(_merge(frame, np.flatnonzero(ordered), keep_order=True))
        yield from receipt_hulls(noted[0])
    if shelved.any():
        noted.append(_merge(frame, np.flatnonzero(shelved)))
    if noted:
        yield from shelve(pa.concat_batches(noted))
    joined = merged & ~ordered & ~shelved
    if joined.any():
        yield _merge(frame, np.flatnonzero(joined))
    rest = ~merged & ~packed & ~frame.among("kind", DROPPED_KINDS)
    if rest.any():
        yield events(int(rest.sum()), {**picked(frame, np.flatnonzero(rest)), "ts_last_us": None})


def _horizons(frame: Frame, rows: Ints) -> Iterator[pa.RecordBatch]:
    queued = rows[frame.valid("queue")[rows]]
    run = frame.among("kind", PACKED_KINDS)
    tagged = rows[(frame.valid("prod") & (~run | frame.valid("pfirst")))[rows]]
    last = frame.ints("last")
    tags = np.where(run, frame.ints("pfirst") + last - frame.ints("first"), last)
    for mine, by, upto in ((queued, ("queue", "epoch"), last), (tagged, ("prod",), tags)):
        if len(mine):
            given = picked(frame, mine)
            named = {name: given[name] for name in ("writer", "incarnation", *by)} | {"name": given["kind"]}
            yield events(len(mine), {"kind": "horizon", **named, "first": upto[mine], "last": upto[mine]})


def _sort_out(frame: Frame) -> tuple[Bools, Bools, Bools]:
    """Valid rows; invalid rows; rows of another schema version."""

    def lacks(*columns: str) -> Bools:
        out = np.zeros(frame.rows, dtype=bool)
        for name in columns:
            if not frame.whole(name):
                out |= ~frame.valid(name)
        return out

    wrong = lacks("v", "writer", "incarnation", "wseq", "ts_us", "kind")
    if frame.has(names.CORRUPT):
        wrong |= frame.valid(names.CORRUPT)
    alien = ~wrong & ~np.isin(frame.ints("v"), names.VERSIONS)
    ranged = frame.among("kind", names.RANGE_KINDS)
    unfit = lacks("first", "last") & ranged
    unfit |= lacks("queue", "epoch") & frame.among("kind", names.QUEUE_KINDS)
    unfit |= lacks("prod") & frame.among("kind", names.PRODUCER_KINDS)
    unfit |= (frame.ints("first") > frame.ints("last")) & ranged & ~frame.among("kind", {"quiesce"})
    for name in ("first", "last", "pfirst"):
        unfit |= (frame.ints(name) > names.GREATEST) | (frame.ints(name) < -names.GREATEST)
    unfit |= frame.ints("number") > names.GREATEST_NUMBER
    wrong |= unfit & ~alien
    return ~wrong & ~alien, wrong, alien


def _malformed(frame: Frame, wrong: Bools) -> pa.RecordBatch:
    rows = np.flatnonzero(wrong)
    headed = np.ones(frame.rows, dtype=bool)
    for name in ("v", "writer", "incarnation", "wseq", "ts_us", "kind"):
        headed &= frame.valid(name)
    why = np.where(headed, "fields missing, reversed or out of range", "no header").astype(object)
    corrupt = frame.valid(names.CORRUPT)
    why[corrupt] = "not a JSON record"
    why[frame.among(names.CORRUPT, {names.NOT_PARQUET})] = names.NOT_PARQUET
    given = picked(frame, rows)
    return events(len(rows), {
        "kind": "malformed", "name": frame.text(names.FILE).arrow(rows), "reason": why[rows],
        **{name: given[name] for name in ("writer", "incarnation", "wseq")},
    })  # fmt: skip


def _slots(frame: Frame, rows: Ints) -> Ints:
    """The time slot of each row, since ranges of different slots are not joined. The width depends on the
    kind.

    Kinds without a width are joined whatever their time.
    """
    out = np.zeros(len(rows), dtype=np.int64)
    when = frame.ints("ts_us")[rows]
    for kind, width in names.SLOTS_US.items():
        mine = frame.among("kind", {kind})[rows]
        out[mine] = when[mine] // width
    return out


def _merge(frame: Frame, rows: Ints, *, keep_order: bool = False, kind: str | None = None) -> pa.RecordBatch:
    """Join adjacent ranges of one key. With a new `kind`, they are joined whatever their time."""
    extra = [] if kind else [_slots(frame, rows)]
    code = frame.key(MERGE_KEYS, rows, *extra)
    order = sort_by(code, None if keep_order else frame.ints("first")[rows])
    code, rows = code[order], rows[order]
    first, last, when = frame.ints("first")[rows], frame.ints("last")[rows], frame.ints("ts_us")[rows]
    begins = np.ones(len(rows), dtype=bool)
    begins[1:] = (code[1:] != code[:-1]) | (first[1:] != last[:-1] + 1)
    for name in ("pfirst", "number"):
        if frame.has(name):
            other = frame.valid(name)[rows]
            offset = np.where(other, frame.ints(name)[rows] - first, np.iinfo(np.int64).min)
            begins[1:] |= offset[1:] != offset[:-1]
    if not kind:
        alone = holds_sample(first, last) & frame.among("kind", names.SAMPLED_KINDS)[rows]
        begins |= alone
        begins[1:] |= alone[:-1]
    starts, ends = runs(begins)
    columns = picked(frame, rows[starts])
    columns |= {
        "last": last[ends], "ts_us": np.minimum.reduceat(when, starts),
        "ts_last_us": np.maximum.reduceat(when, starts),
        "wseq": np.minimum.reduceat(frame.ints("wseq")[rows], starts),
    }  # fmt: skip
    return events(len(starts), columns | ({"kind": kind} if kind else {}))


def _chains(frame: Frame) -> pa.RecordBatch:
    code = frame.key(("writer", "incarnation"), None)
    order = sort_by(code)
    code, wseq = code[order], frame.ints("wseq")[order]
    begins = np.ones(frame.rows, dtype=bool)
    begins[1:] = (code[1:] != code[:-1]) | (wseq[1:] != wseq[:-1] + 1)
    starts, ends = runs(begins)
    columns = picked(frame, order[starts])
    named = {name: columns[name] for name in ("writer", "incarnation")}
    return events(len(starts), {"kind": "chain", **named, "first": wseq[starts], "last": wseq[ends]})


def _spans(frame: Frame, *, pruned: bool) -> pa.RecordBatch:
    code = frame.key(("writer", "incarnation", "view", "kind"), None)
    order = sort_by(code)
    code, when = code[order], frame.ints("ts_us")[order]
    begins = np.ones(frame.rows, dtype=bool)
    begins[1:] = code[1:] != code[:-1]
    starts, ends = runs(begins)
    columns = picked(frame, order[starts])
    named = {name: columns[name] for name in ("writer", "incarnation", "view")}
    return events(len(starts), {
        "kind": "span", **named, "name": columns["kind"], "n": ends - starts + 1,
        "ts_us": np.minimum.reduceat(when, starts), "ts_last_us": np.maximum.reduceat(when, starts),
        **({"reason": names.PRUNED_NAME} if pruned else {}),
    })  # fmt: skip


def _rates(frame: Frame) -> Iterator[pa.RecordBatch]:
    for kind in ("sent", "confirmed", "received"):
        rows = np.flatnonzero(frame.among("kind", {kind}))
        if len(rows):
            slots = frame.ints("ts_us")[rows] // names.RATE_BUCKET_US
            order = sort_by(slots - slots.min())
            starts, _ = runs(np.diff(slots[order], prepend=slots.min() - 1) != 0)
            ids = (frame.ints("last") - frame.ints("first"))[rows[order]] + 1
            counts = np.add.reduceat(ids, starts)
            yield events(
                len(starts), {"kind": "rate", "name": kind, "first": slots[order][starts], "n": counts}
            )


def _pulses(frame: Frame, rows: Ints) -> pa.RecordBatch:
    when = np.sort(frame.ints("ts_us")[rows])
    begins = np.ones(len(when), dtype=bool)
    begins[1:] = when[1:] - when[:-1] > names.PULSE_SLACK_US
    starts, ends = runs(begins)
    return events(len(starts), {"kind": "pulse", "ts_us": when[starts], "ts_last_us": when[ends]})
