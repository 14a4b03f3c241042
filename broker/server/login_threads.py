"""The threads that check passwords, so that the event loop never does. Owner: the daemon, beside the shell.

Role: the driver of `Logins`. Everything but the check itself happens on the loop. The threads begin with the
first check; each takes 19 MiB while it checks, and gives way to the loop where cores are short.
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
"""Above the process's own niceness."""


def _threads() -> int:
    """One, or two where a third core is left for the loop and its neighbours."""
    return 2 if len(os.sched_getaffinity(0)) > 2 else 1


class LoginThreads:
    """`close` when the shell is closed."""

    def __init__(self, logins: Logins, shell: Shell, threads: int | None = None) -> None:
        self._logins, self._shell = logins, shell
        self._idle = _threads() if threads is None else threads
        self._executor = ThreadPoolExecutor(self._idle, "passwords", _give_way)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        logins.wanted = self._hand_out

    def close(self) -> None:
        """No further check begins; what is being checked is of no use."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _hand_out(self) -> None:
        """As many checks as threads are idle; again when the next pause ends."""
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
        """On the thread."""
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
