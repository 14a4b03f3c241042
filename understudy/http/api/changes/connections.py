"""Closing connections of clients."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from understudy.http.api.changes.answered import operate
from understudy.http.room import Call, Route

_REASON = "X-Reason"
_DEFAULT = "Closed via management plugin"


def routes() -> Iterable[Route]:
    return (
        Route("DELETE", "/api/connections/{name}", _close),
        Route("DELETE", "/api/connections/username/{user}", _close_all),
    )


async def _close(call: Call) -> web.Response:
    return await _closed(call, name=call.part("name"))


async def _close_all(call: Call) -> web.Response:
    """All connections of a user."""
    return await _closed(call, user=call.part("user"))


async def _closed(call: Call, **whose: str) -> web.Response:
    reason = call.request.headers.get(_REASON, _DEFAULT)
    answer = await operate(call, "close-connection", reason=reason, **whose)
    call.changed("close connection", **whose, closed=answer["closed"], why=reason)
    return web.Response(status=204)
