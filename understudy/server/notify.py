"""Tells whoever started the process how far it is, as `sd_notify` does (systemd's, and the resource agent's).

Role: one datagram to the Unix socket that `NOTIFY_SOCKET` names, for each thing said; without that variable
nothing is ever sent. Owner: the daemon. What cannot be delivered is dropped: nobody may wait for a listener
that has gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping

PATIENCE = 600
"""Seconds that a start may take between two words on how far it is, when the manager has less patience."""


class Notifier:
    """`READY=1`, `STATUS=...`, `WATCHDOG=1`. Its variables leave `environ`: children are not meant."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._watchdog = _watchdog_interval(environ)
        self._timer: asyncio.TimerHandle | None = None
        self._is_ready = False

    def starting(self, text: str) -> None:
        """It holds its data directory, and is so far; the manager is to be patient. Nothing once ready."""
        if not self._is_ready:
            self._send(f"STATUS={_line(text)}\nEXTEND_TIMEOUT_USEC={PATIENCE * 1_000_000}")

    def ready(self, text: str) -> None:
        """It takes connections. On the event loop, which from now on says that it turns, if anybody asked."""
        self._is_ready = True
        self._send(f"READY=1\nSTATUS={_line(text)}\nMAINPID={os.getpid()}")
        self._beat()

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")

    def close(self) -> None:
        """No more signs of life."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        if self._watchdog is not None:
            self._send("WATCHDOG=1")
            self._timer = asyncio.get_running_loop().call_later(self._watchdog, self._beat)

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto(text.encode(), self._address)
        except OSError:
            return


def _line(text: str) -> str:
    return " ".join(text.split())


def _watchdog_interval(environ: MutableMapping[str, str]) -> float | None:
    """Seconds between two signs of life: half of what the manager waits for one. None: nobody asked."""
    wanted, whom = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
    if not wanted.isdecimal() or int(wanted) == 0 or whom not in ("", str(os.getpid())):
        return None
    return int(wanted) / 2_000_000
