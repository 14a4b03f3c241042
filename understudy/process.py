"""The process that a command runs in: its standard streams, and what an interrupt does before and after.

Role: used by `understudy.__main__` and `understudy.cli`; loads nothing that takes time.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def quiet() -> None:
    """From now on an interrupt ends the process at once, without a word: while modules are loaded, and once
    all is said. Nothing where interrupts are ignored, or somebody else's."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def heard() -> None:
    """From now on an interrupt raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def streams() -> None:
    """A standard stream that whoever started the process has closed is /dev/null: else the next file that is
    opened has its number, and gets what is said. What the output cannot encode is escaped."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
