"""Contents of the page of `understudy report`, from its answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from understudy.report.picture import NARROW, WIDE, Canvas, Panel, Picture, Series, thin
from understudy.report.run import LATENCIES, RATES
from understudy.report.scale import spell

MEASURES = (
    ("confirm", "confirm latency", "producer", "from the first send to its confirm, by the producer's clock"),
    ("end_to_end", "end to end latency", "queue", "from the first send to the first receipt by a consumer"),
    (
        "replication",
        "replication lag",
        "backup",
        "from the primary's enqueue to the backup's acknowledgement",
    ),
)
NARROW_POINTS = 180
LABELLED = 6
"""Up to this number of failovers, the picture labels their outages."""
SPARK_WIDTH, SPARK_HEIGHT = 120, 22


def view(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Variables of the template `survey.html`."""
    return {
        "pictures": [("broad", draw(answer, WIDE)), ("narrow", draw(answer, NARROW))],
        "described": answer["sentence"], "measures": MEASURES, "latency": answer["latency"],
        "tiles": list(tiles(answer)), "rows": rows(answer),
        "bars": {consumer["consumer"]: bars(consumer["rows"]) for consumer in answer["consumers"]},
        "spark": (SPARK_WIDTH, SPARK_HEIGHT),
        "begin": day(answer["since_us"]), "end": day(answer["until_us"]),
    }  # fmt: skip


def day(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%d %b %Y %H:%M")


def tiles(answer: Mapping[str, Any]) -> Sequence[tuple[str, str, str]]:
    """Name, value and explanation of each figure at the top of the page."""
    totals, latency = answer["totals"], answer["latency"]

    def share(name: str, key: str) -> str:
        return "–" if latency[name] is None else spell(latency[name][key])

    outages = [f["outage_ms"] for f in answer["failovers"] if f["outage_ms"] is not None]
    rate = totals["redelivered"] / totals["received"] if totals["received"] else 0
    return (
        ("confirmed", f"{totals['confirmed']:,}", "messages confirmed to their producer"),
        ("delivered", f"{totals['received']:,}", "ids that consumers received, including repetitions"),
        ("confirm, p99", share("confirm", "p99_us"), MEASURES[0][3]),
        ("end to end, p99", share("end_to_end", "p99_us"), MEASURES[1][3]),
        ("replication, p99", share("replication", "p99_us"), MEASURES[2][3]),
        ("redelivered", f"{100 * rate:.2g} %", "of the deliveries, flagged redelivered"),
        ("failovers", f"{len(answer['failovers'])}", "promotions after the first"),
        (
            "longest outage",
            spell(max(outages) * 1000) if outages else "–",
            "without a confirm, at a promotion",
        ),
    )


def draw(answer: Mapping[str, Any], width: int) -> Picture:
    """Rates, each latency, and the share of redelivered messages over time. Outages are shaded across all
    panels."""
    slot, rates = answer["slot_us"], answer["rates"]["slots"]
    begin = rates[0]["from_us"] if rates else answer["since_us"]
    most = NARROW_POINTS if width == NARROW else len(rates) or 1
    canvas = Canvas(begin, begin + slot * max(len(rates), 1), width)
    lines, group = [], 1
    for name, legend in RATES:
        values, group = thin([row[name] * 1e6 / slot for row in rates], most, worst=False)
        lines.append(Series(name, legend, values))
    canvas.panel(Panel("messages a second", lines, 150), slot * group)
    for name, title, _, _ in MEASURES:
        measure = answer["latency"][name]
        if measure:
            at = {row["from_us"]: row for row in measure["slots"]}
            along = [
                Series(
                    key[:3],
                    legend,
                    thin([at.get(r["from_us"], {}).get(key) for r in rates], most, worst=True)[0],
                )
                for key, legend in LATENCIES
            ]
            canvas.panel(Panel(title, along, 90, log=True), slot * group)
    shares = [row["redelivered"] / row["received"] if row["received"] else None for row in rates]
    if any(shares):
        again = Series("again", "redelivered", thin(shares, most, worst=True)[0])
        canvas.panel(Panel("share redelivered", [again], 60, text=_percent), slot * group)
    canvas.failovers(answer["failovers"], labels=len(answer["failovers"]) <= LABELLED)
    canvas.times()
    return canvas.picture


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def rows(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table over time: ids, quantiles of each measure, failovers."""
    width = answer["row_us"]
    form = "%d %b %Y" if width >= 86_400_000_000 else "%d %b %H:%M"
    found = {
        name: {row["from_us"]: row for row in measure["rows"]} if measure else {}
        for name, measure in answer["latency"].items()
    }
    out = []
    for row in answer["rates"]["rows"]:
        at = row["from_us"]
        inside = [f for f in answer["failovers"] if at <= f["ts_us"] < at + width]
        out.append({
            **row, "name": datetime.fromtimestamp(at / 1e6, UTC).strftime(form),
            "rate": row["redelivered"] / row["received"] if row["received"] else 0.0,
            "failovers": len(inside),
            **{name: known.get(at) for name, known in found.items()},
        })  # fmt: skip
    return out


def bars(values: Sequence[int]) -> list[tuple[float, float, float, float]]:
    """x, y, width and height of a small bar for each value."""
    top, width = max(values, default=0) or 1, SPARK_WIDTH / max(len(values), 1)
    heights = [max(round(SPARK_HEIGHT * value / top, 1), 1.0 if value else 0.0) for value in values]
    return [
        (round(k * width, 1), round(SPARK_HEIGHT - height, 1), round(max(width * 0.8, 0.5), 1), height)
        for k, height in enumerate(heights)
        if height
    ]
