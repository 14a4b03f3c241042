"""How far a long run of seeds is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

EVERY, SHORTLY = 20.0, 5.0
"""Seconds between two lines: on the whole, and while a failure shrinks."""


class Meter(Protocol):
    def done(self, runs: int, failures: int) -> None:
        """So many seeds have run, so many of them failed."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def aside(self, text: str) -> None:
        """How a failure shrinks: shown for a while, or now and then."""


class Bar:
    """On a terminal."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("seeds", total=total, failures=0)

    def done(self, runs: int, failures: int) -> None:
        self._progress.update(self._task, completed=runs, failures=failures)

    def aside(self, text: str) -> None:
        self._progress.update(self._task, description=f"shrinking: {text}")

    def say(self, text: str) -> None:
        self._progress.update(self._task, description="seeds")
        self._progress.console.print(text, highlight=False, markup=False, soft_wrap=True)


class Lines:
    """Anywhere else."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._started = self._last = self._aside = time.monotonic()

    def done(self, runs: int, failures: int) -> None:
        now = time.monotonic()
        if now - self._last >= EVERY:
            self._last = now
            rate = runs / (now - self._started)
            self.say(f"{runs:,} of {self._total:,} seeds, {failures} failures, {rate:.1f} seeds/s")

    def aside(self, text: str) -> None:
        if time.monotonic() - self._aside >= SHORTLY:
            self._aside = time.monotonic()
            self.say(f"shrinking: {text}")

    def say(self, text: str) -> None:
        print(text, flush=True)


@contextmanager
def meter(total: int) -> Iterator[Meter]:
    if not sys.stdout.isatty():
        yield Lines(total)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[failures]} failures"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(), transient=True) as progress:
        yield Bar(progress, total)
