"""Threads for password checks, so that the event loop never runs one. Owner: the daemon, beside the shell.

The driver of `Logins`. Everything but the check itself runs on the loop. Threads start with the first check.
Each takes 19 MiB during a check, and has a lower priority than the loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from broker.server.clock import now

if TYPE_CHECKING:
    from broker.security.logins import Logins
    from broker.security.tickets import Work
    from broker.server.shell import Shell

_NICE = 10
"""Added to the process's own niceness."""


def _threads() -> int:
    """One thread, or two if that leaves a core for the loop and other processes."""
    return 2 if len(os.sched_getaffinity(0)) > 2 else 1


class LoginThreads:
    """Call `close` when the shell is closed."""

    def __init__(self, logins: Logins, shell: Shell, threads: int | None = None) -> None:
        self._logins, self._shell = logins, shell
        self._idle = _threads() if threads is None else threads
        self._executor = ThreadPoolExecutor(self._idle, "passwords", _give_way)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        logins.wanted = self._hand_out

    def close(self) -> None:
        """Start no further check. Running checks have no effect."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _hand_out(self) -> None:
        """Start a check on each idle thread; again when the next pause ends."""
        while self._idle and not self._closed and (work := self._logins.take(now())) is not None:
            self._idle -= 1
            done = self._executor.submit(work.check.verify)
            done.add_done_callback(lambda future, work=work: self._done(work, future))  # type: ignore[misc]
        if self._idle:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._logins.next_deadline()
        if deadline is not None and not self._closed:
            self._timer = self._shell.loop.call_later(max(0.0, deadline - now()), self._hand_out)

    def _done(self, work: Work, future: Future[bool | None]) -> None:
        """Runs on the check thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._shell.loop.call_soon_threadsafe(self._checked, work, future)

    def _checked(self, work: Work, future: Future[bool | None]) -> None:
        if self._closed or future.cancelled():
            return
        self._idle += 1
        self._logins.checked(work, None if future.exception() else future.result(), now())
        self._shell.tick_soon()
        self._hand_out()


def _give_way() -> None:
    with suppress(OSError):
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICE)
