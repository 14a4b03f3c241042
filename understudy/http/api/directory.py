"""GET of users, permissions, policies, parameters and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from aiohttp import web

from ha.adapter.management.views.tables import TABLES
from ha.adapter.management.views.view import Row
from understudy.http.api.listing import listing, one
from understudy.http.api.seen import Seen, not_found, view_of
from understudy.http.room import Call, Rights, Route

_ADMINISTRATOR, _POLICYMAKER, _MANAGEMENT = Rights.ADMINISTRATOR, Rights.POLICYMAKER, Rights.MANAGEMENT


def routes() -> Iterable[Route]:
    for kind, rights in (("policies", _MANAGEMENT), ("operator-policies", _MANAGEMENT)):
        yield from _of_vhosts(kind, rights)
    for kind in ("permissions", "topic-permissions"):
        yield Route("GET", f"/api/{kind}", partial(_all, kind), _ADMINISTRATOR)
        yield Route("GET", f"/api/{kind}/{{vhost}}/{{name}}", partial(_permission, kind), _ADMINISTRATOR)
        yield Route("GET", f"/api/vhosts/{{vhost}}/{kind}", partial(_in_vhost, kind), _ADMINISTRATOR)
        yield Route("GET", f"/api/users/{{user}}/{kind}", partial(_of_user, kind), _ADMINISTRATOR)
    yield Route("GET", "/api/users", partial(_all, "users"), _ADMINISTRATOR)
    yield Route("GET", "/api/users/without-permissions", _without_permissions, _ADMINISTRATOR)
    yield Route("GET", "/api/users/{name}", partial(_named, "users"), _ADMINISTRATOR)
    yield Route("GET", "/api/user-limits", partial(_all, "user-limits"), _ADMINISTRATOR)
    yield Route("GET", "/api/user-limits/{user}", partial(_of_user, "user-limits"), _ADMINISTRATOR)
    yield Route("GET", "/api/vhost-limits", partial(_all, "vhost-limits"))
    yield Route("GET", "/api/vhost-limits/{vhost}", partial(_in_vhost, "vhost-limits"))
    yield Route("GET", "/api/parameters", partial(_all, "parameters"), _POLICYMAKER)
    yield Route("GET", "/api/parameters/{component}", _parameters, _POLICYMAKER)
    yield Route("GET", "/api/parameters/{component}/{vhost}", _parameters, _POLICYMAKER)
    yield Route("GET", "/api/parameters/{component}/{vhost}/{name}", _parameter, _POLICYMAKER)
    yield Route("GET", "/api/global-parameters", partial(_all, "global-parameters"), _POLICYMAKER)
    yield Route("GET", "/api/global-parameters/{name}", partial(_named, "global-parameters"), _POLICYMAKER)


def _of_vhosts(kind: str, rights: Rights) -> Iterable[Route]:
    yield Route("GET", f"/api/{kind}", partial(_all, kind), rights)
    yield Route("GET", f"/api/{kind}/{{vhost}}", partial(_in_vhost, kind), rights)
    yield Route("GET", f"/api/{kind}/{{vhost}}/{{name}}", partial(_in_vhost_named, kind), rights)


async def _all(kind: str, call: Call) -> web.StreamResponse:
    return await listing(call, TABLES[kind])


async def _in_vhost(kind: str, call: Call) -> web.StreamResponse:
    vhost = call.part("vhost")
    Seen(call).check(vhost)
    return await listing(call, TABLES[kind], lambda row: row["vhost"] == vhost)


async def _of_user(kind: str, call: Call) -> web.StreamResponse:
    user = call.part("user")
    _find(call, "users", lambda row: row["name"] == user, f"user {user!a:.300}")
    return await listing(call, TABLES[kind], lambda row: row["user"] == user)


async def _without_permissions(call: Call) -> web.StreamResponse:
    permitted = {row["user"] for row in TABLES["permissions"].items(view_of(call))}
    return await listing(call, TABLES["users"], lambda row: row["name"] not in permitted)


async def _parameters(call: Call) -> web.StreamResponse:
    parts = dict(call.request.match_info)
    if "vhost" in parts:
        Seen(call).check(call.part("vhost"))
    return await listing(
        call, TABLES["parameters"], lambda row: all(row[key] == value for key, value in parts.items())
    )


def _find(call: Call, kind: str, is_it: Callable[[Row], bool], what: str) -> Any:
    """Raises Refused."""
    for row in TABLES[kind].items(view_of(call)):
        if is_it(row):
            return row
    raise not_found(what)


async def _named(kind: str, call: Call) -> web.Response:
    name = call.part("name")
    row = _find(call, kind, lambda row: row["name"] == name, f"{name!a:.300}")
    return await one(call, TABLES[kind], row)


async def _in_vhost_named(kind: str, call: Call) -> web.Response:
    Seen(call).check(call.part("vhost"))
    return await _matching(kind, call)


async def _permission(kind: str, call: Call) -> web.StreamResponse:
    """One permission; of topics a list, as in RabbitMQ."""
    vhost, user = call.part("vhost"), call.part("name")
    Seen(call).check(vhost)
    is_it = lambda row: row["vhost"] == vhost and row["user"] == user  # noqa: E731
    row = _find(call, kind, is_it, f"permissions of {user!a:.300}")
    return await (
        listing(call, TABLES[kind], is_it) if kind != "permissions" else one(call, TABLES[kind], row)
    )


async def _parameter(call: Call) -> web.Response:
    Seen(call).check(call.part("vhost"))
    return await _matching("parameters", call)


async def _matching(kind: str, call: Call) -> web.Response:
    parts = dict(call.request.match_info)
    is_it = lambda row: all(row[key] == value for key, value in parts.items())  # noqa: E731
    return await one(call, TABLES[kind], _find(call, kind, is_it, f"{kind} {call.part('name')!a:.300}"))
