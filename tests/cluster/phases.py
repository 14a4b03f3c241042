"""How long each phase of a failover took, from what logs, switch, watchers and clients noted.

All times are seconds since 1970 on this machine's one clock; phases are seconds since the fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cluster.site import Site
    from tests.cluster.watch import Watch

PHASES = ("noticed", "fenced", "promoting", "serving", "address", "confirmed", "whole")
"""A broker or node is seen to be gone; the switch has been thrown; Pacemaker asks for a promotion; the
promoted node says that it serves; so says the virtual address; the kit's publisher has its first confirm
again; the pair is whole again, and a machine that was fenced is back.
"""
_NOTICED = re.compile(
    r"Node \w+ state is now lost|Result of monitor operation for understudy on \w+: (?!ok|promoted)"
    r"|Lost connection to the (?!attribute)|quorum lost|Result of demote operation"
)
_PROMOTING = re.compile(r"Requesting local execution of promote operation for understudy")


@dataclass(slots=True, frozen=True)
class Gap:
    """A client's time without a confirm."""

    client: str
    begin: float
    end: float


@dataclass(slots=True)
class Round:
    what: str
    fault: float
    roles: dict[str, str]
    """As Pacemaker saw them before."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds since the fault; one that did not happen is not there."""
    whole: float = 0.0
    """When the pair was whole again."""
    outage: dict[str, float] = field(default_factory=dict)
    """The time without a confirm that the failover, or the loss of the backup, made, by client."""
    longest: dict[str, float] = field(default_factory=dict)
    """The longest of the whole round."""

    def as_json(self) -> dict[str, Any]:
        seconds = {key: round(value, 3) for key, value in self.phases.items()}
        outage = {key: round(value, 3) for key, value in self.outage.items()}
        longest = {key: round(value, 3) for key, value in self.longest.items()}
        return {"what": self.what, "phases": seconds, "outage": outage, "longest": longest}


def measure(made: Round, site: Site, watch: Watch, gaps: Iterable[Gap]) -> None:
    """Fill in what there is to know of this round; called when the pair is whole again."""
    at = made.fault
    made.phases["whole"] = made.whole - at
    lines = sorted(_log_lines(site.folder / "logs", at))
    _first(made, "noticed", (when for when, line in lines if _NOTICED.search(line)))
    _first(made, "fenced", (each.done for each in site.switch.fenced(at)))
    _first(made, "promoting", (when for when, line in lines if _PROMOTING.search(line)))
    began = watch.epoch_at(at)
    serving = [
        watch.first(name, lambda sample: sample.serves and sample.epoch > began, at) for name in site.machines
    ]
    _first(made, "serving", (each for each in serving if each is not None))
    if "serving" in made.phases:
        now = watch.epoch_at(float("inf"))
        address = watch.first("vip", lambda sample: sample.serves and sample.epoch == now, at)
        _first(made, "address", (each for each in [address] if each is not None))
    for client in ("orders", "plain"):
        own = [gap for gap in gaps if gap.client == client and gap.end > at]
        if own:
            gap = _of_the_failover(own, at + made.phases.get("serving", -1.0))
            made.outage[client] = gap.end - gap.begin
            made.longest[client] = max(each.end - each.begin for each in own)
            if client == "orders":
                made.phases["confirmed"] = gap.end - at
        else:
            made.outage[client] = 0.0


def _of_the_failover(gaps: Sequence[Gap], serving: float) -> Gap:
    """The one in which the promoted node began to serve; without a promotion, the longest."""
    over = [gap for gap in gaps if gap.begin <= serving <= gap.end]
    return max(over or gaps, key=lambda gap: gap.end - gap.begin)


def _first(made: Round, phase: str, times: Iterable[float]) -> None:
    if (found := min((each for each in times if each >= made.fault - 0.001), default=None)) is not None:
        made.phases[phase] = found - made.fault


def _log_lines(logs: Path, since: float) -> Iterator[tuple[float, str]]:
    """Those of all machines' Pacemaker that tell of a phase, from then on."""
    year = datetime.fromtimestamp(since).year
    for path in logs.glob("*/pacemaker.log"):
        for line in path.read_text(errors="replace").splitlines():
            if not (_NOTICED.search(line) or _PROMOTING.search(line)):
                continue
            try:
                when = datetime.strptime(f"{year} {line[:19]}", "%Y %b %d %H:%M:%S.%f").timestamp()
            except ValueError:
                continue
            if when >= since:
                yield when, line


def table(cases: Sequence[tuple[str, Sequence[Round]]]) -> Iterator[str]:
    """Medians by case and kind of fault, in seconds, as a table of Markdown."""
    yield "| case | rounds | " + " | ".join(PHASES) + " | outage: list | address only | longest |"
    yield "|---|---|" + "---|" * (len(PHASES) + 3)
    for name, rounds in cases:
        for what in dict.fromkeys(each.what for each in rounds):
            own = [each for each in rounds if each.what == what]
            cells = [
                _middle([each.phases[phase] for each in own if phase in each.phases]) for phase in PHASES
            ]
            cells += [
                _middle([each.outage[client] for each in own if client in each.outage])
                for client in ("orders", "plain")
            ]
            cells.append(_middle([max(each.longest.values()) for each in own if each.longest]))
            yield f"| {name}: {what} | {len(own)} | " + " | ".join(cells) + " |"


def _middle(values: Sequence[float]) -> str:
    return f"{median(values):.2f}" if values else ""
