"""Alarms, and the severity of each kind. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spark.watch.range_set import Range

LOSS, WARNING, NOTE = "loss", "warning", "note"
SEVERITY = {
    "lost": LOSS, "unplaced": LOSS,
    "silent": WARNING, "gap": WARNING, "unreadable": WARNING, "vanished": WARNING, "replaced": WARNING,
    "two-primaries": WARNING, "version": WARNING, "mixed": WARNING, "missing-ledger": WARNING,
    "unknown-session": WARNING, "behind": WARNING,
    "back": NOTE, "found": NOTE, "begins": NOTE, "caught-up": NOTE,
}  # fmt: skip
"""The severity of each kind of alarm.

A loss is certain. A warning names something that cannot be judged, for now or ever. A note takes an alarm
back, or explains.
"""

SHOWN = 200
"""Most ranges in one alarm. `count` and `pieces` cover all ranges."""


@dataclass(slots=True)
class Alarm:
    """One alarm. `n` counts from 1 within one checkpoint; the watch's id and `n` form the key.

    Times are microseconds since 1970, by the watcher's clock.
    """

    kind: str
    sentence: str
    ts_us: int
    n: int = 0
    queue: str | None = None
    name: str | None = None
    epoch: int | None = None
    prod: str | None = None
    writer: str | None = None
    count: int = 0
    pieces: int = 0
    ranges: list[Range] = field(default_factory=list)

    @property
    def severity(self) -> str:
        return SEVERITY[self.kind]

    def as_dict(self, watch: str) -> dict[str, Any]:
        out: dict[str, Any] = {
            "n": self.n, "key": f"{watch}-{self.n}", "ts_us": self.ts_us, "kind": self.kind,
            "severity": self.severity, "sentence": self.sentence,
        }  # fmt: skip
        for name in ("queue", "name", "epoch", "prod", "writer"):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        if self.count:
            out |= {"count": self.count, "pieces": self.pieces, "ranges": [list(r) for r in self.ranges]}
        return out


def listed(ranges: Iterable[Range], most: int = 8) -> str:
    """`10..13, 20 and 3 more ranges`"""
    every = list(ranges)
    text = ", ".join(f"{a}..{b}" if a != b else f"{a}" for a, b in every[:most])
    return text + (f" and {len(every) - most} more ranges" if len(every) > most else "")


def messages(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"
