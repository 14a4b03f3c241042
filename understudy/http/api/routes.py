"""The read side of RabbitMQ's management API."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.http.api.definitions import DefinitionsApi
from understudy.http.room import Rights, Room, Route


def routes(room: Room) -> Iterable[Route]:
    definitions = DefinitionsApi(room)
    return (
        Route("GET", "/api/definitions", definitions.get, Rights.ADMINISTRATOR),
        Route("POST", "/api/definitions", definitions.post, Rights.ADMINISTRATOR, password=True),
    )
