"""The output while the demo runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

_LINE_INTERVAL = 2.0
_KEPT_EVENTS = 12


@dataclass(slots=True)
class Tally:
    """The state of the run at one moment, as clients and nodes reported it."""

    messages: int = 0
    published: int = 0
    confirmed: int = 0
    received: int = 0
    statuses: dict[str, str] = field(default_factory=dict)
    """Node -> its status, or `down`."""


class Progress:
    """A context manager. Only the demo's thread calls `event` and `update`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._events: list[tuple[float, str]] = []
        self._tally = Tally()
        self._rate = 0.0
        self._previous = (self._began, 0)
        self._line_at = 0.0
        self._live = (
            Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            for at, text in self._events:
                self._console.print(f"[dim]{at:6.1f} s[/dim]  {escape(text)}", highlight=False)
            self._live = None

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    def event(self, text: str) -> None:
        """Show an event to the user."""
        at = self.elapsed
        self._events.append((at, text))
        if self._live is None:
            self._console.print(f"{at:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)
        else:
            self._live.update(self._picture())

    def update(self, tally: Tally) -> None:
        """New figures. Shown at once on a terminal, at intervals elsewhere."""
        now = time.monotonic()
        then, confirmed = self._previous
        if now - then >= 0.5:
            self._rate = (tally.confirmed - confirmed) / (now - then)
            self._previous = (now, tally.confirmed)
        self._tally = tally
        if self._live is not None:
            self._live.update(self._picture())
        elif now - self._line_at >= _LINE_INTERVAL and tally.published and tally.confirmed < tally.messages:
            self._line_at = now
            nodes = ", ".join(f"{name} {status}" for name, status in tally.statuses.items())
            self._console.print(
                f"{self.elapsed:6.1f} s  published {tally.published:,}  confirmed {tally.confirmed:,}"
                f" ({self._rate:,.0f}/s)  received {tally.received:,}  [{nodes}]",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def _picture(self) -> Group:
        tally = self._tally
        table = Table(title=f"Understudy demo, {self.elapsed:.0f} s", title_justify="left", min_width=72)
        for column in ("", "published", "confirmed", "per second", "received"):
            table.add_column(column, justify="right" if column else "left")
        share = 100 * tally.confirmed / tally.messages if tally.messages else 0
        table.add_row(
            f"{share:3.0f} %",
            f"{tally.published:,}",
            f"{tally.confirmed:,}",
            f"{self._rate:,.0f}",
            f"{tally.received:,}",
        )
        nodes = Text("   ").join(
            Text.assemble((name, "bold"), ": ", (status, _colour(status)))
            for name, status in tally.statuses.items()
        )
        lines = [Text(f"{at:6.1f} s  {text}") for at, text in self._events[-_KEPT_EVENTS:]]
        return Group(table, nodes, *lines)


def _colour(status: str) -> str:
    return {"active": "green", "ready": "cyan", "down": "red"}.get(status, "yellow")
