"""The sentences of a survey: its headline, and what these ledgers cannot show. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark.reconcile.ledgers.state import LedgerState

MEASURES = (
    ("confirm", "a producer"),
    ("end_to_end", "a producer, a broker and a consumer"),
    ("replication", "a primary"),
)
"""Names in the answer, each with the ledgers that it needs."""
UNITS = (
    (1e3, 1.0, "us"), (1e6, 1e3, "ms"), (60e6, 1e6, "s"), (3600e6, 60e6, "min"), (172800e6, 3600e6, "h"),
)  # fmt: skip
"""Units of duration: limit in microseconds, size in microseconds, name."""


def length(us: float) -> str:
    """A duration in words, with two or three digits: 850 us, 12.3 ms, 2.4 s, 3.1 min, 2 h, 5.2 d."""
    for most, unit, name in UNITS:
        if abs(us) < most:
            value = us / unit
            return f"{value:.0f} {name}" if abs(value) >= 100 or unit == 1 else f"{value:.3g} {name}"
    return f"{us / 86400e6:.3g} d"


def count(number: int, name: str) -> str:
    """A number with its noun: 1 failover, 2 failovers, no failovers."""
    return f"{number or 'no'} {name}{'' if number == 1 else 's'}"


def notes(result: Mapping[str, Any], ledgers: LedgerState) -> list[str]:
    """What these ledgers cannot show, or show with less certainty: one sentence each."""
    out = []
    totals, latency = result["totals"], result["latency"]
    measured = (latency["confirm"] or {"n": 0})["n"]
    if measured < totals["confirmed"]:
        out.append(
            f"{totals['confirmed'] - measured:,} of {totals['confirmed']:,} confirms have no send in these "
            "ledgers; the confirm latency leaves them out"
        )
    for name, whose in MEASURES:
        if latency[name] is None:
            what = name.replace("_", " ")
            out.append(f"there is no {what} latency: it needs ledgers of {whose} in this period")
    for clock in result["clocks"]:
        out += _of_clock(clock)
    out += _unbounded(result["clocks"])
    for ledger in result["ledgers"]:
        out += _of_ledger(ledger)
    if ledgers.unreadable:
        out.append(f"{count(ledgers.unreadable, 'line')} cannot be read")
    if len(ledgers.clusters) > 1:
        clusters = ", ".join(sorted(ledgers.clusters))
        out.append(f"ledgers of {len(ledgers.clusters)} clusters are mixed: {clusters}")
    return out


def _of_ledger(ledger: Mapping[str, Any]) -> Iterable[str]:
    called = f"the ledger of {ledger['writer']} (incarnation {ledger['incarnation']})"
    if ledger["gaps"]:
        holes = ", ".join(f"{a}..{b}" if a != b else f"{a}" for a, b in ledger["gaps"][:5])
        yield f"{called} lacks records {holes}"
    if ledger["begins_at"]:
        yield f"{called} begins at record {ledger['begins_at']:,}; earlier records are not here"


def _of_clock(clock: Mapping[str, Any]) -> Iterable[str]:
    mine, theirs = f"the clock of {clock['writer']}", f"{clock['broker']}'s"
    off = max(clock["least_us"], clock["most_us"], key=abs)
    if off:
        side = "behind" if off > 0 else "ahead of"
        sure = f" (to within {length(clock['error_us'])})" if clock["error_us"] is not None else ""
        yield f"{mine} was up to {length(abs(off))} {side} {theirs}{sure}; end-to-end latency is corrected"


def _unbounded(clocks: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """A sentence about clocks that, in some hour, are bounded from one side only or not at all."""
    loose = [clock for clock in clocks if clock["bounded_hours"] < clock["hours"]]
    names = sorted({clock["writer"] for clock in loose})
    if loose:
        hours = max(clock["hours"] - clock["bounded_hours"] for clock in loose)
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        yield (
            f"for up to {count(hours, 'hour')}, the clocks of {', '.join(names[:5])}{more} could be checked "
            "against the brokers' from one side only or not at all; end-to-end latency is less certain there"
        )


def headline(result: Mapping[str, Any]) -> str:
    """The period and its main numbers, in one sentence."""
    totals, latency = result["totals"], result["latency"]["confirm"]
    begin, end = (datetime.fromtimestamp(result[key] / 1e6, UTC) for key in ("since_us", "until_us"))
    confirmed = f"{totals['confirmed']:,} messages confirmed"
    if latency:
        half, most = length(latency["p50_us"]), length(latency["p99_us"])
        confirmed += f" (p50 {half}, p99 {most})"
    received = f"{totals['received']:,} delivered"
    if totals["redelivered"]:
        received += f", {100 * totals['redelivered'] / totals['received']:.2g} % of them redelivered"
    parts = [confirmed, received]
    outages = [f["outage_ms"] for f in result["failovers"] if f["outage_ms"] is not None]
    worst = f", the longest outage {length(max(outages) * 1000)}" if outages else ""
    parts.append(f"{count(len(result['failovers']), 'failover')}{worst}")
    holes = sum(1 for ledger in result["ledgers"] if ledger["gaps"])
    if holes:
        parts.append(f"{count(holes, 'ledger')} with gaps")
    return f"{begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC: {'; '.join(parts)}."
