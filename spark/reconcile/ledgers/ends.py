"""Decides how each writer ended: by its own seal, by records of other writers, or unknown.

Pure: sets `end` of the `Writer`s in a `LedgerState`. Used by `assemble`, and for producers with numbers by
the table of checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from spark.reconcile.ledgers.state import LedgerState, Process, SyncChange, Writer

ENDLESS = {
    "producer": "so its sends and confirms after the last record are unknown",
    "consumer": "so its receipts and acks after the last record are unknown",
}
"""What stays unknown about a client whose ledger has no seal, by role."""
OUTLIVED_US = 86_400_000_000
"""A client without a seal no longer counts once its last record is this much older than all brokers' ledgers.

The margin is large because the kit writes records seconds late, and clocks may differ by hours."""


def name_ends(ledgers: LedgerState) -> None:
    """Set each writer's end: sealed, crashed (if another record shows it), or unknown.

    Only a broker's missing seal can be excused. A broker writes its ledger before it sends a confirm, so the
    ledger has everything that matters; and the lock of its data directory keeps its lives apart. A client
    writes its records later, and two of its lives may overlap: a later life proves nothing about this one,
    unless it numbers its messages (`let_continued_go`).
    """
    brokers = [w for w in ledgers.writers.values() if w.role not in ENDLESS]
    latest: dict[str, int] = {}
    for w in brokers:
        latest[w.name] = max(w.incarnation, latest.get(w.name, w.incarnation))
    last_word: dict[tuple[str, str, int], SyncChange] = {}
    for change in sorted(ledgers.changes, key=lambda c: c.wseq):
        last_word[change.peer, change.node, change.incarnation] = change
    for writer in ledgers.writers.values():
        if writer.sealed:
            writer.end = "sealed"
    for writer in (w for w in brokers if not w.sealed):
        if writer.incarnation < latest[writer.name]:
            writer.end, writer.ended_by = "crashed", f"{writer.name} started again"
        for promotion in ledgers.promotions:
            named = promotion.previous == writer.name and promotion.node != writer.name
            if named and promotion.epoch > writer.view:
                writer.end, writer.ended_by = "crashed", f"{promotion.node} was promoted in its place"
        for (peer, node, _), change in last_word.items():
            if peer == writer.name != node and change.reason == "excluded" and change.view >= writer.view:
                writer.end, writer.ended_by = "crashed", f"{node} excluded it"


def let_outlived_go(ledgers: LedgerState) -> None:
    """Mark clients without a seal as outlived once pruned brokers' ledgers begin OUTLIVED_US after them.

    All ids and tags of the client's time are then below the horizon, and are not judged. If the client lived
    on without a ledger, its later messages count as unsent.
    """
    brokers = [w for w in ledgers.writers.values() if w.role not in ENDLESS]
    if not any(w.pruned_us for w in brokers):
        return
    begin = min((w.pruned_us or w.first_us for w in brokers if w.goes_on), default=None)
    for writer in ledgers.writers.values():
        outlived = begin is None or writer.last_us + OUTLIVED_US <= begin
        if outlived and writer.role in ENDLESS and not writer.sealed:
            writer.end, writer.ended_by = "outlived", "the brokers' ledgers begin later"


class Life(NamedTuple):
    """The numbers that one process of a producer sent, by its ledger. `open`: the first one without an
    answer."""

    first: int
    last: int
    open: int | None

    @property
    def floor(self) -> int:
        """All numbers below are answered."""
        return self.last + 1 if self.open is None else self.open


def let_continued_go(ledgers: LedgerState, lives: Mapping[Process, Life], tops: Mapping[str, int]) -> None:
    """Mark producers without a seal as continued if a later process sent all numbers again that may have
    been in doubt. `tops`: by producer, the highest number that a broker enqueued.

    The later process fences this one at the brokers, so nothing of this one is confirmed after that. What it
    had confirmed and not noted was sent again, and the ledger of the later process tells what became of it.
    """
    named = [w for w in ledgers.writers.values() if w.role == "producer" and w.name in tops]
    follows: dict[str, tuple[int, int]] = {}
    for writer in sorted(named, key=lambda w: w.incarnation, reverse=True):
        life = lives.get(writer.process)
        first, last = follows.get(writer.name, (0, -1))
        again = life and first <= life.floor and last >= tops[writer.name]
        if again and writer.end == "unknown" and not writer.gaps:
            said = endless(writer)
            writer.end, writer.ended_by = "continued", "a later process sent its numbers again"
            ledgers.missing[:] = [text for text in ledgers.missing if text != said]
        if life and writer.end in ("sealed", "continued"):
            follows[writer.name] = (life.first if last < 0 else min(first, life.first)), max(last, life.last)


def endless(writer: Writer) -> str:
    """A sentence about a ledger without an end."""
    called = f"the ledger of {writer.name} (incarnation {writer.incarnation})"
    why = ENDLESS.get(writer.role, "and no ledger shows that it crashed")
    return f"{called} has no end, {why}{until(writer)}"


def until(writer: Writer) -> str:
    """End of a sentence: until when a client without a seal prevents a proof."""
    if writer.role not in ENDLESS or not writer.last_us:
        return ""
    due = datetime.fromtimestamp((writer.last_us + OUTLIVED_US) / 1e6, UTC).isoformat(" ", "seconds")
    return (
        f"; it blocks a proof until `understudy ledger prune` moves the brokers' ledgers past {due[:19]} UTC"
    )


def stem(writer: Writer) -> str:
    return f"{quote(writer.name, safe='') or '_'}-{writer.incarnation}-"
