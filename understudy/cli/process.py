"""The process that a command runs in: the effect of an interrupt before, during and after the command.

Role: used by `understudy.__main__` and `understudy.cli.main`; imports nothing slow.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from understudy.cli.exit_codes import DONE, INTERRUPTED, by_signal


def quiet() -> None:
    """From now on an interrupt ends the process at once and silently: while modules are imported, and after
    all output is written. No effect if interrupts are ignored or have another handler."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def heard() -> None:
    """From now on an interrupt raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Stop:
    """Whether the process has been asked to stop."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __call__(self) -> str:
        """The words `interrupted by` and the signal; empty if there was none."""
        return "" if self.signal is None else f"interrupted by {self.signal.name}"

    @property
    def code(self) -> int:
        """Exit code."""
        return DONE if self.signal is None else by_signal(self.signal)


@contextmanager
def stopping() -> Iterator[Stop]:
    """SIGINT and SIGTERM only record in `Stop` that the process is to stop; a second one raises
    KeyboardInterrupt. A signal that was ignored stays ignored."""
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
