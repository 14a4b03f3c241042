"""Exit codes of commands that judge ledgers, and of any command whose output or reader fails.

`understudy.cli.exit_codes` has the others; docs/reference/exit-codes.md explains all of them.
"""

from __future__ import annotations

PROVEN = 0
"""The ledgers prove it, or are whole."""
FOUND = 1
"""A violation, an alarm of a loss, or damage was found."""
NOTHING = 2
"""There is no ledger, or too little in it: nothing is provable."""
UNDONE = 3
"""No answer: wrong usage, a file or Spark fails, the output cannot be written, or the program broke."""
INTERRUPTED = 130
"""By Ctrl-C: a shell's 128 + SIGINT."""
READER_GONE = 141
"""The reader of the output went away: a shell's 128 + SIGPIPE."""

OF_VERDICT = {"proven": PROVEN, "violated": FOUND, "not provable": NOTHING}
