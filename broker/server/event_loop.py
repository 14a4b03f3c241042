"""An event loop that runs a tick in the wake-up that caused it.

A callback that is scheduled while input is handled runs in the next turn of asyncio's loop, after one more
call of epoll_wait(2). With one message at a time these calls are a large part of the work. So the selector
adds an event of its own behind those of the kernel. Its callback runs after theirs, in the same turn.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable


class _Selector(selectors.DefaultSelector):
    """`after`: the event that follows all others of a turn; None until there is one. `coming`: it has been
    added, and its callback has not run yet."""

    after: tuple[selectors.SelectorKey, int] | None = None
    coming = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(timeout)
        if events and self.after is not None:
            events.append(self.after)
            self.coming = True
        return events


class TickLoop(asyncio.SelectorEventLoop):
    """asyncio's loop with a callback after the input of each turn."""

    def __init__(self) -> None:
        self._inputs = _Selector()
        super().__init__(self._inputs)

    @property
    def handles_input(self) -> bool:
        """The callback of `after_input` is still to be called in this turn."""
        return self._inputs.coming

    def after_input(self, callback: Callable[[], None]) -> None:
        """From now on, call it after the input of each turn that has some."""

        def called() -> None:
            self._inputs.coming = False
            callback()

        # What asyncio keeps in a key of its selector: the handles of reading and of writing.
        handles = (asyncio.Handle(called, (), self), None)
        read = selectors.EVENT_READ
        self._inputs.after = (selectors.SelectorKey(-1, -1, read, handles), read)
