"""The exit codes of all commands. Imports nothing slow.

Codes 1 to 3 have another meaning for the commands in `JUDGES`. There 1 and 2 are verdicts on ledgers, and
wrong usage must not look like one. The resource agent has its own codes, which OCF defines.
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
"""Not done: the node refuses or is unreachable, or a file or the disk fails. Also: the answer is no."""
WRONG = 2
"""An invalid option, value, configuration or input file. Nothing was changed."""

JUDGES = ("reconcile", "watch", "report", "ledger")
"""Commands that exit with PROVEN, FOUND, NOTHING or UNDONE."""

SUMMARY = """\b
Exit codes:
    0  done, or yes
    1  not done (refused, unreachable, a file or the disk failed), or no
    2  invalid option, value, configuration or input file
    3  cannot write the output, or an internal error
  130  interrupted by Ctrl-C (143: SIGTERM, 141: nobody reads the output)
\b
Of reconcile, watch, report and ledger:
    1  found a violation, a loss or damage
    2  no ledger, or not enough in it for a verdict
    3  no verdict: wrong usage, or a file, Spark or the output failed
"""


def by_signal(number: int) -> int:
    """The exit code that a shell reports for a process that this signal ended."""
    return 128 + signal.Signals(number)
