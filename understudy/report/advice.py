"""What to do about each thing that a proof lacks: an instruction for each kind of sentence in `missing`."""

from __future__ import annotations

import re

OTHERWISE = "Bring what is named here below the folders that are reconciled, and reconcile again."

ADVICE: tuple[tuple[str, str], ...] = (
    (
        r"lacks records",
        "Look for a rotated file of this writer (the number before .ledger) that is not below the "
        "folders, and for a disk that was full when the ledger was written. Records that were never "
        "written stay unknown: this period cannot be proven, the next one can.",
    ),
    (
        r"numbers records .* twice",
        "Two different ledgers claim the same life of this writer: a restored copy, or two processes "
        "under one name. Leave out the wrong one; give each writer a name of its own.",
    ),
    (
        r"has no end, so its",
        "Is the client still running? Close it, which seals its ledger, and reconcile again. If it was "
        "killed, or its ledger is cut short, look for a whole copy; without one the rest stays unknown, and "
        "this period cannot be proven, whether or not the client was started again. What follows can, once "
        "the brokers' ledgers are pruned beyond it; do not move its ledger away.",
    ),
    (
        r"has no end, and no ledger",
        "Is the process still running? Stop it, which seals its ledger. If it was killed, start it once "
        "more: its next life says that the former one ended. Then reconcile again.",
    ),
    (
        r"clusters are mixed",
        "Reconcile the folders of each cluster by themselves.",
    ),
    (
        r"no ledger of a broker",
        "Name the data folders of the brokers too (their ledgers are in `ledger` there).",
    ),
    (
        r"no ledger of a producer",
        "Give publishers a ledger (`ledger_dir` of the client kit) and name its folder; without one "
        "nobody says what was confirmed.",
    ),
    (
        r"mention broker|was in sync in epoch|opened epoch",
        "Copy the ledgers of that broker, from its data folder, below the folders that are reconciled. If "
        "its disk is gone, this period cannot be proven.",
    ),
    (
        r"whose ledger is not here",
        "Name the ledger folder of that producer too. A publisher that keeps none can be balanced, never "
        "proven.",
    ),
    (
        r"cannot be read|is empty|half-written|torn",
        "The file is damaged or cut short. If a whole copy exists (a backup, the node's own disk), put it "
        "in its place; otherwise what the lines said stays unknown.",
    ),
    (
        r"was not read: Spark",
        "Rename the file so that it begins with neither a dot nor an underscore.",
    ),
    (
        r"schema version",
        "Another release wrote these ledgers: reconcile with that release, or a later one.",
    ),
    (
        r"the last primary did not end cleanly",
        "Stop the serving broker cleanly: it then notes what its queues hold. Reconcile again afterwards.",
    ),
    (
        r"used twice in one session",
        "Two publishers share one name and incarnation. Give each a name of its own; what they did so far "
        "stays ambiguous.",
    ),
    (
        r"clock",
        "Set the clocks of the machines by NTP. What happened meanwhile cannot be put in order across "
        "machines.",
    ),
    (
        r"perhaps",
        "This alone would be a violation if the ledgers were whole: settle what else is missing, and it "
        "is decided.",
    ),
)
"""Pattern of a sentence, and what to do; the first that matches counts."""


def advice(sentence: str) -> str:
    """What an operator can do about one sentence of `missing`."""
    return next((text for pattern, text in ADVICE if re.search(pattern, sentence)), OTHERWISE)
