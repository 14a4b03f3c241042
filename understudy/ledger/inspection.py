"""What a folder of ledgers holds, writer by writer, and whether anything is missing: for `ledger check`.

The ledgers' contents are Spark's business (`understudy reconcile`); here only files, numbers and ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from understudy.ledger.segments import CUT_SHORT, Damage, Record, Segment, Series, is_held, records

OUTLIVED_US = 86_400_000_000
"""As in `spark.reconcile.ledgers.ends`, whose rule about clients without a seal this is."""


@dataclass(slots=True)
class Report:
    """One incarnation. Ranges are of record numbers, times in microseconds since 1970."""

    series: Series
    role: str = ""
    count: int = 0
    first: int | None = None
    last: int | None = None
    first_us: int = 0
    last_us: int = 0
    pruned_us: int | None = None
    """What was noted up to then was removed by retention."""
    sealed: bool = False
    followed: bool = False
    """A broker's next life has begun here: this one is over."""
    outlived: bool = False
    """A client's, of whose time no broker's ledger here tells any more."""
    held: bool = False
    torn_tail: bool = False
    """Its last line is cut short, and nothing follows: what a crash leaves."""
    gaps: list[tuple[int, int, str]] = field(default_factory=list)
    """Missing numbers, and the file before which they are missing."""
    repeated: list[tuple[int, int, str]] = field(default_factory=list)
    damage: list[tuple[Segment, Damage]] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)

    @property
    def end(self) -> str:
        """sealed; crashed: it has begun anew; open: a process of this machine writes to it; outlived: it does
        not count any more; none: it crashed, or is not all here."""
        if self.sealed:
            return "sealed"
        if self.outlived and not self.held:
            return "outlived"
        return "crashed" if self.followed else "open" if self.held else "none"

    @property
    def damaged(self) -> bool:
        return bool(self.gaps or self.repeated or self.damage or not self.count)

    def faults(self) -> list[str]:
        """A sentence for each thing that is not as it should be."""
        writer, incarnation = self.series.process
        who = f"the ledger of {writer} (incarnation {incarnation})"
        found = [f"{who} lacks records {_span(a, b)}, before {name}" for a, b, name in self.gaps]
        found += [f"{who} numbers records {_span(a, b)} again, in {name}" for a, b, name in self.repeated]
        found += [
            f"line {damage.line} of {segment.path.name} cannot be read ({damage.why})"
            for segment, damage in self.damage
        ]
        if not self.count:
            found.append(f"{who} is empty")
        if self.torn_tail:
            found.append(f"the last line of {self.series.segments[-1].path.name} is cut short")
        if self.count and self.end == "none":
            found.append(f"{who} has no end")
        return found

    def as_json(self) -> dict[str, Any]:
        writer, incarnation = self.series.process
        return {
            "writer": writer, "incarnation": incarnation, "role": self.role,
            "folder": str(self.series.folder), "files": [s.path.name for s in self.series.segments],
            "doubles": [s.path.name for s in self.series.doubles],
            "bytes": sum(s.path.stat().st_size for s in self.series.segments), "records": self.count,
            "first": self.first, "last": self.last, "first_us": self.first_us, "last_us": self.last_us,
            "pruned_us": self.pruned_us, "end": self.end, "versions": sorted(self.versions),
            "faults": self.faults(),
        }  # fmt: skip


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def inspect(series: Series, progress: Callable[[int], None] = lambda octets: None) -> Report:
    """Read all of one incarnation. Raises OSError, and NeedsArrow."""
    report = Report(series)
    final = series.segments[-1]
    for segment in series.segments:
        damage: list[Damage] = []
        for record in records(segment, damage.append, progress):
            _take(report, segment, record)
        if segment is final and damage and damage[-1].why == CUT_SHORT:
            damage.pop()
            report.torn_tail = True
        report.damage += [(segment, each) for each in damage]
    report.held = not report.sealed and is_held(final)
    return report


def inspect_all(every: Sequence[Series], progress: Callable[[int], None]) -> list[Report]:
    """Each of them; the node's lock makes lives of a broker follow each other, those of a client may not."""
    reports = [inspect(series, progress) for series in every]
    for report in reports:
        writer, incarnation = report.series.process
        report.followed = report.role == "broker" and any(
            (other.series.folder, other.series.process[0]) == (report.series.folder, writer)
            and other.series.process[1] > incarnation
            for other in reports
        )
    _find_outlived(reports)
    return reports


def _find_outlived(reports: Sequence[Report]) -> None:
    brokers = [each for each in reports if each.role == "broker"]
    if not any(each.pruned_us for each in brokers):
        return
    begins = [
        each.pruned_us or each.first_us for each in brokers if not all(s.pruned for s in each.series.segments)
    ]
    begin = min(begins, default=None)
    for report in reports:
        if report.role in ("producer", "consumer"):
            report.outlived = begin is None or report.last_us + OUTLIVED_US <= begin


def _take(report: Report, segment: Segment, record: Record) -> None:
    kind, wseq = record["kind"], record["wseq"]
    first = record["first"] if kind == "pruned" else wseq
    due = 0 if report.last is None else report.last + 1
    if first > due:
        report.gaps.append((due, first - 1, segment.path.name))
    elif first < due:
        report.repeated.append((first, min(wseq, due - 1), segment.path.name))
    if report.first is None:
        report.first, report.first_us = first, record["ts_us"]
    report.last = max(wseq, report.last or 0)
    report.last_us = max(report.last_us, record["ts_us"])
    report.count += 1
    report.versions.add(record["v"])
    if kind == "open":
        report.role = str(record.get("name", ""))
    elif kind == "seal":
        report.sealed = True
    elif kind == "pruned":
        report.pruned_us = max(report.pruned_us or 0, record["ts_us"])
