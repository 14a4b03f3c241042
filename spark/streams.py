"""The standard streams of a command: handles streams that are closed or full, or whose reader went away.

`understudy` and `python -m spark.reconcile` call `prepare` first and `ended` last, so that a failed output is
never taken for a finding. Imports nothing slow.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, TextIO

from spark.exit_codes import READER_GONE, UNDONE


class OutputLost(Exception):
    """Standard output could not be written.

    Not an OSError, so that it is not mistaken for an error of a command's own file or socket.
    """


class _Stream(io.FileIO):
    """A standard stream that remembers its first error."""

    def __init__(self, number: int, *, telling: bool) -> None:
        """`telling`: the first error raises OutputLost, and later writes do nothing.

        So data left in buffers of libraries and the interpreter cannot fail again. Without `telling`, data
        that cannot be written is dropped, and the next write is tried: a log continues when the disk has room
        again.
        """
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
    """Replace the standard streams by safe ones.

    A stream that the parent process closed becomes /dev/null. Otherwise the next opened file would get its
    number, and its output. Characters that the output cannot encode are escaped. An error of standard output
    ends the command (`ended`); an error of standard error is ignored.
    """
    global _output
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if _is_own(sys.stdout, 1):
        _output = _Stream(1, telling=True)
        sys.stdout = _over(_output, sys.stdout)
    if _is_own(sys.stderr, 2):
        sys.stderr = _over(_Stream(2, telling=False), sys.stderr)


def _is_own(stream: TextIO, number: int) -> bool:
    """Whether this is the process's own stream, not one that a caller in the same process put there."""
    try:
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == number
    except (OSError, ValueError):
        return False


def _over(raw: _Stream, old: TextIO) -> TextIO:
    """A text stream over `raw` with the settings of `old`; unbuffered if `old` is (`python -u`). Flushes
    `old`."""
    assert isinstance(old, io.TextIOWrapper)
    old.flush()
    bare = isinstance(old.buffer, io.RawIOBase)
    return io.TextIOWrapper(
        raw if bare else io.BufferedWriter(raw),
        encoding=old.encoding, errors="backslashreplace", newline="\n",
        line_buffering=old.line_buffering, write_through=old.write_through,
    )  # fmt: skip


def ended(code: int, who: str) -> int:
    """The exit code of a command that is done: `code` if the output was written.

    Otherwise READER_GONE if the reader went away, or else UNDONE, with a line on standard error that begins
    with `who`.
    """
    try:
        sys.stdout.flush()
    except OutputLost:
        pass  # the stream has remembered it
    fault = _output.fault if _output is not None else None
    if fault is None:
        return code
    if fault.errno == errno.EPIPE:
        return READER_GONE
    print(f"{who}: cannot write the output: {fault.strerror or fault}", file=sys.stderr)
    return UNDONE
