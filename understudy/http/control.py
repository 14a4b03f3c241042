"""The node's API on a Unix socket, for the resource agent on the same machine.

Role: the same as `server.py`, without a password. Whoever may open the socket is an administrator: its owner
and root. `/api/status` also reports the state of the disk. Owner: the daemon, which makes the socket last and
removes it at its end. A socket that a dead process left behind is replaced.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from broker.server.listener import listen_at
from understudy.http.node.disk_probe import DiskProbe
from understudy.http.server import HttpServer


class ControlServer(HttpServer):
    """Call `start_at`, then `close`, both on the event loop."""

    LOCAL = True
    _bound: tuple[Path, int] | None = None

    async def start_at(self, path: Path, disk: DiskProbe | None = None) -> None:
        """Listen at `path`, for its owner alone. `disk` is read for each status. Raises OSError, also if
        another process listens there."""
        listener = _listener(path)
        self._bound = path, path.stat().st_ino
        self.room.disk = disk
        await self._prepare()
        self._server = await listen_at(self._visit, listener)

    async def close(self) -> None:
        await super().close()
        if self._bound is not None:
            path, inode = self._bound
            self._bound = None
            try:
                if path.stat().st_ino == inode:
                    path.unlink()
            except OSError:
                return


def _listener(path: Path) -> socket.socket:
    """A bound and listening socket, which other users can never open."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        _clear(path)
        before = os.umask(0o177)
        try:
            found.bind(str(path))
        finally:
            os.umask(before)
        found.setblocking(False)
        found.listen(64)
    except BaseException:
        found.close()
        raise
    return found


def _clear(path: Path) -> None:
    """Remove the socket of a dead process. Raises OSError (EADDRINUSE) if the process lives, or if the path
    is no socket."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except BlockingIOError:
            return  # its queue of connections is full: the process lives
