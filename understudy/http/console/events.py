"""The live state of the node as server-sent events, for the console and for scripts.

Role: `status` when it has changed, `overview` with the rates, and a comment as a heartbeat. Each is made once
for all listeners, and only while somebody listens. A listener that does not read in time misses older states:
it gets the newest, and memory stays bounded. Owner: the room of the console.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import Any

from aiohttp import web

from ha.adapter.management.views.overview import overview
from ha.adapter.management.views.view import View, ViewedNode
from understudy import codes
from understudy.http.answers import Refused
from understudy.http.room import Call, Rights, Room

MOST = 32
"""Listeners at a time."""
LOOK = 0.5
"""Seconds between two looks at the status."""
OVERVIEW = 2.0
"""Seconds between two overviews."""
BEAT = 5.0
"""Maximum seconds without an event."""
_STALLED = 30.0
"""Seconds after which a listener that takes nothing is dropped."""
_UNTOLD = ("position", "store_syncs", "memory", "stored_bytes", "dequeues", "held_channels")
"""Keys of the status that change with each message: alone they are told with an overview."""


class _Listener:
    """What a listener has not been sent yet: the newest event of each name."""

    def __init__(self, is_monitor: bool) -> None:
        self.is_monitor = is_monitor
        self.due: dict[str, bytes] = {}
        self.is_over = False
        self.woken = asyncio.Event()

    def tell(self, name: str, event: bytes) -> None:
        self.due[name] = event
        self.woken.set()


class Events:
    """`get` is the handler of the stream."""

    def __init__(self, room: Room) -> None:
        self._room = room
        room.closing.append(self._close)
        self._listeners: set[_Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._status: dict[str, Any] = {}

    async def get(self, call: Call) -> web.StreamResponse:
        if len(self._listeners) >= MOST:
            raise Refused(503, codes.HTTP_EVENTS_FULL.say(listeners=MOST), {"Retry-After": "5"})
        listener = _Listener(call.visitor.has(Rights.MONITORING))
        self._listeners.add(listener)
        try:
            listener.tell("status", _event("status", self._look()))
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run())
            return await _stream(call.request, listener)
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._task is not None:
                self._task.cancel()
                self._task = None

    def _close(self) -> None:
        """End all streams, so that a node that stops does not wait for them."""
        for listener in self._listeners:
            listener.is_over = True
            listener.woken.set()

    async def _run(self) -> None:
        """Look until nobody listens."""
        due = 0.0
        while True:
            before, found = self._status, self._look()
            is_due = time.monotonic() >= due
            if is_due or _told(found) != _told(before):
                self._tell("status", found)
            if is_due:
                due = time.monotonic() + OVERVIEW
                self._tell_overview()
            await asyncio.sleep(LOOK)

    def _look(self) -> dict[str, Any]:
        self._status = self._room.status()
        return self._status

    def _tell_overview(self) -> None:
        if any(each.is_monitor for each in self._listeners):
            found = rates_of(self._room) | {"at_ms": round(time.time() * 1000)}
            self._tell("overview", found, monitors=True)

    def _tell(self, name: str, found: dict[str, Any], *, monitors: bool = False) -> None:
        event = _event(name, found)
        for listener in self._listeners:
            if listener.is_monitor or not monitors:
                listener.tell(name, event)


def rates_of(room: Room) -> dict[str, Any]:
    """The overview, as a monitor sees it, without samples."""
    viewed: Any = room.node
    node: ViewedNode = viewed
    view = View(node, room.clock(), node.vhosts.wall_ms)
    return overview(view, {vhost.name for vhost in node.vhosts}, [], nodes=False)


def _told(status: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in status.items() if key not in _UNTOLD}


def _event(name: str, found: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(found)}\n\n".encode()


async def _stream(request: web.Request, listener: _Listener) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    await response.prepare(request)
    with suppress(ConnectionError, TimeoutError):
        while not listener.is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT):
                    await listener.woken.wait()
            listener.woken.clear()
            due, listener.due = listener.due, {}
            async with asyncio.timeout(_STALLED):
                await response.write(b"".join(due.values()) or b": still here\n\n")
    if request.transport is not None:
        request.transport.abort()
    return response
