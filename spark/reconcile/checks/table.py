"""All checks of the reconciling job as a table: first the facts to compute, then the checks that use them.

Each entry has a name, the names of its inputs, and a function of these. Inputs are the values of GIVEN and
the entries above; `run` works from top to bottom. The sweep over all ids counts suspicious ids
(`contents.SUSPICIONS`), and the state of the ledgers shows who served and which kinds of records exist. In an
ordinary run most checks therefore return None ("nothing to check") at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from spark.ranges import settle
from spark.reconcile.checks import (
    clocks,
    contents,
    dequeues,
    hops,
    interest,
    numbers,
    order,
    primaries,
    publishing,
    quarantine,
    replication,
    transactions,
)
from spark.reconcile.checks.horizon import Horizon, horizon
from spark.reconcile.input.runs import Interest, Spans, expand, tangled_pairs
from spark.reconcile.input.tallies import any_late, tally, unshelve
from spark.reconcile.ledgers.ends import Life, let_continued_go
from spark.reconcile.ledgers.federation import origin
from spark.reconcile.ledgers.state import LedgerState

Facts = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Fact:
    """A value that is computed once. `needs`: names of the facts that `run` takes, in this order.

    `stage`: the progress text to show before; empty: the previous one still applies.
    """

    name: str
    needs: tuple[str, ...]
    run: Callable[..., Any]
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A check of the facts in `needs`. `run` returns findings (FINDING_SCHEMA), or None: nothing to check."""

    name: str
    needs: tuple[str, ...]
    run: Callable[..., DataFrame | None]


GIVEN = ("packed", "plain", "ledgers", "hulls", "pruned")
"""`packed`: events that hold a block. `plain`: all other events. `hulls`: events that show whether ids are in
plain order. `pruned`: whether some ledger is pruned."""


# -- facts that need more than one call


def _unacknowledged(ledgers: LedgerState, noted: DataFrame) -> list[replication.Lack]:
    return replication.unacknowledged(ledgers, (row.asDict() for row in noted.collect()))


def _tangled(hulls: Rows) -> Any:
    return tangled_pairs(row for row in hulls if row["kind"] == "hull")


def _events(rest: DataFrame, packed: DataFrame, close: Interest) -> DataFrame:
    joined = rest.unionByName(expand(packed, close))
    return settle(joined.unionByName(tally(packed), allowMissingColumns=True))


def _exact(rest: DataFrame, packed: DataFrame, answers: tuple[Spans, Spans]) -> DataFrame:
    """Events with every enqueued run as recorded. The cost grows with the number of runs: for rare checks
    only."""
    every_run = expand(packed, Interest(answers[0], everything=True))
    return rest.unionByName(unshelve(packed)).unionByName(every_run)


def _linked(tangled: Iterable[tuple[str, str]]) -> bool:
    """Whether a link may have taken messages again: then their runs are as recorded."""
    return any(origin(prod) for _, prod in tangled)


def _continued(hulls: Rows, logical: DataFrame, ledgers: LedgerState) -> None:
    """Excuse killed producers whose later processes sent all in doubt again, in `ledgers`."""
    tops: dict[str, int] = {}
    for row in hulls:
        if row["kind"] == "numbers":
            tops[row["name"]] = max(row["last"], tops.get(row["name"], 0))
    those = [w for w in ledgers.writers.values() if w.role == "producer" and w.name in tops]
    if not any(w.end == "unknown" for w in those):
        return
    by_stream = {f"{w.name}#{w.incarnation}": w.process for w in those}
    rows = publishing.lives(logical, list(by_stream)).collect()
    lives = {by_stream[row["stream"]]: Life(row["first"], row["last"], row["open"]) for row in rows}
    let_continued_go(ledgers, lives, tops)


def _tags(events: DataFrame, numbered: numbers.Judged) -> DataFrame:
    if numbered.again or numbered.unnamed:
        more = numbers.as_placed(events.sparkSession, numbered)
        events = events.unionByName(more, allowMissingColumns=True)
    return settle(publishing.tag_segments(interest.as_publishers_say(events)))


