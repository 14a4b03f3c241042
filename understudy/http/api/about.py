"""GET of the node and its pair as a whole: overview, nodes, names, who asks, logins."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from broker.security.logins import Attempts, Logins
from ha.adapter.management.views.directory import cluster_name
from ha.adapter.management.views.overview import memory, nodes, overview
from ha.adapter.management.views.view import RowTable
from understudy.http.api.listing import listing
from understudy.http.api.query import list_query, pruned
from understudy.http.api.seen import Seen, not_found, view_of, viewed
from understudy.http.room import Call, Rights, Route


def routes() -> Iterable[Route]:
    return (
        Route("GET", "/api/overview", _overview),
        Route("GET", "/api/cluster-name", _cluster_name),
        Route("GET", "/api/whoami", _whoami),
        Route("GET", "/api/extensions", _nothing),
        Route("GET", "/api/feature-flags", _nothing, Rights.ADMINISTRATOR),
        Route("GET", "/api/deprecated-features", _nothing, Rights.ADMINISTRATOR),
        Route("GET", "/api/deprecated-features/used", _nothing, Rights.ADMINISTRATOR),
        Route("GET", "/api/auth", _auth, Rights.NOBODY),
        Route("GET", "/api/auth/attempts/{node}", _attempts, Rights.ADMINISTRATOR),
        Route("GET", "/api/auth/attempts/{node}/source", _attempts_by_source, Rights.ADMINISTRATOR),
        Route("GET", "/api/nodes", _nodes, Rights.MONITORING),
        Route("GET", "/api/nodes/{name}", _node, Rights.MONITORING),
        Route("GET", "/api/nodes/{name}/memory", _memory, Rights.MONITORING),
    )


async def _overview(call: Call) -> web.Response:
    query, seen = list_query(call.request.query), Seen(call)
    listeners = [
        {"node": viewed(call).me.name, "protocol": one.protocol, "ip_address": one.host, "port": one.port,
         "socket_opts": {}}
        for one in call.room.listeners
    ]  # fmt: skip
    row = overview(view_of(call), seen.vhosts, listeners, nodes=seen.monitors)
    return web.json_response(pruned(row, query.columns) if query.columns is not None else row)


async def _cluster_name(call: Call) -> web.Response:
    return web.json_response({"name": cluster_name(view_of(call))})


async def _whoami(call: Call) -> web.Response:
    return web.json_response({"name": call.visitor.name, "tags": sorted(call.visitor.identity.tags)})


async def _nothing(_call: Call) -> web.Response:
    """There are none here."""
    return web.json_response([])


async def _auth(_call: Call) -> web.Response:
    return web.json_response({"oauth_enabled": False})


async def _attempts(call: Call) -> web.Response:
    """Logins since the start, by protocol."""
    found = _logins(call).attempts
    return web.json_response([{"protocol": name, **_counted(attempts)} for name, attempts in found.items()])


async def _attempts_by_source(call: Call) -> web.Response:
    """By address, user and protocol: of the newest ones."""
    found = _logins(call).sources
    return web.json_response([
        {"remote_address": source.host, "username": source.name, "protocol": source.protocol,
         **_counted(attempts)}
        for source, attempts in found.items()
    ])  # fmt: skip


def _logins(call: Call) -> Logins:
    node = viewed(call)
    if call.part("node") != node.me.name:
        raise not_found(f"node {call.part('node')!a:.300}")
    return node.broker.logins


def _counted(attempts: Attempts) -> dict[str, int]:
    return {
        "auth_attempts": attempts.failed + attempts.succeeded, "auth_attempts_failed": attempts.failed,
        "auth_attempts_succeeded": attempts.succeeded,
    }  # fmt: skip


async def _nodes(call: Call) -> web.StreamResponse:
    return await listing(call, RowTable(nodes))


async def _node(call: Call) -> web.Response:
    query = list_query(call.request.query)
    for row in nodes(view_of(call)):
        if row["name"] == call.part("name"):
            return web.json_response(pruned(row, query.columns) if query.columns is not None else row)
    raise not_found(f"node {call.part('name')!a:.300}")


async def _memory(call: Call) -> web.Response:
    if call.part("name") != viewed(call).me.name:
        raise not_found(f"node {call.part('name')!a:.300}")
    return web.json_response({"memory": memory(view_of(call))})
