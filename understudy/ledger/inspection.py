"""Inspects ledger files for `understudy ledger check`: one report for each incarnation.

A report covers files, record numbers and ends. `understudy reconcile` judges the contents of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from understudy.ledger.segments import CUT_SHORT, Damage, Record, Segment, Series, is_held, records

OUTLIVED_US = 86_400_000_000
"""A client without a seal no longer counts if broker records are pruned up to this time after its last one.
The rule is that of `spark.reconcile.ledgers.ends`."""


@dataclass(slots=True)
class Report:
    """The findings about one incarnation. Ranges are record numbers; times are microseconds since 1970."""

    series: Series
    role: str = ""
    count: int = 0
    first: int | None = None
    last: int | None = None
    first_us: int = 0
    last_us: int = 0
    pruned_us: int | None = None
    """Retention removed records up to this time."""
    sealed: bool = False
    followed: bool = False
    """A later incarnation of this broker wrote to the same folder, so this one has ended."""
    outlived: bool = False
    """The ledger of a client whose time the brokers' ledgers no longer cover."""
    held: bool = False
    torn_tail: bool = False
    """The last line of the last segment is cut short, as a crash leaves it."""
    gaps: list[tuple[int, int, str]] = field(default_factory=list)
    """Ranges of missing record numbers, each with the file of the next record."""
    repeated: list[tuple[int, int, str]] = field(default_factory=list)
    """Ranges of record numbers that occur again, each with the file that repeats them."""
    damage: list[tuple[Segment, Damage]] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)

    @property
    def end(self) -> str:
        """How the ledger ends.

        `sealed`: in order. `outlived`: the missing seal no longer counts. `crashed`: a later incarnation of
        the broker follows. `open`: a process of this machine still writes to it. `none`: the writer crashed,
        or files are missing.
        """
        if self.sealed:
            return "sealed"
        if self.outlived and not self.held:
            return "outlived"
        return "crashed" if self.followed else "open" if self.held else "none"

    @property
    def damaged(self) -> bool:
        return bool(self.gaps or self.repeated or self.damage or not self.count)

    def faults(self) -> list[str]:
        """One sentence for each fault."""
        writer, incarnation = self.series.process
        who = f"the ledger of {writer} (incarnation {incarnation})"
        found = [f"{who} lacks records {_span(a, b)} (next record in {name})" for a, b, name in self.gaps]
        found += [f"{who} repeats record numbers {_span(a, b)}, in {name}" for a, b, name in self.repeated]
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
    """Read all segments of one incarnation. Raises OSError and NeedsArrow."""
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
    """Inspect all incarnations. A later incarnation ends an earlier one only if the writer is a broker: a
    node locks its data directory, but two clients of one name may run at the same time."""
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
