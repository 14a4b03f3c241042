"""The process that a command runs in: what an interrupt does before, meanwhile and after.

Role: used by `understudy.__main__` and `understudy.cli.main`; loads nothing that takes time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from understudy.cli.exit_codes import DONE, INTERRUPTED, by_signal


def quiet() -> None:
    """From now on an interrupt ends the process at once, without a word: while modules are loaded, and once
    all is said. Nothing where interrupts are ignored, or somebody else's."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def heard() -> None:
    """From now on an interrupt raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Stop:
    """Has the process been asked to end?"""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __call__(self) -> str:
        """By what; empty if it has not."""
        return "" if self.signal is None else f"interrupted by {self.signal.name}"

    @property
    def code(self) -> int:
        """Exit code."""
        return DONE if self.signal is None else by_signal(self.signal)


@contextmanager
def stopping() -> Iterator[Stop]:
    """SIGINT and SIGTERM, where nobody ignores them, only ask to end; the second one raises
    KeyboardInterrupt."""
    stop = Stop()

    def asked(number: int, _frame: FrameType | None) -> None:
        again, stop.signal = stop.signal is not None, signal.Signals(number)
        if again:
            raise KeyboardInterrupt

    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    kept = {number: handler for number, handler in kept.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in kept:
            signal.signal(number, asked)
        yield stop
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
