"""Turns findings and ledgers into one answer: a sentence, and a dict for JSON (see `spark/README.md`).

Pure, on the driver. An event that the ledgers show twice, out of order or early is a violation. An event that
they do *not* show is a violation only if the ledgers are whole; otherwise it is unknown, and nothing is
proven.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from spark.reconcile.ledgers.federation import origin
from spark.reconcile.ledgers.state import LEVELS, Hole, LedgerState, Writer

PROVEN, VIOLATED, NOT_PROVABLE = "proven", "violated", "not provable"

VIOLATION, UNKNOWN, ALLOWED = "violation", "unknown", "allowed"
RESULT_SCHEMA = 1

WORDS = {
    "lost": "lost (confirmed, and neither consumed, removed for a reason, nor there at the end)",
    "unplaced": "lost (confirmed, in no queue, neither unrouted nor returned)",
    "hop-lost": "lost between two nodes (let go of as transferred, and never arrived)",
    "unaccounted": "once held by the last primary, and gone without a reason",
    "never-published": "delivered, though no broker ever enqueued them",
    "unsent": "enqueued or confirmed, though their producer never sent them",
    "hop-unsent": "arrived from another node, though its link queue never had them",
    "hop-doubled": "arrived twice by one link",
    "duplicate-illegal": "received twice without the redelivered flag, or resent although confirmed",
    "duplicate-redelivered": "received again, flagged redelivered",
    "duplicate-in-doubt": "received under two ids: resent by their producer while in doubt",
    "reordered": "received after a later message of the same queue and epoch, not as a redelivery",
    "reordered-enqueue": "enqueued after a later publish of the same session",
    "enqueued-twice": "enqueued twice in one queue from a single publish",
    "number-doubled": "enqueued again by a primary whose queue had had their numbers",
    "number-forgotten": "perhaps enqueued again, because the broker had forgotten their producer",
    "early": "confirmed before an in-sync backup had acknowledged them",
    "copy-differs": "not held by all nodes at a consistency checkpoint",
    "dequeued-twice": "removed from their queue twice by one primary",
    "acked-returned": "delivered again by a primary that knew of their ack",
    "unexplained": "removed from their queue without a documented reason",
    "enqueued-by-two": "enqueued under the same ids by two nodes",
    "two-primaries": "served by two primaries in one epoch",
    "quarantine-differs": "not where they belong: quarantine and queue disagree",
    "torn": "of a transaction that a node has only in part",
    "in-doubt": "sent, and never confirmed, refused or returned",
    "unknown-producer": "enqueued for a producer whose ledger is not here",
    "hop-unknown": "arrived from a node whose ledgers are not here",
    "reused": "publish tags used twice in one session: their confirms are ambiguous",
}
"""The words for each kind of finding, in the order of the report."""

WORDS_NOTED = {
    ("two-primaries", "overlap"): "served while there were two primaries",
    ("quarantine-differs", "served"): "put into quarantine although a later primary had them",
    ("quarantine-differs", "missing"): "dropped without having been put into quarantine",
}
"""Other words for some pairs of kind and note."""

COUNTED = (
    "copy-differs", "dequeued-twice", "acked-returned", "unexplained", "enqueued-by-two", "two-primaries",
    "quarantine-differs", "torn",
)  # fmt: skip
"""Kinds that the totals count under their own names."""

HOPS = frozenset({"hop-lost", "hop-unsent", "hop-doubled", "hop-unknown"})
"""Kinds about a link; its session is in `prod`."""
MILD = frozenset(
    {"duplicate-redelivered", "duplicate-in-doubt", "in-doubt", "hop-unknown", "number-forgotten"}
)
MISSING = frozenset({"unknown-producer", "reused"})
NEEDS_WHOLE_LEDGERS = frozenset(
    {
        "lost", "unplaced", "unaccounted", "never-published", "unsent", "early", "copy-differs", "torn",
        "hop-lost",
    }
)  # fmt: skip
NEEDS_INVENTORY = frozenset({"lost", "unaccounted"})
NEEDS_EACH_ONCE = frozenset(
    {"duplicate-illegal", "reordered", "dequeued-twice", "enqueued-twice", "hop-doubled", "number-doubled"}
)


@dataclass(slots=True)
class Finding:
    """One kind of finding in one place. `ranges`: the first few; `count` and `pieces` cover all ranges.

    The numbers are ids where `epoch` is set, publish tags or logical numbers of `prod` otherwise.
    """

    kind: str
    severity: str
    queue: str | None
    epoch: int | None
    prod: str | None
    note: str | None
    count: int
    pieces: int
    ranges: list[list[int]] = field(default_factory=list)


@dataclass(slots=True)
class Numbers:
    """The collected results of the transforms. `ids` has a row for each queue and epoch."""

    tags: Mapping[str, int]
    logical: Mapping[str, int]
    ids: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]
    timeline: Mapping[str, Any]
    pauses: Sequence[tuple[int, int]]
    clocks: Sequence[Mapping[str, Any]] = ()
    arrived: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """See `hops.arrived`."""
    numbered: Mapping[str, int] = field(default_factory=lambda: {"numbered": 0, "left_out": 0})
    """See `table.numbered`."""


def severity(
    kind: str, note: str | None, epoch: int | None, ledgers: LedgerState, prod: str | None = None
) -> str:
    """VIOLATION, UNKNOWN (something is missing) or ALLOWED."""
    if kind in MILD:
        return ALLOWED
    if kind in ("unsent", "unknown-producer") and of_continued(prod, ledgers):
        return ALLOWED
    if kind in MISSING:
        return UNKNOWN
    if ledgers.broken and (kind in NEEDS_WHOLE_LEDGERS or (kind, note) == ("quarantine-differs", "missing")):
        return UNKNOWN
    if kind in NEEDS_INVENTORY and not ledgers.inventory().complete:
        return UNKNOWN
    if kind == "unsent" and not _producers_whole(ledgers):
        return UNKNOWN
    if kind == "hop-unsent" and link_of(prod) in ledgers.unsure_links:
        return UNKNOWN
    if kind in NEEDS_EACH_ONCE and ledgers.repeated:
        return UNKNOWN
    if kind == "never-published" and note == "beyond" and _owner_crashed(epoch, ledgers):
        return UNKNOWN
    return VIOLATION


def of_continued(prod: str | None, ledgers: LedgerState) -> bool:
    """Whether it is a session of a killed process whose numbers a later one sent again, and tells of."""
    continued = (w for w in ledgers.writers.values() if w.end == "continued")
    return prod is not None and any(prod.startswith(f"{w.name}.{w.incarnation}.") for w in continued)


def link_of(prod: str | None) -> str:
    """The link queue of a session; "" if a client publishes in it."""
    came = origin(prod)
    return came[0] if came else ""


def _producers_whole(ledgers: LedgerState) -> bool:
    producers = [w for w in ledgers.writers.values() if w.role == "producer"]
    return not any(w.gaps or w.end in ("unknown", "outlived", "continued") for w in producers)


def _owner_crashed(epoch: int | None, ledgers: LedgerState) -> bool:
    """Whether the primary of `epoch` was killed, so that its last enqueues may be in no ledger."""
    owners = [(p.node, p.incarnation) for p in ledgers.promotions if p.epoch == epoch]
    return any(ledgers.writers[owner].end == "crashed" for owner in owners)


def gather(rows: Sequence[Mapping[str, Any]], ledgers: LedgerState) -> list[Finding]:
    """Group the rows of `job.findings` (one row per range, with the totals of its group) into findings."""
    groups: dict[tuple[Any, ...], Finding] = {}
    for row in rows:
        key = (row["label"], row["queue"], row["epoch"], row["prod"], row["note"])
        finding = groups.get(key)
        if finding is None:
            weight = severity(row["label"], row["note"], row["epoch"], ledgers, row["prod"])
            finding = Finding(key[0], weight, *key[1:], count=row["ids"], pieces=row["pieces"])
            groups[key] = finding
        finding.ranges.append([row["first"], row["last"]])
    for epoch in ledgers.two_owners:
        groups[("two-primaries", epoch)] = Finding("two-primaries", VIOLATION, None, epoch, None, None, 0, 0)
    order = {kind: place for place, kind in enumerate(WORDS)}
    weights = {VIOLATION: 0, UNKNOWN: 1, ALLOWED: 2}
    for finding in groups.values():
        finding.ranges.sort()

    def rank(f: Finding) -> tuple[object, ...]:
        return weights[f.severity], order[f.kind], f.queue or "", f.epoch or 0, f.prod or "", f.note or ""

    return sorted(groups.values(), key=rank)


REACH_US = 60_000_000
"""Largest distance between a promotion and a pause in confirms that belongs to it."""


def clocks_agree(ledgers: LedgerState, clocks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the times of producers and primaries can be compared: none of their clocks is certainly off."""
    timed = {w.name for w in ledgers.writers.values() if w.role == "producer"}
    timed |= {p.node for p in ledgers.promotions}
    return not any(clock["sentence"] for clock in clocks if clock["writer"] in timed)


