"""Records of ledgers as plain dicts, by process. Shares no code with the writers or the job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Record = dict[str, Any]
Process = tuple[str, int]
"""A writer and its incarnation."""


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers in order of arrival -> inclusive runs of consecutive numbers."""
    out: list[tuple[int, int]] = []
    for number in numbers:
        if out and number == out[-1][1] + 1:
            out[-1] = (out[-1][0], number)
        else:
            out.append((number, number))
    return out


@dataclass
class Records:
    """Records of each process in the order of writing. Of the header they have only the time and the view."""

    records: dict[Process, list[Record]] = field(default_factory=lambda: defaultdict(list))

    def note(self, process: Process, ts_us: int, view: int, kind: str, **fields: Any) -> Record:
        given = {key: value for key, value in fields.items() if value is not None}
        record = {"ts_us": ts_us, "view": view, "kind": kind, **given}
        self.records[process].append(record)
        return record

    def every(self, *kinds: str) -> list[tuple[Process, Record]]:
        return [(p, r) for p, records in self.records.items() for r in records if r["kind"] in kinds]


def remainder(record: Record, first: int, last: int) -> list[Record]:
    """What remains of a record without first..last: no, one or two records."""
    out = []
    others = {name: record[name] - record["first"] for name in ("pfirst", "number") if name in record}
    for a, b in ((record["first"], first - 1), (last + 1, record["last"])):
        a, b = max(a, record["first"]), min(b, record["last"])
        if a <= b:
            moved = {name: a + shift for name, shift in others.items()}
            out.append({**record, "first": a, "last": b, **moved})
    return out
