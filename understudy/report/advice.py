"""What to do about gaps in a proof: an instruction for each kind of sentence in `missing`."""

from __future__ import annotations

import re

OTHERWISE = "Copy what is named here into the reconciled folders, and reconcile again."

ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"lacks records",
        "Look for a rotated file of this writer (the number before .ledger) outside the reconciled "
        "folders, and for a disk that was full when the ledger was written. Records that were never "
        "written stay unknown: this period cannot be proven, the next one can.",
    ),
    (
        r"numbers records .* twice",
        "Two ledgers claim the same incarnation of this writer: a restored copy, or two processes "
        "under one name. Leave out the wrong one, and give each writer its own name.",
    ),
    (
        r"has no end, so its",
        "If the client still runs, close it, which seals its ledger, and reconcile again. If it was killed, "
        "or its ledger is cut short, look for a complete copy. Without a copy the rest stays unknown: this "
        "period cannot be proven, whether or not the client runs again. Later periods can, once the "
        "brokers' ledgers are pruned beyond it. Leave the client's ledger in its place.",
    ),
    (
        r"has no end, and no ledger",
        "If the process still runs, stop it, which seals its ledger. If it was killed, start it once more: "
        "its next ledger shows that the earlier one ended. Then reconcile again.",
    ),
    (
        r"clusters are mixed",
        "Reconcile the folders of each cluster separately.",
    ),
    (
        r"no ledger of a broker",
        "Name the data directories of the brokers, too (their ledgers are in the folder `ledger`).",
    ),
    (
        r"no ledger of a producer",
        "Give publishers a ledger (`ledger_dir` of the client kit) and name its folder. Without one, no "
        "record shows which confirms they got.",
    ),
    (
        r"mention broker|was in sync in epoch|opened epoch",
        "Copy the ledgers of that broker, from its data directory, into the reconciled folders. If its "
        "disk is lost, this period cannot be proven.",
    ),
    (
        r"whose ledger is not here",
        "Name the ledger folder of that producer, too. Without a ledger of the publisher, a queue is checked "
        "for balance and order only, and never proven.",
    ),
    (
        r"cannot be read|is empty|half-written|torn",
        "The file is damaged or cut short. If a complete copy exists (a backup, the node's own disk), put "
        "it in its place. Otherwise the contents of the lines stay unknown.",
    ),
    (
        r"was not read: Spark",
        "Rename the file so that it begins with neither a dot nor an underscore.",
    ),
    (
        r"schema version",
        "Another release wrote these ledgers. Reconcile with that release, or a later one.",
    ),
    (
        r"the last primary did not end cleanly",
        "Stop the serving broker cleanly, so that it records what its queues hold. Then reconcile again.",
    ),
    (
        r"used twice in one session",
        "Two publishers share one name and incarnation. Give each its own name. Their events so far stay "
        "ambiguous.",
    ),
    (
        r"clock",
        "Synchronize the clocks of the machines with NTP. Events of this period cannot be put in order "
        "across machines.",
    ),
    (
        r"perhaps",
        "With complete ledgers this would be a violation. Supply what else is missing; then the verdict is "
        "certain.",
    ),
)
"""Pattern of a sentence, and its advice. The first match counts."""


def advice(sentence: str) -> str:
    """What an operator can do about one sentence of `missing`."""
    return next((text for pattern, text in ADVICE if re.search(pattern, sentence)), OTHERWISE)
