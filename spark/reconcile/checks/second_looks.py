"""Which of the checks that look at few rows are worth making, and with what; each only where it can find.

The sweep over all ids counts what looks suspicious (`contents.SUSPICIONS`), the books say who served and what
kinds of records there are. Ledgers of an ordinary run answer most questions with "nothing to look at".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from spark.ranges import settle
from spark.reconcile.checks import clocks as clock
from spark.reconcile.checks import dequeues, order, primaries, quarantine, replication, transactions
from spark.reconcile.checks.contents import SUSPICIONS
from spark.reconcile.ledgers.state import LedgerState


def compare_clocks(events: DataFrame, books: LedgerState) -> clock.Clocks:
    brokers = {p.node for p in books.promotions}
    if not brokers or len(books.writers) < 2:
        return clock.Clocks()
    frames = clock.sessions(events), clock.receipts(events)
    sent, got = ([row.asDict() for row in frame.collect()] for frame in frames)
    return clock.compare(clock.pair_bounds(sent, got), brokers)


def early(
    events: DataFrame, confirmed: DataFrame, lacks: Sequence[replication.Lack], books: LedgerState,
    clocks: clock.Clocks,
) -> DataFrame | None:  # fmt: skip
    """What was confirmed early; None where every node acknowledged every position that it had to."""
    if not lacks:
        return None
    producers = {w.name for w in books.writers.values() if w.role == "producer"}
    ahead = {
        (owner, producer): us
        for owner in {p.node for p in books.promotions}
        for producer in producers
        if (us := clocks.ahead_at_most(owner, producer)) is not None
    }
    return replication.early_confirms(events, confirmed, lacks, ahead)


def second_looks(
    events: DataFrame, exact: DataFrame, segments: DataFrame, counts: Mapping[str, int], noted: DataFrame,
    books: LedgerState, clocks: clock.Clocks,
) -> list[DataFrame]:  # fmt: skip
    """FINDING_SCHEMA frames. `counts`: ids of each of SUSPICIONS. `exact`: events with every enqueued run as
    it was noted, which cost as much as there are; only for what is rare."""
    kinds = {kind for writer in books.writers.values() for kind in writer.records}

    def suspects(name: str) -> DataFrame:
        return segments.where(SUSPICIONS[name]).select("queue", "epoch", "first", "last")

    found = [dequeues.unexplained(events)]
    if counts["gone_twice"] and books.promotions:
        found.append(dequeues.dequeued_twice(events, suspects("gone_twice"), books))
    if counts["given_again"]:
        returned = dequeues.acked_returned(exact, books, clocks)
        found += [] if returned is None else [returned]
    twice = order.enqueue_findings(events)
    if counts["put_twice"]:
        by_two = settle(primaries.enqueued_by_two(events, suspects("put_twice")))
        found.append(by_two)
        twice = primaries.only_twice(twice, by_two)
    found.append(twice)
    late = primaries.late_enqueues(books, clocks)
    if late:
        found.append(primaries.overlapping(exact, late, books, clocks))
    if "quarantine" in kinds and books.promotions:
        found.append(quarantine.served(events, books))
    if counts["alone"] and quarantine.returned_owners(books):
        found.append(quarantine.missing(exact, suspects("alone"), books, noted))
    if "commit" in kinds:
        found.append(transactions.torn(events, books))
    return found


def described(books: LedgerState, clocks: clock.Clocks, writers: Sequence[str]) -> list[dict[str, Any]]:
    """`clocks` of the result, relative to the first primary."""
    if not books.promotions:
        return []
    reference = min(books.promotions, key=lambda p: p.epoch).node
    return clock.describe(clocks, writers, reference)
