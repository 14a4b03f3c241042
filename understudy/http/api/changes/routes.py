"""The paths of RabbitMQ's management API that change something."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.http.api.changes import connections, directory, exchanges, limits, queues
from understudy.http.room import Room, Route


def routes(_room: Room) -> Iterable[Route]:
    yield from queues.routes()
    yield from exchanges.routes()
    yield from connections.routes()
    yield from directory.routes()
    yield from limits.routes()
