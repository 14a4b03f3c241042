"""The exit codes of all commands. Loads nothing that takes time.

Two groups of commands differ in 1 to 3: those in `JUDGES` answer from ledgers, and a wrong option must not
read as one of their answers. The resource agent has codes of its own, which OCF defines.
"""

from __future__ import annotations

import signal

from spark.exit_codes import FOUND, INTERRUPTED, NOTHING, PROVEN, READER_GONE, UNDONE

__all__ = [
    "DONE", "FAILED", "FOUND", "INTERRUPTED", "JUDGES", "NOTHING", "PROVEN", "READER_GONE", "SUMMARY",
    "UNDONE", "WRONG", "by_signal",
]  # fmt: skip

DONE = 0
FAILED = 1
"""Not done: the node refuses or is not reachable, a file or disk fails. Or the answer is no."""
WRONG = 2
"""A wrong option, value, configuration or input file. Nothing was changed."""

JUDGES = ("reconcile", "watch", "report", "ledger")
"""Commands with PROVEN, FOUND, NOTHING and UNDONE."""

SUMMARY = """\b
Exit codes:
    0  done, or yes
    1  not done: refused, not reachable, a file or disk fails; or no
    2  wrong option, value, configuration or input file
    3  the output cannot be written, or the program broke
  130  ended by Ctrl-C (143: SIGTERM, 141: the reader of the output left)
\b
Of reconcile, watch, report and ledger:
    1  found: a violation, a loss or damage
    2  no ledger, or too little in it to judge by
    3  no answer: wrong usage, or a file, Spark or the output fails
"""


def by_signal(number: int) -> int:
    """As a shell has it."""
    return 128 + signal.Signals(number)
