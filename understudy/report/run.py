"""Contents of the page of one reconciled run, from the job's result. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark.insight.words import count
from understudy.report.picture import NARROW, WIDE, Canvas, Panel, Picture, Series, thin
from understudy.report.scale import spell

WORDS = {"proven": "Proven", "violated": "Violated", "not provable": "Not provable"}
TOTALS = (
    ("published", "published", "messages; a message that was resent counts once"),
    ("confirmed", "confirmed", "of these, confirmed to their producer"),
    ("received", "received", "ids that a consumer received at least once, over all queues"),
    ("lost", "lost", "confirmed, and neither consumed, removed for a reason, nor there at the end"),
    ("duplicated", "duplicated", "received more than once, allowed or not"),
    ("in_doubt", "in doubt", "sent, but never answered"),
)
NUMBERED = (
    ("left_out", "left out", "sent again with their numbers, which their queues had had, over all queues"),
    ("doubled", "doubled in queues", "ids with a number that their queue had had"),
)
"""Totals of producers that number their messages."""
RATES = (("sent", "published"), ("confirmed", "confirmed"), ("received", "received"))
LATENCIES = (("p50_us", "p50"), ("p99_us", "p99"))
NARROW_POINTS = 120
SHOWN_FINDINGS = 60


def view(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Variables of the template `run.html`."""
    lead = answer["sentence"].removeprefix(f"{WORDS[answer['verdict']]}: ")
    by_weight = {
        severity: [f for f in answer["findings"] if f["severity"] == severity]
        for severity in ("violation", "unknown", "allowed")
    }
    told = (*TOTALS, *NUMBERED) if answer["totals"].get("numbered") else TOTALS
    pictures = [("broad", draw(answer, WIDE)), ("narrow", draw(answer, NARROW))]
    return {
        "columns": columns(answer), "pictures": pictures, "described": describe(answer),
        "lead": lead[:1].upper() + lead[1:],
        "word": WORDS[answer["verdict"]], "totals": told, "findings": by_weight, "shown": SHOWN_FINDINGS,
        "counted": {
            "violations": count(len(by_weight["violation"]), "violation"),
            "missing": count(len(answer["missing"]), "thing"),
        },
        "latency": answer.get("latency"), "clocks": [c for c in answer.get("clocks", ()) if c["sentence"]],
    }  # fmt: skip


COLUMNS = (
    ("enqueued", "enqueued"), ("confirmed", "confirmed"), ("received", "received"), ("dequeued", "dequeued"),
    ("present", "present"), ("lost", "lost"), ("duplicate_redelivered", "redelivered"),
    ("quarantined", "quarantined"), ("unconfirmed", "unconfirmed"),
)  # fmt: skip
RARE = ("quarantined", "unconfirmed")
"""Columns that are left out if they are 0 for every queue."""


def columns(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Key and heading of each column in the table of queues."""
    some = {key for queue in answer["queues"] for epoch in queue["epochs"] for key in RARE if epoch[key]}
    return [(key, name) for key, name in COLUMNS if key not in RARE or key in some]


def draw(answer: Mapping[str, Any], width: int) -> Picture:
    """Rates, confirm latency below them, then a band for each node. Outages are shaded across all panels."""
    line = answer["timeline"]
    slot, begin = int(line["slot_us"]), int(line["start_us"])
    most = NARROW_POINTS if width == NARROW else len(line["sent"]) or 1
    canvas = Canvas(begin, begin + slot * max(len(line["sent"]), 1), width)
    rates, group = [], 1
    for name, legend in RATES:
        values, group = thin([value * 1e6 / slot for value in line[name]], most, worst=False)
        rates.append(Series(name, legend, values))
    canvas.panel(Panel("messages a second", rates, 190 if width == WIDE else 150), slot * group)
    latency = answer.get("latency")
    if latency:
        lines = [
            Series(name[:3], legend, thin(latency["slots"][name], most, worst=True)[0])
            for name, legend in LATENCIES
        ]
        canvas.panel(Panel("confirm latency", lines, 110, log=True), slot * group)
    canvas.failovers(answer["failovers"])
    canvas.times()
    canvas.bands(answer["nodes"])
    return canvas.picture


def describe(answer: Mapping[str, Any]) -> str:
    """The picture in words, for readers who do not see it."""
    line = answer["timeline"]
    seconds = int(line["slot_us"]) * len(line["sent"]) / 1e6
    peak = max((value * 1e6 / line["slot_us"] for value in line["confirmed"]), default=0)
    text = f"{spell(seconds * 1e6)} of traffic, at most {peak:,.0f} confirms a second."
    latency = answer.get("latency")
    if latency:
        text += f" Half of all confirms came within {spell(latency['p50_us'])}, 99 % within "
        text += f"{spell(latency['p99_us'])}."
    for failover in answer["failovers"]:
        text += f" {failover['node']} was promoted in epoch {failover['epoch']}"
        outage = failover["outage_ms"]
        text += "." if outage is None else f", with {spell(outage * 1000)} without a confirm."
    return text
