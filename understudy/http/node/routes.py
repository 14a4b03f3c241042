"""Health for load balancers and resource managers, status, promotion, demotion and switchover.

Reading needs no login. Commands need an administrator, and POST.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from ha.adapter.management.command_arguments import fault_of
from understudy.http.answers import bad
from understudy.http.room import Call, Rights, Room, Route
from understudy.management import SERVING, could_serve


def routes(_room: Room) -> Iterable[Route]:
    return (
        Route("GET", "/health/live", _live, Rights.NOBODY),
        Route("GET", "/health/ready", _ready, Rights.NOBODY),
        Route("GET", "/health/primary", _primary, Rights.NOBODY),
        Route("GET", "/api/status", _status, Rights.NOBODY),
        Route("POST", "/api/promote", _promote, Rights.ADMINISTRATOR),
        Route("POST", "/api/demote", _demote, Rights.ADMINISTRATOR),
        Route("POST", "/api/switchover", _switchover, Rights.ADMINISTRATOR),
    )


async def _live(_call: Call) -> web.Response:
    return _plain(True, "alive")


async def _ready(call: Call) -> web.Response:
    found = call.room.status()
    return _plain(could_serve(found), found["status"])


async def _primary(call: Call) -> web.Response:
    found = call.room.status()
    if found.get("withheld"):
        return _plain(False, found["reason"])
    return _plain(found["status"] in SERVING, found["status"])


async def _status(call: Call) -> web.Response:
    disk = {} if call.room.disk is None else {"disk": call.room.disk.look()}
    return web.json_response(call.room.status() | disk)


async def _promote(call: Call) -> web.Response:
    args = await _arguments(call, "promote")
    return await _command(call, "promote", {"force_lossy": False} | args)


async def _demote(call: Call) -> web.Response:
    await _arguments(call, "demote")
    return await _command(call, "demote", {})


async def _switchover(call: Call) -> web.Response:
    args = await _arguments(call, "switchover")
    return await _command(call, "switchover", {"to": args.get("to")})


async def _arguments(call: Call, command: str) -> dict[str, Any]:
    """Raises Refused."""
    args = await call.body()
    if (fault := fault_of(command, args, vouches=call.room.local)) is not None:
        raise bad(fault)
    return args


async def _command(call: Call, command: str, args: dict[str, Any]) -> web.Response:
    answer = await call.ask(command, args)
    if answer.get("ok"):
        call.changed(command, **args)
    return web.json_response(answer, status=200 if answer.get("ok") else 409)


def _plain(good: bool, text: str) -> web.Response:
    return web.Response(text=text + "\n", status=200 if good else 503)