def _placed(events: DataFrame, numbered: numbers.Judged) -> DataFrame:
    own = publishing.placements(events)
    if numbered.again:
        own = own.unionByName(numbers.placements(events.sparkSession, numbered, own.columns))
    return settle(own)


def _confirmed(
    placed: DataFrame, settled: DataFrame, events: DataFrame, tangled: frozenset[tuple[str, str]]
) -> DataFrame:
    runs = publishing.confirmed_ids(hops.latest(placed) if _linked(tangled) else placed, settled)
    return settle(runs.unionByName(interest.sure_ids(events, runs.columns)))


def _clocks(events: DataFrame, ledgers: LedgerState) -> clocks.Clocks:
    brokers = {p.node for p in ledgers.promotions}
    if not brokers or len(ledgers.writers) < 2:
        return clocks.Clocks()
    frames = clocks.sessions(events), clocks.receipts(events)
    sent, got = ([row.asDict() for row in frame.collect()] for frame in frames)
    return clocks.compare(clocks.pair_bounds(sent, got), brokers)


def _late(hulls: Rows, exact: DataFrame) -> DataFrame:
    behind = any_late(row for row in hulls if row["kind"] == "receipts")
    return order.late_receipts(exact if behind else exact.where("false"))


def _segments(
    events: DataFrame, confirmed: DataFrame, late: DataFrame, ledgers: LedgerState, begin: Horizon | None
) -> DataFrame:
    segments = contents.id_segments(
        events, confirmed, late, ledgers.inventory(), dequeues.digits(ledgers)
    )  # fmt: skip
    return settle(begin.of_ids(segments) if begin else segments)


def _totals(segments: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in contents.id_totals(segments).collect()]


def _suspicious(totals: Rows) -> dict[str, int]:
    """Number of ids for each of SUSPICIONS."""
    return {name: sum(row[name] for row in totals) for name in contents.SUSPICIONS}


def _kinds(ledgers: LedgerState) -> set[str]:
    return {kind for writer in ledgers.writers.values() for kind in writer.records}


def _by_two(events: DataFrame, segments: DataFrame, suspicious: Mapping[str, int]) -> DataFrame | None:
    if not suspicious["put_twice"]:
        return None
    return settle(primaries.enqueued_by_two(events, _suspects(segments, "put_twice")))


def _suspects(segments: DataFrame, name: str) -> DataFrame:
    return segments.where(contents.SUSPICIONS[name]).select("queue", "epoch", "first", "last")


def only_row(frame: DataFrame) -> dict[str, int]:
    return {key: value or 0 for key, value in frame.collect()[0].asDict().items()}


FACTS = (
    Fact("answers", ("plain",), interest.answers, "matching publishes with confirms"),
    Fact("sent", ("plain",), lambda plain: settle(publishing.sends(plain))),
    Fact("settled", ("plain", "answers"), lambda plain, a: interest.settled_frame(plain.sparkSession, *a)),
    Fact("logical", ("sent", "settled"), lambda *frames: settle(publishing.logical_segments(*frames))),
    Fact("logical_counts", ("logical",), lambda frame: only_row(publishing.logical_totals(frame))),
    Fact("continued", ("hulls", "logical", "ledgers"), _continued),
    Fact("resent", ("sent", "logical"), lambda *frames: settle(publishing.resent_tags(*frames))),
    Fact("noted", ("plain",), lambda plain: settle(replication.acks(plain))),
    Fact("lacks", ("ledgers", "noted"), _unacknowledged),
    Fact("tangled", ("hulls",), _tangled),
    Fact("said", ("plain", "ledgers"), numbers.said),
    Fact("in_doubt", ("hulls", "said"), numbers.in_doubt),
    Fact("close", ("plain", "answers", "resent", "lacks", "tangled", "in_doubt"),
         lambda plain, answers, *more: interest.closer(plain, answers[0], *more)),
    Fact("rest", ("plain",), lambda plain: plain.where("kind not in ('hull', 'receipts', 'numbers')"),
         "unpacking runs that need a closer look"),
    Fact("events", ("rest", "packed", "close"), _events),
    Fact("exact", ("rest", "packed", "answers"), _exact),
    Fact("numbered", ("events", "in_doubt", "said", "ledgers", "pruned"), numbers.judge),
    Fact("tags", ("events", "numbered"), _tags),
    Fact("tag_counts", ("tags",), lambda tags: only_row(publishing.tag_totals(tags))),
    Fact("placed", ("events", "numbered"), _placed),
    Fact("confirmed", ("placed", "settled", "events", "tangled"), _confirmed),
    Fact("clocks", ("events", "ledgers"), _clocks, "comparing clocks"),
    Fact("late", ("hulls", "exact"), _late, "following every id through its queue"),
    Fact("begin", ("plain", "pruned"), lambda plain, pruned: horizon(plain) if pruned else None),
    Fact("segments", ("events", "confirmed", "late", "ledgers", "begin"), _segments),
    Fact("totals", ("segments",), _totals),
    Fact("suspicious", ("totals",), _suspicious),
    Fact("kinds", ("ledgers",), _kinds, "looking for lost, duplicated and reordered messages"),
    Fact("by_two", ("events", "segments", "suspicious"), _by_two),
)  # fmt: skip


