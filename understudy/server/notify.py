"""Reports the state of the process to its manager, systemd or the resource agent, by the protocol of
`sd_notify`.

Role: sends one datagram per message to the Unix socket in `NOTIFY_SOCKET`. Sends nothing without that
variable. Owner: the daemon. A message that cannot be delivered is dropped, so that nothing waits for a dead
manager.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping

PATIENCE = 600
"""Seconds that the manager is asked to wait for the next report of a start."""


class Notifier:
    """Sends `READY=1`, `STATUS=...` and `WATCHDOG=1`. Removes its variables from `environ`, because they are
    not for child processes."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self._watchdog = _watchdog_interval(environ)
        self._timer: asyncio.TimerHandle | None = None
        self._is_ready = False

    def starting(self, text: str) -> None:
        """The node holds its data directory, and is starting: `text` says how far it is. Asks the manager for
        more time. Does nothing once the node is ready."""
        if not self._is_ready:
            self._send(f"STATUS={_line(text)}\nEXTEND_TIMEOUT_USEC={PATIENCE * 1_000_000}")

    def ready(self, text: str) -> None:
        """The node accepts connections. Call on the event loop, which from now on sends the watchdog signal
        if the manager wants it."""
        self._is_ready = True
        self._send(f"READY=1\nSTATUS={_line(text)}\nMAINPID={os.getpid()}")
        self._beat()

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")

    def close(self) -> None:
        """Stop the watchdog signal."""
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
    """Seconds between two watchdog signals: half of the manager's limit. None if the manager wants none."""
    wanted, whom = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
    if not wanted.isdecimal() or int(wanted) == 0 or whom not in ("", str(os.getpid())):
        return None
    return int(wanted) / 2_000_000
