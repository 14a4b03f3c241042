"""Limits of virtual hosts and of users. Each kind is one entry of the directory, whose keys are set one by
one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiohttp import web

from broker.model.vhost.directory import LIMITS, LIMITS_NAME, USER_LIMITS, VHOST_LIMITS
from understudy.http.answers import bad
from understudy.http.api.changes.answered import delete, listing, put
from understudy.http.api.changes.fields import Fields
from understudy.http.room import Call, Rights, Route

_OF_VHOST = "/api/vhost-limits/{vhost}/{limit}"
_OF_USER = "/api/user-limits/{user}/{limit}"


def routes() -> Iterable[Route]:
    return (
        Route("PUT", _OF_VHOST, _put_vhost_limit, Rights.ADMINISTRATOR),
        Route("DELETE", _OF_VHOST, _delete_vhost_limit, Rights.ADMINISTRATOR),
        Route("PUT", _OF_USER, _put_user_limit, Rights.ADMINISTRATOR),
        Route("DELETE", _OF_USER, _delete_user_limit, Rights.ADMINISTRATOR),
    )


async def _put_vhost_limit(call: Call) -> web.Response:
    limit, value = await _wanted(call, VHOST_LIMITS)
    vhost = call.part("vhost")
    known = await _vhost_limits(call, vhost)
    await put(call, VHOST_LIMITS, vhost, LIMITS_NAME, known | {limit: value})
    return web.Response(status=204)


async def _delete_vhost_limit(call: Call) -> web.Response:
    vhost = call.part("vhost")
    return await _without(call, VHOST_LIMITS, vhost, LIMITS_NAME, await _vhost_limits(call, vhost))


async def _put_user_limit(call: Call) -> web.Response:
    limit, value = await _wanted(call, USER_LIMITS)
    user = call.part("user")
    await put(call, USER_LIMITS, "", user, await _user_limits(call, user) | {limit: value})
    return web.Response(status=204)


async def _delete_user_limit(call: Call) -> web.Response:
    user = call.part("user")
    return await _without(call, USER_LIMITS, "", user, await _user_limits(call, user))


async def _wanted(call: Call, kind: str) -> tuple[str, int]:
    """The limit of the path and its value. Raises Refused."""
    limit, known = call.part("limit"), LIMITS[kind]
    if limit not in known:
        raise bad(f"the limit must be one of {', '.join(known)}")
    fields = Fields(await call.body(named=False))
    fields.any("value")
    return limit, fields.number("value", 0)


async def _without(call: Call, kind: str, vhost: str, name: str, known: dict[str, Any]) -> web.Response:
    """Delete the limit of the path from those that are set, if it is. 204 in any case, as in RabbitMQ."""
    if call.part("limit") not in known:
        return web.Response(status=204)
    rest = {key: value for key, value in known.items() if key != call.part("limit")}
    if not rest:
        return await delete(call, kind, vhost, name)
    return await put(call, kind, vhost, name, rest)


async def _vhost_limits(call: Call, vhost: str) -> dict[str, Any]:
    for line in await listing(call, "parameters"):
        if (line["component"], line["vhost"]) == (VHOST_LIMITS, vhost):
            return dict(line["value"])
    return {}


async def _user_limits(call: Call, user: str) -> dict[str, Any]:
    for line in await listing(call, "users"):
        if line["name"] == user:
            return dict(line.get("limits", {}))
    return {}
