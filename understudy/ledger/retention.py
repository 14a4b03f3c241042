"""Deletes old ledger records: whole finished segments, from the beginning of an incarnation.

One small file replaces the deleted segments: `<writer>-<incarnation>-<k>.pruned.ledger.jsonl`, where k is the
last of them. The file keeps the records that later ones depend on: who wrote, who served and was in sync
since when, the names of queues and links, the quarantine and the seal. For each queue and epoch, and for each
session of a publisher, the file keeps the record with the highest id or tag. Records of kind `pruned` name
the numbers of the deleted records, so nobody takes a deleted range for a gap or for "no loss". No record with
a higher id or tag was deleted. Lower ids and tags lie before the horizon and are not judged.

Crash-safe: the new file is complete before the old ones are deleted, and its name says which ones it
replaces.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from understudy.ledger.compaction import sync_folder
from understudy.ledger.segments import (
    CUT_SHORT,
    JSONL,
    PRUNED,
    Damage,
    Record,
    Segment,
    Series,
    finished,
    is_held,
    last_record,
    records,
)
from understudy.ledger.writer import SCHEMA_VERSION
from understudy.shared.file_errors import named

_STATE = frozenset({"open", "promote", "demote", "insync", "confirm_level", "quarantine", "seal"})
"""Kinds that are always kept: they are few, and later records cannot be judged without them."""
_RUNS = frozenset({"enqueue", "backup_enqueue"})
"""Kinds whose range is a range of ids. `pfirst` is the tag of the first id."""
DAMAGED = "damaged"
"""Value of `reason` in `pruned` records if some deleted records could not be read."""


class Unprunable(Exception):
    """The segments of an incarnation cannot be pruned. `str()` is the reason."""


@dataclass(slots=True)
class PruningPlan:
    """The segments of one incarnation to delete. `horizon_us` is the time of their newest record; events up
    to then are no longer judged."""

    series: Series
    going: list[Segment] = field(default_factory=list)
    horizon_us: int = 0

    @property
    def size(self) -> int:
        return sum(segment.path.stat().st_size for segment in self.going)


def plan(series: Series, before_us: int) -> PruningPlan:
    """Plan to delete the leading segments whose newest record is older than `before_us`. The plan stops at a
    segment that is still written. It is empty if a pruned file would only replace itself."""
    found = PruningPlan(series)
    done = set(finished(series))
    for segment in series.segments:
        last = last_record(segment)
        if last is None or last["ts_us"] >= before_us:
            break
        if segment not in done and is_held(segment):
            break
        found.going.append(segment)
        found.horizon_us = max(found.horizon_us, last["ts_us"])
    if all(segment.pruned for segment in found.going):
        found.going = []
    return found


def prune(
    plan: PruningPlan, *, damaged: bool = False, progress: Callable[[int], None] = lambda octets: None
) -> Path:
    """Delete the planned segments. Returns the file that replaces them.

    Raises OSError and NeedsArrow. Raises Unprunable if a line cannot be read or record numbers are missing,
    unless `damaged`. With `damaged`, lost records are no longer judged either.
    """
    lines = _summary(plan, damaged, progress)
    last, folder = plan.going[-1], plan.series.folder
    stem = last.stem.removesuffix(PRUNED)
    target = folder / f"{stem}{PRUNED}{JSONL}"
    part = target.with_name(target.name + ".part")
    try:
        with named(part), part.open("wb") as file:
            for line in lines:
                file.write(line)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    sync_folder(folder)
    tidy([*plan.series.doubles, *plan.going], target)
    return target


def tidy(segments: Iterable[Segment], besides: Path) -> None:
    """Delete `segments`, which the pruned file `besides` replaces."""
    for segment in segments:
        if segment.path != besides:
            segment.path.unlink(missing_ok=True)
    sync_folder(besides.parent)


def _summary(plan: PruningPlan, damaged: bool, progress: Callable[[int], None]) -> list[bytes]:
    kept = _Kept()
    for segment in plan.going:

        def tell(damage: Damage, segment: Segment = segment) -> None:
            crashed = damage.why == CUT_SHORT and segment is plan.series.segments[-1]
            if not damaged and not crashed:
                raise Unprunable(f"line {damage.line} of {segment.path.name} cannot be read ({damage.why})")
            kept.damaged |= not crashed

        for record in records(segment, tell, progress):
            first = record["first"] if record["kind"] == "pruned" else record["wseq"]
            if first > kept.next and not damaged:
                raise Unprunable(
                    f"records {kept.next}..{first - 1} are missing (next record in {segment.path.name})"
                )
            kept.damaged |= first > kept.next
            kept.take(record)
    return kept.lines()


class _Kept:
    """Takes each record once, and keeps those that the pruned file needs."""

    def __init__(self) -> None:
        self.next = 0
        self._state: list[Record] = []
        self._latest: dict[tuple[object, ...], tuple[int, Record]] = {}
        """The highest number and its record, for each queue name, queue and epoch, and session."""
        self._end: Record | None = None
        self.damaged = False
        """Some records could not be read, so the highest ids and tags are unknown."""

    def take(self, record: Record) -> None:
        self.next = max(self.next, record["wseq"] + 1)
        self._end = record
        kind = record["kind"]
        if kind == "pruned":
            self.damaged |= record.get("reason") == DAMAGED
        elif kind in _STATE:
            self._state.append(record)
        elif kind == "definition":
            self._note(("definition", record["queue"]), record["wseq"], record)
        elif kind == "link":
            self._note(("link", record.get("queue"), record["name"]), record["wseq"], record)
        elif "last" in record:
            run = kind in _RUNS
            if "queue" in record and "epoch" in record:
                self._note(("ids", record["queue"], record["epoch"]), record["last"], record)
            if "prod" in record and (not run or "pfirst" in record):
                tag = record["pfirst"] + record["last"] - record["first"] if run else record["last"]
                self._note(("tags", record["prod"]), tag, record)

    def _note(self, what: tuple[object, ...], upto: int, record: Record) -> None:
        known = self._latest.get(what)
        if known is None or upto >= known[0]:
            self._latest[what] = (upto, record)

    def lines(self) -> list[bytes]:
        """The kept records in order of their numbers, with `pruned` records for all other numbers up to the
        last."""
        staying = {record["wseq"]: record for record in self._state}
        staying |= {record["wseq"]: record for _, record in self._latest.values()}
        lines: list[bytes] = []
        expected = 0
        for wseq in sorted(staying):
            if wseq > expected:
                lines.append(self._gone(expected, wseq - 1, staying[wseq]))
            lines.append(_line(staying[wseq]))
            expected = wseq + 1
        if self._end is not None and self.next > expected:
            lines.append(self._gone(expected, self.next - 1, self._end))
        return lines

    def _gone(self, first: int, last: int, near: Record) -> bytes:
        """The `pruned` record for `first` to `last`, with the time and epoch of `near`: the next kept record,
        or the last deleted one."""
        same = {name: near[name] for name in ("writer", "incarnation", "ts_us", "view")}
        head = {"v": SCHEMA_VERSION, "writer": same["writer"], "incarnation": same["incarnation"]}
        return _line(
            head | {"wseq": last, "ts_us": same["ts_us"], "view": same["view"], "kind": "pruned"}
            | {"first": first, "last": last} | ({"reason": DAMAGED} if self.damaged else {})
        )  # fmt: skip


def _line(record: Record) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
