"""The read side of RabbitMQ's management API."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.http.api import about, directory, health, objects
from understudy.http.api.definitions import DefinitionsApi
from understudy.http.room import Rights, Room, Route


def routes(room: Room) -> Iterable[Route]:
    definitions = DefinitionsApi(room)
    yield Route("GET", "/api/definitions", definitions.get, Rights.ADMINISTRATOR)
    yield Route("POST", "/api/definitions", definitions.post, Rights.ADMINISTRATOR, password=True)
    yield Route("GET", "/api/definitions/{vhost}", definitions.get, Rights.ADMINISTRATOR)
    yield Route("POST", "/api/definitions/{vhost}", definitions.post, Rights.ADMINISTRATOR, password=True)
    yield from about.routes()
    yield from objects.routes()
    yield from directory.routes()
    yield from health.routes()