# -- checks that run only where they can find something


def _early(
    exact: DataFrame, confirmed: DataFrame, lacks: Sequence[replication.Lack], ledgers: LedgerState,
    known: clocks.Clocks,
) -> DataFrame | None:  # fmt: skip
    """Ids confirmed early; None if every node acknowledged every required position."""
    if not lacks:
        return None
    producers = {w.name for w in ledgers.writers.values() if w.role == "producer"}
    ahead = {
        (owner, producer): us
        for owner in {p.node for p in ledgers.promotions}
        for producer in producers
        if (us := known.ahead_at_most(owner, producer)) is not None
    }
    return replication.early_confirms(exact, confirmed, lacks, ahead)


def _dequeued_twice(
    events: DataFrame, segments: DataFrame, suspicious: Mapping[str, int], ledgers: LedgerState
) -> DataFrame | None:
    if not suspicious["gone_twice"] or not ledgers.promotions:
        return None
    return dequeues.dequeued_twice(events, _suspects(segments, "gone_twice"), ledgers)


def _acked_returned(
    exact: DataFrame, suspicious: Mapping[str, int], ledgers: LedgerState, known: clocks.Clocks
) -> DataFrame | None:
    return dequeues.acked_returned(exact, ledgers, known) if suspicious["given_again"] else None


def _enqueued_twice(events: DataFrame, by_two: DataFrame | None) -> DataFrame:
    twice = order.enqueue_findings(events)
    return twice if by_two is None else primaries.only_twice(twice, by_two)


def _overlapping(exact: DataFrame, ledgers: LedgerState, known: clocks.Clocks) -> DataFrame | None:
    late = primaries.late_enqueues(ledgers, known)
    return primaries.overlapping(exact, late, ledgers, known) if late else None


def _served(events: DataFrame, ledgers: LedgerState, kinds: set[str]) -> DataFrame | None:
    return quarantine.served(events, ledgers) if "quarantine" in kinds and ledgers.promotions else None


def _not_quarantined(
    exact: DataFrame, segments: DataFrame, suspicious: Mapping[str, int], ledgers: LedgerState,
    noted: DataFrame,
) -> DataFrame | None:  # fmt: skip
    if not suspicious["alone"] or not quarantine.returned_owners(ledgers):
        return None
    return quarantine.missing(exact, _suspects(segments, "alone"), ledgers, noted)


def _resent(
    resent: DataFrame, placed: DataFrame, events: DataFrame, tag_counts: Mapping[str, int],
    logical_counts: Mapping[str, int],
) -> DataFrame | None:  # fmt: skip
    if tag_counts["sends"] <= logical_counts["published"]:
        return None
    again = publishing.resent_ids(resent, placed)
    return publishing.resend_findings(again, events.where("kind = 'received'"))


