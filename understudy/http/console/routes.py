"""The paths of the console: its files, the live events, and what of this node's folders it shows."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.http.console.events import Events
from understudy.http.console.files import Files
from understudy.http.console.folders import Folders
from understudy.http.console.quarantine import QuarantineApi
from understudy.http.room import Rights, Room, Route


def routes(room: Room) -> Iterable[Route]:
    if room.local:
        return ()
    files, events = Files(), Events(room)
    folders, quarantine = Folders(room.folders), QuarantineApi(room.folders)
    return (
        Route("GET", "/", files.index, Rights.NOBODY),
        Route("GET", "/console/{path:.+}", files.file, Rights.NOBODY),
        Route("GET", "/api/events", events.get),
        Route("GET", "/api/quarantine", quarantine.queues, Rights.MONITORING),
        Route("GET", "/api/quarantine/{queue}", quarantine.messages, Rights.ADMINISTRATOR),
        Route("POST", "/api/quarantine/republish", quarantine.republish, Rights.ADMINISTRATOR, password=True),
        Route("GET", "/api/reports", folders.reports, Rights.MONITORING),
        Route("GET", "/api/reports/{name}", folders.report, Rights.MONITORING),
        Route("GET", "/api/watch", folders.watch, Rights.MONITORING),
    )
