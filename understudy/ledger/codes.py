"""Codes of what a writer of a ledger logs, in a broker as in a client. See `understudy.shared.codes`."""

from __future__ import annotations

from understudy.shared.codes import Code

UNWRITABLE = Code(
    "ledger-unwritable",
    "cannot write the ledger {path}: {cause}; records are missing from it until it can be written",
    "The file of the ledger cannot be opened or written. The broker or client goes on without these records.",
    "Make room on the disk, or correct the rights of the folder. Writing starts again by itself.",
)
WRITTEN_AGAIN = Code(
    "ledger-written-again",
    "the ledger {path} is written again; {lost} records are missing",
    "The writer recovered from `ledger-unwritable`. The number counts missing records since its start.",
    "Nothing. For the time of the gap `understudy reconcile` answers *not provable*.",
)
NOT_CLOSED = Code(
    "ledger-not-closed",
    "cannot close the ledger {path}: {cause}",
    "The system reported an error when a file of the ledger was closed. Its last records may be missing.",
    "Check the disk, then check the file with `understudy ledger check`.",
)