def _taken_again(
    placed: DataFrame, segments: DataFrame, tangled: frozenset[tuple[str, str]]
) -> DataFrame | None:
    if not _linked(tangled):
        return None
    return hops.again(placed, segments.where(contents.FATE).select("queue", "epoch", "first", "last"))


def _numbered_twice(segments: DataFrame, numbered: numbers.Judged) -> DataFrame | None:
    fates = segments.where(contents.FATE).select("queue", "epoch", "first", "last")
    return numbers.doubled(segments.sparkSession, numbered, fates)


CHECKS = (
    Check("tags", ("tags",), publishing.tag_findings),
    Check("doubts", ("logical",), publishing.doubts),
    Check("ids", ("segments",), contents.id_findings),
    Check("early", ("exact", "confirmed", "lacks", "ledgers", "clocks"), _early),
    Check("unexplained", ("events",), dequeues.unexplained),
    Check("dequeued twice", ("events", "segments", "suspicious", "ledgers"), _dequeued_twice),
    Check("acked and returned", ("exact", "suspicious", "ledgers", "clocks"), _acked_returned),
    Check("enqueued by two", ("by_two",), lambda by_two: by_two),
    Check("enqueued twice", ("events", "by_two"), _enqueued_twice),
    Check("numbered twice", ("segments", "numbered"), _numbered_twice),
    Check("taken again", ("placed", "segments", "tangled"), _taken_again),
    Check("came twice to no queue", ("events", "ledgers"),
          lambda events, ledgers: hops.noted_twice(events) if ledgers.linked else None),
    Check("overlapping primaries", ("exact", "ledgers", "clocks"), _overlapping),
    Check("quarantined though served", ("events", "ledgers", "kinds"), _served),
    Check("not quarantined", ("exact", "segments", "suspicious", "ledgers", "noted"), _not_quarantined),
    Check("torn transactions", ("events", "ledgers", "kinds"),
          lambda events, ledgers, kinds: transactions.torn(events, ledgers) if "commit" in kinds else None),
    Check("resent", ("resent", "placed", "events", "tag_counts", "logical_counts"), _resent),
    Check("consistency checkpoints", ("events", "kinds"),
          lambda events, kinds: contents.quiesce_findings(events) if "quiesce" in kinds else None),
)  # fmt: skip


def run(given: Facts, progress: Callable[[str], None]) -> tuple[Facts, list[DataFrame]]:
    """Compute all facts by name, and the findings of each check. `given`: a value for each of GIVEN."""
    facts = dict(given)
    for fact in FACTS:
        if fact.stage:
            progress(fact.stage)
        facts[fact.name] = fact.run(*(facts[name] for name in fact.needs))
    found = (check.run(*(facts[name] for name in check.needs)) for check in CHECKS)
    begin = facts["begin"]
    return facts, [begin.of_findings(frame) if begin else frame for frame in _there(found)]


def _there(frames: Iterable[DataFrame | None]) -> Iterable[DataFrame]:
    return (frame for frame in frames if frame is not None)


def ids(facts: Facts) -> list[dict[str, Any]]:
    """The totals of ids for each queue and epoch, without the suspicions."""
    return [
        {name: value for name, value in row.items() if name not in contents.SUSPICIONS}
        for row in facts["totals"]
    ]


def numbered(facts: Facts) -> dict[str, int]:
    """The totals of numbers: enqueues of numbered messages, and those that a queue left out."""
    known = sum(row["n"] or 0 for row in facts["hulls"] if row["kind"] == "numbers")
    return {"numbered": known, "left_out": facts["said"].left_out}


def described(facts: Facts) -> list[dict[str, Any]]:
    """The `clocks` of the result, relative to the first primary."""
    ledgers: LedgerState = facts["ledgers"]
    if not ledgers.promotions:
        return []
    reference = min(ledgers.promotions, key=lambda p: p.epoch).node
    writers = sorted({w.name for w in ledgers.writers.values()})
    return clocks.describe(facts["clocks"], writers, reference)
