"""The standard streams of a command: what becomes of one that is closed, full, or read by nobody any more.

Role: `understudy` and `python -m spark.reconcile` begin with `prepare` and end with `ended`, so that no fault
of the output is taken for a finding. Loads nothing that takes time.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, TextIO

from spark.exit_codes import READER_GONE, UNDONE


class OutputLost(Exception):
    """Standard output could not be written. No OSError, so that nobody takes it for a file of the command's
    own, nor for a socket."""


class _Stream(io.FileIO):
    """A standard stream that remembers its first fault."""

    def __init__(self, number: int, *, telling: bool) -> None:
        """`telling`: the first fault is raised, as OutputLost, and after that nothing is written: what
        libraries and the interpreter still have in their buffers cannot fail once more. Otherwise what cannot
        be written is dropped, and the next is tried: a log goes on when there is room again."""
        super().__init__(number, "w", closefd=False)
        self._telling = telling
        self.fault: OSError | None = None

    def write(self, data: Any) -> int:
        if self.fault is None or not self._telling:
            try:
                return super().write(data)
            except OSError as error:
                self.fault = error
                if self._telling:
                    raise OutputLost(error.strerror or str(error)) from error
        return memoryview(data).nbytes


_output: _Stream | None = None


def prepare() -> None:
    """A standard stream that whoever started the process has closed is /dev/null: else the next file that is
    opened has its number, and gets what is said. What the output cannot encode is escaped. A fault of
    standard output ends the command (`ended`); one of standard error is nobody's to hear of."""
    global _output
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if _is_own(sys.stdout, 1):
        _output = _Stream(1, telling=True)
        sys.stdout = _over(_output, sys.stdout)
    if _is_own(sys.stderr, 2):
        sys.stderr = _over(_Stream(2, telling=False), sys.stderr)


def _is_own(stream: TextIO, number: int) -> bool:
    """Not one that somebody who runs the command in his own process has put there."""
    try:
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == number
    except (OSError, ValueError):
        return False


def _over(raw: _Stream, old: TextIO) -> TextIO:
    """In all else as `old`, which is flushed; without buffers where that has none (`python -u`)."""
    assert isinstance(old, io.TextIOWrapper)
    old.flush()
    bare = isinstance(old.buffer, io.RawIOBase)
    return io.TextIOWrapper(
        raw if bare else io.BufferedWriter(raw),
        encoding=old.encoding, errors="backslashreplace", newline="\n",
        line_buffering=old.line_buffering, write_through=old.write_through,
    )  # fmt: skip


def ended(code: int, who: str) -> int:
    """What to exit with, all being said: `code`, but where the output was not written READER_GONE, or UNDONE
    and a line of `who` on standard error."""
    try:
        sys.stdout.flush()
    except OutputLost:
        pass  # it is remembered
    fault = _output.fault if _output is not None else None
    if fault is None:
        return code
    if fault.errno == errno.EPIPE:
        return READER_GONE
    print(f"{who}: cannot write the output: {fault.strerror or fault}", file=sys.stderr)
    return UNDONE
