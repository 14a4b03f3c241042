"""Builds the answer of a survey: one dict, printed as JSON (see `docs/how-to/report.md`). Pure, on the
driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark.insight import words
from spark.insight.clocks import HOUR_US, TOLERANCE_US
from spark.insight.periods import Period
from spark.latency.histogram import SHARES
from spark.latency.journeys import CONFIRM, DELIVERY, REPLICATION

if TYPE_CHECKING:
    from spark.reconcile.input.read import Found
    from spark.reconcile.ledgers.state import LedgerState, Writer

SCHEMA = 1
SHOWN = 200
NAMES = ("sent", "confirmed", "received", "redelivered", "acked")
Rows = Sequence[Mapping[str, Any]]


def build(
    ledgers: LedgerState, period: Period, measured: Mapping[str, Rows], counted: Mapping[str, Rows],
    fails: list[dict[str, Any]], found: Found,
) -> dict[str, Any]:  # fmt: skip
    """The whole answer."""
    totals = dict.fromkeys(NAMES, 0)
    for row in counted["slots"]:
        totals[row["name"]] += row["n"]
    known = _clocks(measured["bounds"], period)
    result = {
        "schema": SCHEMA, "kind": "survey", "since_us": period.since_us, "until_us": period.until_us,
        "slot_us": period.slot_us, "row_us": period.row_us, "totals": totals,
        "latency": {
            name.replace(" ", "_"): _latency(name, measured, period, ledgers)
            for name in (CONFIRM, DELIVERY, REPLICATION)
        },
        "rates": {
            "slots": _series(counted["slots"], period, period.slot_us),
            "rows": _series(counted["rows"], period, period.row_us),
        },
        "queues": _queues(counted["queues"], ledgers), "consumers": _consumers(counted, period),
        "failovers": fails, "ledgers": _health(ledgers, period), "clocks": known,
        "files": {
            "ledgers": len(found.ledgers), "ignored": found.ignored, "unreadable_lines": ledgers.unreadable,
        },
    }  # fmt: skip
    return {"sentence": words.headline(result), "notes": words.notes(result, ledgers), **result}


def _quantiles(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"n": row["n"], **{name: row[name] for name in SHARES}}


def _latency(
    measure: str, measured: Mapping[str, Rows], period: Period, ledgers: LedgerState
) -> dict[str, Any] | None:
    """The latencies of one measure: in total, `by` producer, queue or backup, and over time.

    None if nothing was measured.
    """

    def mine(cut: str) -> list[Mapping[str, Any]]:
        return [row for row in measured[cut] if row["measure"] == measure]

    whole = mine("whole")
    if not whole:
        return None
    keyed = sorted(mine("keys"), key=lambda row: (-row["n"], row["key"]))[:SHOWN]
    return {
        **_quantiles(whole[0]),
        "by": [
            {
                "key": _queue_name(row["key"], ledgers) if measure == DELIVERY else row["key"],
                **_quantiles(row),
            }
            for row in keyed
        ],
        **{
            cut: [
                {"from_us": row["slot"] * width, **_quantiles(row)}
                for row in sorted(mine(cut), key=lambda row: row["slot"])
            ]
            for cut, width in (("slots", period.slot_us), ("rows", period.row_us))
        },
    }  # fmt: skip


def _series(rows: Rows, period: Period, width_us: int) -> list[dict[str, Any]]:
    """One row for each slot of the period, in order, with the number of ids of each kind."""
    slots: dict[int, dict[str, Any]] = {
        slot: {"from_us": slot * width_us, **dict.fromkeys(NAMES, 0)} for slot in period.slots(width_us)
    }
    for row in rows:
        if row["slot"] in slots:
            slots[row["slot"]][row["name"]] += row["n"]
    return list(slots.values())


def _by(rows: Rows, key: str) -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = defaultdict(
        lambda: dict.fromkeys(("received", "redelivered", "acked"), 0)
    )
    for row in rows:
        out[row[key] or ""][row["name"]] += row["n"]
    return out


def _received(row: Mapping[str, Any]) -> int:
    """Sort key: the busiest first."""
    return -int(row["received"])


def _share(counts: Mapping[str, int]) -> float:
    return counts["redelivered"] / counts["received"] if counts["received"] else 0.0


def _queues(rows: Rows, ledgers: LedgerState) -> list[dict[str, Any]]:
    named = [
        {"queue": queue, "name": _queue_name(queue, ledgers), **counts, "redelivery_rate": _share(counts)}
        for queue, counts in _by(rows, "key").items()
    ]
    return sorted(named, key=_received)[:SHOWN]


def _consumers(counted: Mapping[str, Rows], period: Period) -> list[dict[str, Any]]:
    """The consumers, the busiest first. `per_second` counts only slots in which the consumer received
    something. `rows` has the number of messages received in each row of the period."""
    busy = {row["writer"]: row["slots"] for row in counted["consumers"] if row["name"] == "received"}
    along: dict[str, dict[int, int]] = defaultdict(dict)
    for row in counted["consumer_rows"]:
        along[row["writer"]][row["slot"]] = row["n"]
    length = (period.until_us - period.since_us) / 1e6
    out = []
    for name, counts in _by(counted["consumers"], "writer").items():
        seconds = min(busy.get(name, 0) * period.slot_us / 1e6, length)
        out.append({
            "consumer": name, **counts, "redelivery_rate": _share(counts),
            "per_second": round(counts["received"] / seconds, 3) if seconds else 0.0,
            "rows": [along[name].get(slot, 0) for slot in period.slots(period.row_us)],
        })  # fmt: skip
    return sorted(out, key=_received)[:SHOWN]


def _health(ledgers: LedgerState, period: Period) -> list[dict[str, Any]]:
    """The health of each ledger with a record in the period.

    Records missing at the beginning are no gap: they may be older than the retention.
    """
    lives = [
        w for w in ledgers.writers.values() if w.last_us >= period.since_us and w.first_us < period.until_us
    ]
    return [_ledger(w) for w in sorted(lives, key=lambda w: (w.role, w.process))]


def _ledger(writer: Writer) -> dict[str, Any]:
    begins = next((last + 1 for first, last in writer.gaps if first == 0), 0)
    return {
        "writer": writer.name, "incarnation": writer.incarnation, "role": writer.role or None,
        "records": sum(writer.records.values()), "first_us": writer.first_us, "last_us": writer.last_us,
        "end": writer.end, "ended_by": writer.ended_by or None, "begins_at": begins,
        "gaps": [list(gap) for gap in writer.gaps if gap[0] != 0], "torn_lines": writer.torn,
    }  # fmt: skip


def _clocks(rows: Rows, period: Period) -> list[dict[str, Any]]:
    """For each writer and each broker that it met: the broker's time minus the writer's."""
    hours: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if (row["hour"] + 1) * HOUR_US > period.since_us and row["hour"] * HOUR_US < period.until_us:
            hours[row["writer"], row["broker"]].append(row)
    out = []
    for (writer, broker), met in sorted(hours.items()):
        both = [
            (r["low_us"], r["high_us"]) for r in met if r["low_us"] is not None and r["high_us"] is not None
        ]
        applied = [_applied(r["low_us"], r["high_us"]) for r in met]
        out.append({
            "writer": writer, "broker": broker, "hours": len(met), "bounded_hours": len(both),
            "error_us": max((abs(high - low) for low, high in both), default=None),
            "least_us": min(applied), "most_us": max(applied),
        })  # fmt: skip
    return out


def _applied(low: int | None, high: int | None) -> int:
    """`clocks.correction` for one hour, in plain Python."""
    if (low or 0) <= TOLERANCE_US and (high or 0) >= -TOLERANCE_US:
        return 0
    if low is not None and high is not None:
        return (low + high) // 2
    return next(value for value in (low, high) if value is not None)


def _queue_name(queue: str, ledgers: LedgerState) -> str:
    return ledgers.queue_names.get(queue, f"queue {queue[:8]}")
