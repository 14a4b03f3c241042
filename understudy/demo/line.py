"""Line: a long or narrow line between brokers, as a TCP proxy on loopback. It delays, limits the rate, counts
octets, and can be cut.

Role: the demo of federation, its benchmark, and tests. Owner: who makes it; a thread of its own runs the
proxy's event loop, and `close` ends both. Octets arrive in order, each `delay` seconds after it was sent. As
many are under way as a kernel's buffers allow (`window`), so a sender feels the round trip as on a real line.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from understudy.shared.addresses import HostPort

WINDOW = 6 << 20
"""Octets under way in one direction of a connection: the usual maximum of Linux's receive buffer."""
PIECE = 1 << 16
NARROW_PIECE = 1 << 12
"""Octets that are read at once on a line with a limited rate: heartbeats get through between them."""
_RESET = struct.pack("ii", 1, 0)


class Line:
    """Stands in for the brokers at `targets`: `addresses` has a listener for each. All connections share the
    rate. A context manager. `delay`: seconds, one way; `rate`: octets a second, each way; None: no limit."""

    def __init__(
        self, targets: Sequence[HostPort], delay: float, rate: float | None = None, window: int = WINDOW
    ) -> None:
        self.delay = delay
        self.there = self.back = 0
        """Octets that have arrived at the targets, and that have come from them."""
        self.joined = 0.0
        """When the last connection was begun that got through, by the monotonic clock."""
        self._rate = rate
        self._window = window if rate is None else min(window, int(rate * (2 * delay + 0.1)) + NARROW_PIECE)
        self._free = {True: 0.0, False: 0.0}
        """When the line is free again, for each direction."""
        self._admits = True
        self._open: set[asyncio.StreamWriter] = set()
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in targets]
        self.addresses = [HostPort("127.0.0.1", each.getsockname()[1]) for each in self._listeners]
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, args=(list(targets),), name="line", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self) -> None:
        """Every connection is reset, and none gets through, until `mend`. What was under way is gone."""
        self._call(self._cut)

    def mend(self) -> None:
        self._admits = True

    def close(self) -> None:
        """End everything. May be called again."""
        if self._loop.is_closed():
            return
        self._call(self._cut)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    # -- in the thread

    def _call(self, function: Callable[[], None]) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(function)
        self._loop.call_soon_threadsafe(done.set)
        done.wait(5)

    def _cut(self) -> None:
        self._admits = False
        for writer in self._open:
            _reset(writer)
        self._open.clear()
        for task in self._tasks:
            task.cancel()

    def _run(self, targets: list[HostPort]) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._listen(targets))
            self._loop.run_forever()
        finally:
            for listener in self._listeners:
                listener.close()
            for task in self._tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
            self._loop.close()

    async def _listen(self, targets: list[HostPort]) -> None:
        for listener, target in zip(self._listeners, targets, strict=True):

            async def arrived(
                near: asyncio.StreamReader, back: asyncio.StreamWriter, to: HostPort = target
            ) -> None:
                task = asyncio.current_task()
                if task is not None:
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                await self._join(near, back, to)

            await asyncio.start_server(arrived, sock=listener, limit=2 * PIECE)

    async def _join(self, near: asyncio.StreamReader, back: asyncio.StreamWriter, target: HostPort) -> None:
        """One connection, until either end closes it."""
        far = None
        self._open.add(back)
        try:
            if not self._admits:
                return
            self.joined = time.monotonic()
            await asyncio.sleep(2 * self.delay)  # the handshake of TCP
            from_far, far = await asyncio.open_connection(*target, limit=2 * PIECE)
            self._open.add(far)
            up, down = _Way(self._window), _Way(self._window)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._take_in(near, up, up=True))
                group.create_task(self._give_out(up, far, up=True))
                group.create_task(self._take_in(from_far, down, up=False))
                group.create_task(self._give_out(down, back, up=False))
        except* OSError:
            pass
        except* asyncio.CancelledError:
            pass
        finally:
            for writer in filter(None, (back, far)):
                self._open.discard(writer)
                writer.close() if self._admits else _reset(writer)

    async def _take_in(self, reader: asyncio.StreamReader, way: _Way, *, up: bool) -> None:
        piece = PIECE if self._rate is None else NARROW_PIECE
        while data := await reader.read(piece):
            now = time.monotonic()
            if self._rate is not None:
                now = self._free[up] = max(now, self._free[up]) + len(data) / self._rate
            way.put(now + self.delay, data)
            await way.room()
        way.put(time.monotonic() + self.delay, b"")

    async def _give_out(self, way: _Way, writer: asyncio.StreamWriter, *, up: bool) -> None:
        while True:
            due, data = await way.get()
            if (early := due - time.monotonic()) > 0:
                await asyncio.sleep(early)
            if not data:
                raise ConnectionResetError  # the other direction ends with it
            if up:
                self.there += len(data)
            else:
                self.back += len(data)
            writer.write(data)
            await writer.drain()
            way.arrived(len(data))


class _Way:
    """What is under way in one direction."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._pieces: deque[tuple[float, bytes]] = deque()
        self._octets = 0
        self._some = asyncio.Event()
        self._room = asyncio.Event()

    def put(self, due: float, data: bytes) -> None:
        self._pieces.append((due, data))
        self._octets += len(data)
        self._some.set()

    async def get(self) -> tuple[float, bytes]:
        while not self._pieces:
            self._some.clear()
            await self._some.wait()
        return self._pieces.popleft()

    def arrived(self, octets: int) -> None:
        self._octets -= octets
        self._room.set()

    async def room(self) -> None:
        while self._octets >= self._window:
            self._room.clear()
            await self._room.wait()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Both ends notice it at once."""
    with contextlib.suppress(OSError):
        sock = writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
