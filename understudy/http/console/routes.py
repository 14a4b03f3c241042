"""The paths of the console."""

from __future__ import annotations

from collections.abc import Iterable

from understudy.http.room import Room, Route


def routes(_room: Room) -> Iterable[Route]:
    return ()
