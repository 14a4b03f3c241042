"""How each writer ended: by its seal, by what others say of it, or in nobody's knowledge.

Pure: works on the `Writer`s of `LedgerState`, which says what follows from it. Used by `assemble` alone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from spark.reconcile.ledgers.state import LedgerState, SyncChange, Writer

ENDLESS = {
    "producer": "so what it sent, and what was confirmed to it, after its last record is not known",
    "consumer": "so what it received and acked after its last record is not known",
}
"""What a client's ledger without a seal leaves open."""
OUTLIVED_US = 86_400_000_000
"""How much older than all that brokers still tell the last record of a client without a seal must be, before
what it kept to itself is past judging: the kit notes things seconds late, and clocks may be hours apart."""


def name_ends(ledgers: LedgerState) -> None:
    """Sealed, or crashed as somebody else's record tells, or unknown.

    Only a broker may lack its end. Its ledger is written before a confirm leaves, so whatever mattered is in
    it, and the lock of its folder makes its lives follow each other. A client notes what it sent, and what
    came of it, a while later, and two of its lives may run at once: a later one says nothing of this one.
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
    """A client without a seal does not count any more once the brokers' ledgers begin OUTLIVED_US after its
    last record, for they were pruned: every id that was given, and every tag that was used, until then is
    below the horizon, and not judged. Should it have lived on without its ledger, what it sent is unsent.
    """
    brokers = [w for w in ledgers.writers.values() if w.role not in ENDLESS]
    if not any(w.pruned_us for w in brokers):
        return
    begin = min((w.pruned_us or w.first_us for w in brokers if w.goes_on), default=None)
    for writer in ledgers.writers.values():
        outlived = begin is None or writer.last_us + OUTLIVED_US <= begin
        if outlived and writer.role in ENDLESS and not writer.sealed:
            writer.end, writer.ended_by = "outlived", "the brokers' ledgers begin later"


def until(writer: Writer) -> str:
    """How long a client without a seal is in the way."""
    if writer.role not in ENDLESS or not writer.last_us:
        return ""
    due = datetime.fromtimestamp((writer.last_us + OUTLIVED_US) / 1e6, UTC).isoformat(" ", "seconds")
    return f"; it counts until `understudy ledger prune` has brought the brokers' ledgers past {due[:19]} UTC"


def stem(writer: Writer) -> str:
    return f"{quote(writer.name, safe='') or '_'}-{writer.incarnation}-"
