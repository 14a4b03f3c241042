"""Exit codes of commands that judge ledgers, and of any command whose output or reader fails.

`understudy.cli.exit_codes` has the others; docs/reference/exit-codes.md explains all of them.
"""

from __future__ import annotations

PROVEN = 0
"""The ledgers prove that nothing was lost, or the ledgers are whole."""
FOUND = 1
"""A violation, an alarm of a loss, or damage was found."""
NOTHING = 2
"""There is no ledger, or too little in it: nothing is provable."""
UNDONE = 3
"""No answer: wrong usage, or a failure of a file, Spark, the output or the program."""
INTERRUPTED = 130
"""Ended by Ctrl-C: 128 + SIGINT, as shells do."""
READER_GONE = 141
"""The reader of the output went away: 128 + SIGPIPE, as shells do."""

OF_VERDICT = {"proven": PROVEN, "violated": FOUND, "not provable": NOTHING}