def failovers(ledgers: LedgerState, pauses: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Each promotion after the first of its line, with the outage that producers saw, in ms (None: no
    confirms on both sides).

    `around_ms`: from the last confirm before the promotion to the first one after it; 0 if less than 20 ms.
    `outage_ms`: the longest pause of confirms within REACH_US before or after the promotion.
    """
    out = []
    starts = [line[0] for line in ledgers.lines() if not line[0].previous]
    for promotion in sorted(ledgers.promotions, key=lambda p: p.epoch):
        if promotion in starts:
            continue
        at = promotion.ts_us
        near = [(b - a, a, b) for a, b in pauses if a <= at + REACH_US and b >= at - REACH_US]
        around = [(b - a, a, b) for a, b in pauses if a <= at <= b]
        longest = max(around or near, default=None)
        out.append({
            "epoch": promotion.epoch, "node": promotion.node, "previous": promotion.previous or None,
            "reason": promotion.reason, "ts_us": at,
            "outage_ms": longest and round(max(near)[0] / 1000, 1),
            "around_ms": (round(around[0][0] / 1000, 1) if around else 0.0) if longest else None,
            "from_us": longest and longest[1], "to_us": longest and longest[2],
        })  # fmt: skip
    return out


def result(ledgers: LedgerState, numbers: Numbers, files: Mapping[str, Any]) -> dict[str, Any]:
    """The whole answer. `spark/README.md` documents its schema."""
    found = gather(numbers.findings, ledgers)
    unknown = [f for f in found if f.severity == UNKNOWN]
    missing = [*ledgers.missing, *(_sentence(f, ledgers) for f in unknown)]
    if not ledgers.inventory().complete and any(f.kind in NEEDS_INVENTORY for f in unknown):
        missing.append("the last primary did not end cleanly, so what its queues held at the end is unknown")
    violated = [f for f in found if f.severity == VIOLATION]
    verdict = VIOLATED if violated else NOT_PROVABLE if missing else PROVEN
    fails = failovers(ledgers, numbers.pauses if clocks_agree(ledgers, numbers.clocks) else ())
    outages = [f["outage_ms"] for f in fails if f["outage_ms"] is not None]
    totals = _totals(numbers, found)
    return {
        "schema": RESULT_SCHEMA,
        "verdict": verdict,
        "sentence": _headline(verdict, totals, violated, missing, ledgers) + _begin(ledgers),
        "missing": missing,
        "confirm_level": LEVELS[weakest(ledgers)],
        "pruned_until_us": ledgers.pruned_us or None,
        "totals": totals,
        "outage_ms": max(outages, default=None),
        "failovers": fails,
        "queues": _queues(numbers, found, ledgers, missing),
        "findings": [*(_finding(f, ledgers) for f in found), *map(_hole, ledgers.holes)],
        "nodes": bands(ledgers),
        "writers": [_writer(w) for w in sorted(ledgers.writers.values(), key=lambda w: (w.role, w.process))],
        "clusters": sorted(ledgers.clusters),
        "files": {**files, "unreadable_lines": ledgers.unreadable},
        "timeline": numbers.timeline,
        "clocks": list(numbers.clocks),
        "hops": [],
    }


def _totals(numbers: Numbers, found: Sequence[Finding]) -> dict[str, Any]:
    def count(*kinds: str, weights: tuple[str, ...] = (VIOLATION, ALLOWED)) -> int:
        return sum(f.count for f in found if f.kind in kinds and f.severity in weights)

    def total(name: str) -> int:
        return sum(row[name] for row in numbers.ids)

    kinds = ("redelivered", "in-doubt", "illegal")
    return {
        "published": numbers.logical["published"],
        "sends": numbers.tags["sends"],
        "resent": numbers.tags["sends"] - numbers.logical["published"],
        "confirmed": numbers.logical["confirmed"],
        "nacked": numbers.tags["nacked"],
        "returned": numbers.tags["returned"],
        "unrouted": numbers.tags["unrouted"],
        "enqueued": total("enqueued"),
        "confirmed_ids": total("confirmed"),
        "received": total("received"),
        "deliveries": total("deliveries"),
        "acked": total("acked"),
        "dequeued": total("dequeued"),
        "present": total("present"),
        "quarantined": total("quarantined"),
        "lost": count("lost", "unplaced", "hop-lost"),
        "perhaps_lost": count("lost", "unplaced", "hop-lost", weights=(UNKNOWN,)),
        "duplicated": count(*(f"duplicate-{kind}" for kind in kinds)),
        "duplicates": {kind.replace("-", "_"): count(f"duplicate-{kind}") for kind in kinds},
        "in_doubt": count("in-doubt"),
        "reordered": count("reordered", "reordered-enqueue"),
        "early": count("early"),
        "doubled": count("number-doubled", "number-forgotten"),
        **numbers.numbered,
        **{kind.replace("-", "_"): count(kind) for kind in COUNTED},
    }


def _queues(
    numbers: Numbers, found: Sequence[Finding], ledgers: LedgerState, missing: Sequence[str]
) -> list[dict[str, Any]]:
    """A verdict for each queue with messages, and its numbers for each epoch."""
    epochs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(numbers.ids, key=lambda r: (r["queue"], r["epoch"])):
        epoch = {key: row[key] for key in row if key != "queue"}
        for kind in ("lost", "duplicate-redelivered", "duplicate-illegal", "reordered"):
            mine = [f for f in found if (f.kind, f.queue, f.epoch) == (kind, row["queue"], row["epoch"])]
            epoch[kind.replace("-", "_")] = sum(f.count for f in mine if f.severity != UNKNOWN)
        epochs[row["queue"]].append(epoch)
    bad = {f.queue for f in found if f.severity == VIOLATION}
    out = [
        {
            "queue": queue, "name": _queue_name(queue, ledgers),
            "verdict": VIOLATED if queue in bad else NOT_PROVABLE if missing else PROVEN, "epochs": rows,
        }
        for queue, rows in epochs.items()
    ]  # fmt: skip
    return sorted(out, key=lambda q: str(q["name"]))


def _queue_name(queue: str, ledgers: LedgerState) -> str:
    return ledgers.queue_names.get(queue, f"queue {queue[:8]}")


def _where(finding: Finding, ledgers: LedgerState) -> str:
    parts = []
    if finding.queue is not None:
        parts.append(_queue_name(finding.queue, ledgers))
    if link := link_of(finding.prod):
        parts.append(f"link queue {_queue_name(link, ledgers)}")
    elif finding.prod is not None:
        parts.append(f"producer {finding.prod}")
    if finding.epoch is not None:
        parts.append(f"epoch {finding.epoch}")
    if finding.ranges:
        listed = ", ".join(f"{a}..{b}" if a != b else f"{a}" for a, b in finding.ranges[:8])
        more = f" and {finding.pieces - 8} more ranges" if finding.pieces > 8 else ""
        ids = finding.epoch is not None or link
        parts.append(("ids " if ids else "numbers ") + listed + more)
    return ", ".join(parts)


REMARKS = {
    "quarantined": " (a copy is in quarantine)",
    "received": " (a consumer received them)",
    "overlap": ", confirmed by a primary after its successor had begun",
    "missing": " (they were on the disk of a primary that came back, and nowhere else)",
}


def _remark(finding: Finding) -> str:
    """The note of a finding in words, if it has one."""
    note = finding.note or ""
    if finding.kind == "early" and note:
        return ""
    if finding.kind in ("unsent", "unknown-producer") and finding.severity == ALLOWED:
        return " in a process that was killed; a later one sent their numbers again"
    if finding.kind in ("dequeued-twice", "acked-returned", "torn"):
        return f" (on {note})"
    if finding.kind == "unexplained":
        return f" (the reason given is {note!r})" if note else " (no reason is given)"
    return REMARKS.get(note, "")


def _sentence(finding: Finding, ledgers: LedgerState) -> str:
    perhaps = "perhaps " if finding.severity == UNKNOWN and finding.kind not in MISSING else ""
    plural = "" if finding.count == 1 else "s"
    amount = f"{finding.count:,} message{plural} " if finding.count else "messages "
    note = _remark(finding)
    if finding.kind == "early" and finding.note:
        return (
            f"{amount}{perhaps}confirmed before they were on the {finding.note}: {_where(finding, ledgers)}"
        )
    words = WORDS_NOTED.get((finding.kind, finding.note or ""), WORDS[finding.kind])
    return f"{amount}{perhaps}{words}{note}: {_where(finding, ledgers)}"


def _finding(finding: Finding, ledgers: LedgerState) -> dict[str, Any]:
    return {
        "kind": finding.kind, "severity": finding.severity, "queue": finding.queue,
        "name": _queue_name(finding.queue, ledgers) if finding.queue else None, "epoch": finding.epoch,
        "prod": finding.prod, "note": finding.note, "count": finding.count, "pieces": finding.pieces,
        "ranges": finding.ranges, "sentence": _sentence(finding, ledgers),
    }  # fmt: skip


def _hole(hole: Hole) -> dict[str, Any]:
    """A hole in a ledger as a finding. Its numbers are record numbers (`wseq`)."""
    return {
        "kind": hole.kind, "severity": ALLOWED if hole.excused else UNKNOWN, "queue": None, "name": None,
        "epoch": None, "prod": f"{hole.writer}#{hole.incarnation}", "note": hole.file or None,
        "count": hole.last - hole.first + 1, "pieces": 1, "ranges": [[hole.first, hole.last]],
        "sentence": hole.sentence,
    }  # fmt: skip


def _headline(
    verdict: str,
    totals: Mapping[str, Any],
    violated: Sequence[Finding],
    missing: Sequence[str],
    ledgers: LedgerState,
) -> str:
    confirmed = f"{totals['confirmed']:,} confirmed messages"
    if verdict == PROVEN:
        resolved = f", {totals['in_doubt']:,} never confirmed" if totals["in_doubt"] else ""
        under = f" under {LEVELS[level]}" if (level := weakest(ledgers)) else ""
        return f"Proven{under}: none of the {confirmed} was lost{resolved}{doubled(totals)}."
    if verdict == VIOLATED:
        more = f" (and {len(violated) - 1} more findings)" if len(violated) > 1 else ""
        return f"Violated: {_sentence(violated[0], ledgers)}{more}.{_risk(ledgers)}"
    more = f" (and {len(missing) - 1} more reasons)" if len(missing) > 1 else ""
    return f"Not provable: {missing[0]}{more}."


def weakest(ledgers: LedgerState) -> int:
    """The weakest level by which anything was confirmed, as a place in LEVELS."""
    return max((change.level for change in ledgers.levels), default=0)


def _risk(ledgers: LedgerState) -> str:
    """What a level below `all-disks` may have cost, as a sentence."""
    if not (level := weakest(ledgers)):
        return ""
    whose = "disks" if level > 1 else "the disks of backups"
    return f" Confirms did not wait for {whose} ({LEVELS[level]}): a loss of power may cost such messages."


def doubled(totals: Mapping[str, Any]) -> str:
    """Words about the numbers of producers, if there are any."""
    if not totals["numbered"]:
        return ""
    left_out = f" ({totals['left_out']:,} left out)" if totals["left_out"] else ""
    return f", {totals['doubled']:,} duplicated in the queues{left_out}"


def _begin(ledgers: LedgerState) -> str:
    """A sentence about pruned ledgers, if some are pruned."""
    if not ledgers.pruned_us:
        return ""
    when = datetime.fromtimestamp(ledgers.pruned_us / 1e6, UTC).isoformat(sep=" ", timespec="seconds")
    return f" The ledgers were pruned: events up to {when.removesuffix('+00:00')} UTC are not judged."


def _writer(writer: Writer) -> dict[str, Any]:
    return {
        "writer": writer.name, "incarnation": writer.incarnation, "role": writer.role or None,
        "end": writer.end, "ended_by": writer.ended_by or None, "records": sum(writer.records.values()),
        "first_us": writer.first_us, "last_us": writer.last_us, "gaps": [list(gap) for gap in writer.gaps],
        "repeats": [list(gap) for gap in writer.repeats], "torn_lines": writer.torn,
    }  # fmt: skip


def bands(ledgers: LedgerState) -> list[dict[str, Any]]:
    """For the chart: when each broker process was active, ready or joining, and in which epoch."""
    bands: list[dict[str, Any]] = []
    for writer in sorted(ledgers.writers.values(), key=lambda w: (w.name, w.first_us)):
        for view, (_, end) in sorted(writer.views.items()) if writer.role == "broker" else []:
            turns = _turns(writer, view, ledgers)
            for (start, state), (stop, _) in zip(turns, [*turns[1:], (end, "")], strict=True):
                if stop > start:
                    bands.append({
                        "node": writer.name, "incarnation": writer.incarnation, "epoch": view, "state": state,
                        "from_us": start, "to_us": stop,
                    })  # fmt: skip
    return bands


def _turns(writer: Writer, view: int, ledgers: LedgerState) -> list[tuple[int, str]]:
    """The states of a process in this view, each with its start."""
    begin, end = writer.views[view]
    if any((p.node, p.incarnation, p.epoch) == (*writer.process, view) for p in ledgers.promotions):
        ceased = writer.demoted.get(view)
        return [(begin, "active")] if ceased is None else [(begin, "active"), (ceased, "joining")]
    turns = [(begin, "joining")]
    for change in sorted(ledgers.changes, key=lambda c: c.wseq):
        if change.view == view and change.node != writer.name and change.ts_us <= end:
            state = "ready" if writer.name in change.names else "joining"
            at = max(begin, change.ts_us)
            if at == turns[-1][0]:
                turns[-1] = (at, state)
            elif state != turns[-1][1]:
                turns.append((at, state))
    return turns
