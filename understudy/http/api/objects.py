"""GET of queues, exchanges, bindings, connections, channels, consumers and virtual hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from broker.model.queue.queue import Queue
from broker.model.routing.exchange import Exchange
from ha.adapter.management.connection_name import connection_name
from ha.adapter.management.views.channels import CHANNELS
from ha.adapter.management.views.connections import CONNECTIONS
from ha.adapter.management.views.consumers import channel_name
from ha.adapter.management.views.exchanges import (
    BINDINGS,
    EXCHANGES,
    Bound,
    bindings,
    bindings_from,
    bindings_to,
)
from ha.adapter.management.views.queues import QUEUES
from ha.adapter.management.views.tables import TABLES, AnyTable
from ha.adapter.management.views.vhosts import VHOSTS
from ha.adapter.management.views.view import View
from understudy.http.api.listing import listing, one
from understudy.http.api.seen import Seen, not_found, view_of, viewed
from understudy.http.room import Call, Route

_QUEUE, _EXCHANGE = "/api/queues/{vhost}/{name}", "/api/exchanges/{vhost}/{name}"
_BETWEEN = "/api/bindings/{vhost}/e/{source}"
_DEFAULT = "amq.default"


def routes() -> Iterable[Route]:
    for name in ("queues", "exchanges", "consumers", "connections", "channels", "vhosts"):
        yield Route("GET", f"/api/{name}", partial(_all, TABLES[name]))
    yield Route("GET", "/api/queues/detailed", partial(_all, QUEUES))
    for name in ("queues", "exchanges", "consumers"):
        yield Route("GET", f"/api/{name}/{{vhost}}", partial(_in_vhost, TABLES[name]))
    yield Route("GET", "/api/bindings", partial(_all, BINDINGS))
    yield Route("GET", "/api/bindings/{vhost}", _bindings)
    yield Route("GET", _QUEUE, _queue)
    yield Route("GET", f"{_QUEUE}/bindings", _queue_bindings)
    yield Route("GET", _EXCHANGE, _exchange)
    yield Route("GET", f"{_EXCHANGE}/bindings/source", partial(_exchange_bindings, "source"))
    yield Route("GET", f"{_EXCHANGE}/bindings/destination", partial(_exchange_bindings, "destination"))
    for letter in ("q", "e"):
        path = f"{_BETWEEN}/{letter}/{{destination}}"
        yield Route("GET", path, partial(_between, letter))
        yield Route("GET", f"{path}/{{props}}", partial(_binding, letter))
    yield Route("GET", "/api/connections/{name}", _connection)
    yield Route("GET", "/api/connections/{name}/channels", _channels_of)
    yield Route("GET", "/api/connections/username/{user}", _connections_of)
    yield Route("GET", "/api/channels/{name}", _channel)
    yield Route("GET", "/api/vhosts/{name}", _vhost)
    for name in ("connections", "channels"):
        yield Route("GET", f"/api/vhosts/{{vhost}}/{name}", partial(_in_vhost, TABLES[name]))


async def _all(table: AnyTable, call: Call) -> web.StreamResponse:
    return await listing(call, table)


async def _in_vhost(table: AnyTable, call: Call) -> web.StreamResponse:
    vhost = _vhost_of(call)
    return await listing(call, table, lambda item: table.vhost(item) == vhost)


def _vhost_of(call: Call, part: str = "vhost") -> str:
    """Raises Refused."""
    vhost = call.part(part)
    Seen(call).check(vhost)
    return vhost


# -- queues and exchanges


def _queue_of(call: Call, part: str = "name") -> Queue:
    queue = viewed(call).vhosts[_vhost_of(call)].queues.get(call.part(part))
    if queue is None:
        raise not_found(f"queue {call.part(part)!a:.300}")
    return queue


def _exchange_of(call: Call, part: str = "name") -> Exchange:
    name = call.part(part)
    exchange = viewed(call).vhosts[_vhost_of(call)].exchanges.get("" if name == _DEFAULT else name)
    if exchange is None:
        raise not_found(f"exchange {name!a:.300}")
    return exchange


async def _queue(call: Call) -> web.Response:
    return await one(call, QUEUES, _queue_of(call))


async def _exchange(call: Call) -> web.Response:
    return await one(call, EXCHANGES, _exchange_of(call))


# -- bindings


async def _bindings(call: Call) -> web.StreamResponse:
    vhost = _vhost_of(call)
    return await listing(call, BINDINGS, items=lambda view: bindings(view, vhost))


async def _queue_bindings(call: Call) -> web.StreamResponse:
    queue = _queue_of(call)
    return await _told(call, lambda view: bindings_to(view, queue.vhost, queue.name, queue=True))


async def _exchange_bindings(end: str, call: Call) -> web.StreamResponse:
    exchange = _exchange_of(call)
    if end == "destination":
        return await _told(call, lambda view: bindings_to(view, exchange.vhost, exchange.name, queue=False))
    if not exchange.name:
        default = lambda bound: bound.binding is None  # noqa: E731
        return await listing(call, BINDINGS, default, items=lambda view: bindings(view, exchange.vhost))
    return await _told(call, lambda view: bindings_from(exchange))


async def _told(call: Call, items: Callable[[View], Iterable[Bound]]) -> web.StreamResponse:
    return await listing(call, BINDINGS, items=items)


def _found_between(letter: str, call: Call, view: View) -> list[Bound]:
    """Those of one exchange and one target. Raises Refused."""
    source = _exchange_of(call, "source")
    target = _queue_of(call, "destination") if letter == "q" else _exchange_of(call, "destination")
    found = bindings_to(view, source.vhost, target.name, queue=letter == "q")
    return [bound for bound in found if bound.source == source.name]


async def _between(letter: str, call: Call) -> web.StreamResponse:
    return await _told(call, partial(_found_between, letter, call))


async def _binding(letter: str, call: Call) -> web.Response:
    props = call.part("props")
    for bound in _found_between(letter, call, view_of(call)):
        if props in (bound.key, unquote(bound.key)):  # some clients encode it twice, as RabbitMQ's do
            return await one(call, BINDINGS, bound)
    raise not_found(f"binding {props!a:.300}")


# -- connections, channels, virtual hosts


def _own(table: AnyTable, call: Call, is_it: Callable[[Any], bool], what: str) -> Any:
    """The object of that kind that the user may see. Raises Refused."""
    seen, view = Seen(call), view_of(call)
    for item in table.items(view):
        if is_it(item) and seen.has(table, item):
            return item
    raise not_found(what)


def _connection_of(call: Call) -> Any:
    name = call.part("name")
    return _own(CONNECTIONS, call, lambda c: connection_name(c) == name, f"connection {name!a:.300}")


async def _connection(call: Call) -> web.Response:
    return await one(call, CONNECTIONS, _connection_of(call))


async def _channels_of(call: Call) -> web.StreamResponse:
    connection = _connection_of(call)
    return await listing(call, CHANNELS, lambda found: found.connection is connection)


async def _connections_of(call: Call) -> web.StreamResponse:
    user = call.part("user")
    return await listing(call, CONNECTIONS, lambda connection: connection.user == user)


async def _channel(call: Call) -> web.Response:
    name = call.part("name")
    found = _own(
        CHANNELS, call, lambda c: channel_name(c.connection, c.number) == name, f"channel {name!a:.300}"
    )
    return await one(call, CHANNELS, found)


async def _vhost(call: Call) -> web.Response:
    return await one(call, VHOSTS, viewed(call).vhosts[_vhost_of(call, "name")])
