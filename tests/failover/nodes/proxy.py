"""A TCP proxy that stands on the link between two nodes and cuts it after so many bytes.

Owner: one fault of `tests.failover.soak.faults`. A thread accepts, and each connection has two that pump;
bytes are counted from the primary to the backup, from the connection's first on: the handshake, the
definitions, the snapshot and what history follows it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Literal, Self

from understudy.shared.addresses import HostPort

Cut = Literal["RST", "FIN"]
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes `close` a reset."""


class LinkProxy:
    """Stands in for the node at `target`. A context manager: closed with all of its connections."""

    def __init__(self, target: HostPort, host: str = "127.0.0.1") -> None:
        self._target = target
        self._listener = socket.create_server((host, 0))
        self.address = HostPort(host, self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._admits = True
        self._cut: tuple[int, Cut] | None = None
        self.passed = 0
        """Bytes towards the backup over the last connection."""
        self.was_cut = threading.Event()
        threading.Thread(target=self._accept, name=f"proxy-{target.port}", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._admits = False
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()
            self._end_all("RST")

    def arm(self, after: int, how: Cut) -> None:
        """Let connections in again, and cut the first that has passed `after` bytes, which is the last byte
        that gets through. From then on none is let in until the next `arm` or `disarm`.
        """
        with self._lock:
            self.was_cut.clear()
            self._cut, self._admits = (after, how), True

    def disarm(self) -> None:
        """Let everything through."""
        with self._lock:
            self._cut, self._admits = None, True

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=5)
            except OSError:
                _end(near, "RST")
                continue
            far.settimeout(None)
            with self._lock:
                if not self._admits:
                    _end(near, "FIN")
                    _end(far, "FIN")
                    continue
                self.passed = 0
                self._pairs.append((near, far))
            for run, one, other in ((self._up, near, far), (self._down, far, near)):
                threading.Thread(target=run, args=(one, other), daemon=True).start()

    def _up(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                far.sendall(data)
        with self._lock:  # a cut under way is to be done first
            _end(near, "FIN")
            _end(far, "FIN")

    def _down(self, far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                with self._lock:
                    due = self._cut is not None and self.passed + len(data) >= self._cut[0]
                    if self._cut is not None and due:
                        data = data[: self._cut[0] - self.passed]
                    self.passed += len(data)
                near.sendall(data)
                if due:
                    with self._lock:
                        self._fall()
                    return
        _end(near, "FIN")
        _end(far, "FIN")

    def _fall(self) -> None:
        if self._cut is not None:
            how, self._cut, self._admits = self._cut[1], None, False
            self._end_all(how)
            self.was_cut.set()

    def _end_all(self, how: Cut) -> None:
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for each in pair:
                _end(each, how)


def _end(connection: socket.socket, how: Cut) -> None:
    """Both directions at once; a thread that reads from it wakes up."""
    with contextlib.suppress(OSError):
        if how == "RST":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.shutdown(socket.SHUT_RD)  # says nothing, but a thread in `recv` would hold it open
        else:
            connection.shutdown(socket.SHUT_RDWR)
    connection.close()
