"""The processes of the demo: started, observed, and ended by their ids however the demo ends.

Owner: `Demo`, on one thread. Each child has a reader thread that puts its events into one queue. A child also
dies with its parent, however the parent is killed (Linux: PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> Callable[[], None] | None:
    """A function that a child runs before its program. It is looked up here, because little is allowed
    between fork and exec."""
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return None
    number = int(signal.SIGKILL)
    return lambda: prctl(_PR_SET_PDEATHSIG, number)


class Child:
    """One process. Its standard error goes to a file. So does its output, unless it writes events."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.expected_to_end = False
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs. Negative: the signal that ended it."""
        return self._process.poll()

    def say(self, word: str) -> None:
        """Send one line to its standard input. Ignored if the child is gone."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.write(word + "\n")
                self._process.stdin.flush()
            except OSError:
                pass

    def signal(self, number: signal.Signals) -> None:
        """Send a signal by process id, only while it is our own running child."""
        self.expected_to_end = True
        if self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, timeout: float) -> int | None:
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def last_words(self) -> str:
        return self.last_words_of(self.log)

    @staticmethod
    def last_words_of(log: Path, lines: int = 5) -> str:
        """The end of a log."""
        try:
            return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


class Children:
    """All child processes. A context manager: none is left at its end."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._all: list[Child] = []
        self._readers: list[threading.Thread] = []
        self.events: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        """(child's name, event) in order of arrival."""
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not (name.upper().startswith("UNDERSTUDY_") and "__" in name)
        }
        self._before = _die_with_parent()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.end_all()

    @property
    def running(self) -> list[Child]:
        return [child for child in self._all if child.exit_code is None]

    def start(
        self, name: str, arguments: Sequence[str], *, events: bool = False, prefix: Sequence[str] = ()
    ) -> Child:
        """Run `python -m ARGUMENTS`. With `events`, its output is JSON lines for `self.events`.

        `prefix`: a command that executes the command after it, such as `nsenter`.
        """
        return self.start_program(name, [*prefix, sys.executable, "-m", *arguments], events=events)

    def start_program(self, name: str, command: Sequence[str], *, events: bool = False) -> Child:
        """The same for any program. Raises OSError if there is none."""
        log = self._log_dir / f"{name}.log"
        with log.open("ab") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if events else subprocess.DEVNULL,
                stdout=subprocess.PIPE if events else errors,
                stderr=errors,
                env=self._environment,
                text=True,
                preexec_fn=self._before,
            )
        child = Child(name, process, log)
        self._all.append(child)
        if process.stdout is not None:
            reader = threading.Thread(target=self._read, args=(name, process.stdout), daemon=True)
            reader.start()
            self._readers.append(reader)
        return child

    def run(
        self,
        name: str,
        arguments: Sequence[str],
        timeout: float,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> tuple[int | None, str]:
        """Run to the end. Returns the exit code, or None on a timeout, and the output.

        `meanwhile` is called five times a second.
        """
        out = self._log_dir / f"{name}.out"
        log = self._log_dir / f"{name}.log"
        with out.open("wb") as output, log.open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=self._environment,
                text=True,
                preexec_fn=self._before,
            )
        child = Child(name, process, log)
        child.expected_to_end = True
        self._all.append(child)
        deadline = time.monotonic() + timeout
        while (code := child.wait(0.2)) is None and time.monotonic() < deadline:
            meanwhile()
        return code, out.read_text(errors="replace")

    def end_all(self) -> None:
        """Send SIGTERM to all running children, and SIGKILL to those that still run two seconds later."""
        for child in self.running:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + 2
        for child in self.running:
            child.wait(max(0.0, deadline - time.monotonic()))
        for child in self.running:
            child.signal(signal.SIGKILL)
            child.wait(5)

    def _read(self, name: str, lines: IO[str]) -> None:
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                self.events.put((name, event))
