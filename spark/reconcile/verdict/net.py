"""Joins the answers about several clusters, and what went over the links between them, into one answer.

Pure, on the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark.reconcile.ledgers.federation import Link, Net
from spark.reconcile.ledgers.state import LEVELS
from spark.reconcile.verdict.result import HOPS, NOT_PROVABLE, PROVEN, VIOLATED, VIOLATION, doubled, link_of

Answer = dict[str, Any]
Amounts = Mapping[str, Mapping[str, int]]
_JOINED = ("failovers", "queues", "findings", "nodes", "clocks")
"""Lists of an answer, each entry of which belongs to one cluster."""
_WEIGHT = {"violation": 0, "unknown": 1, "allowed": 2}


def joined(answers: Sequence[Answer], timeline: Mapping[str, Any]) -> Answer:
    """One answer for all clusters. Each has judged what is its own."""
    if len(answers) == 1:
        return answers[0]
    worst = min(answers, key=lambda each: (VIOLATED, NOT_PROVABLE, PROVEN).index(each["verdict"]))
    out: Answer = {**worst, "timeline": timeline}
    for name in _JOINED:
        out[name] = [entry for answer in answers for entry in answer[name]]
    out["failovers"].sort(key=lambda each: each["ts_us"])
    out["queues"].sort(key=lambda each: str(each["name"]))
    out["findings"].sort(key=lambda each: _WEIGHT[each["severity"]])
    out["missing"] = list(dict.fromkeys(text for answer in answers for text in answer["missing"]))
    writers = {(w["writer"], w["incarnation"]): w for answer in answers for w in answer["writers"]}
    out["writers"] = sorted(writers.values(), key=lambda w: (w["role"] or "", w["writer"], w["incarnation"]))
    out["clusters"] = sorted({name for answer in answers for name in answer["clusters"]})
    out["totals"] = _sums([answer["totals"] for answer in answers])
    for name in ("outage_ms", "pruned_until_us"):
        out[name] = max((answer[name] for answer in answers if answer[name] is not None), default=None)
    level = max(LEVELS.index(answer["confirm_level"]) for answer in answers)
    out["confirm_level"] = LEVELS[level]
    if out["verdict"] == PROVEN:
        confirmed, many = out["totals"]["confirmed"], len(answers)
        proven = f"Proven under {LEVELS[level]}" if level else "Proven"
        out["sentence"] = (
            f"{proven}: none of the {confirmed:,} confirmed messages of {many} nodes was lost"
            f"{doubled(out['totals'])}."
        )
    return out


def _sums(totals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        name: sum(each[name] for each in totals) if isinstance(value, int)
        else _sums([each[name] for each in totals])
        for name, value in totals[0].items()
    }  # fmt: skip


def add_hops(answer: Answer, net: Net, gone: Amounts, arrived: Amounts, lacking: Mapping[int, bool]) -> None:
    """Set `hops`, and say in the sentence what is proven of them. `gone`, `arrived`: numbers by link queue;
    `lacking`: the clusters whose ledgers lack something."""
    hops = []
    for link in net.links:
        numbers = {"transferred": 0, "arrived": 0, "unplaced": 0}
        numbers |= {**gone.get(link.queue, {}), **arrived.get(link.queue, {})}
        if any(numbers.values()):
            hops.append(_hop(link, net, numbers, answer["findings"], lacking))
    answer["hops"] = hops
    answer["sentence"] += _said(hops)


def _hop(
    link: Link, net: Net, numbers: dict[str, int], findings: Iterable[Mapping[str, Any]],
    lacking: Mapping[int, bool],
) -> Answer:  # fmt: skip
    mine = [f for f in findings if f["prod"] and link_of(f["prod"]) == link.queue]
    mine = [f for f in mine if f["kind"] in HOPS]
    absent = [
        name or "the other node" for name, end in ((link.here, link.source), (link.there, link.target))
        if end is None
    ]  # fmt: skip
    why, verdict = "", PROVEN
    if any(f["severity"] == VIOLATION for f in mine):
        verdict, why = VIOLATED, next(f["sentence"] for f in mine if f["severity"] == VIOLATION)
    elif absent:
        verdict, why = NOT_PROVABLE, f"the ledgers of {' and '.join(absent)} are not here"
    elif any(lacking.get(end, False) for end in (link.source, link.target) if end is not None):
        verdict, why = NOT_PROVABLE, "ledgers of its nodes lack records"
    return {
        "queue": link.queue, "name": net.names.get(link.queue) or None, "from": link.here or None,
        "to": link.there or None, "verdict": verdict, **numbers, "reason": why or None,
    }  # fmt: skip


def _said(hops: Sequence[Mapping[str, Any]]) -> str:
    if not hops:
        return ""
    open_ones = [hop for hop in hops if hop["verdict"] == NOT_PROVABLE]
    if open_ones:
        first = open_ones[0]
        name = first["name"] or f"from link queue {first['queue'][:8]}"
        more = f" (and {len(open_ones) - 1} more)" if len(open_ones) > 1 else ""
        return f" Not provable: the link {name}{more}, because {first['reason']}."
    if any(hop["verdict"] == VIOLATED for hop in hops):
        return ""
    sent = sum(hop["transferred"] for hop in hops)
    return f" {len(hops)} link{'s' if len(hops) > 1 else ''} carried {sent:,} messages, each once."
