"""The paths that Prometheus reads. Reading needs no login."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from ha.adapter.node import Node
from understudy.http.metrics import rabbitmq
from understudy.http.metrics.node_collector import NodeCollector
from understudy.http.metrics.scrape import Scrapes
from understudy.http.room import Call, Manageable, Rights, Room, Route, TlsState


def routes(room: Room, tls: TlsState | None = None) -> Iterable[Route]:
    """`tls`: the state of the node's TLS files."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(room.status, tls))
    ProcessCollector(registry=registry)
    scrapes = Scrapes(room.places.limits.idle)

    async def metrics(call: Call) -> web.StreamResponse:
        return await scrapes.answer(call.request, _aggregated(room.node, registry))

    async def per_object(call: Call) -> web.StreamResponse:
        return await scrapes.answer(call.request, rabbitmq.per_object(_node(room.node)))

    async def detailed(call: Call) -> web.StreamResponse:
        asked = call.request.query
        groups, vhosts = set(asked.getall("family", [])), asked.getall("vhost", None)
        return await scrapes.answer(call.request, rabbitmq.detailed(_node(room.node), groups, vhosts))

    return (
        Route("GET", "/metrics", metrics, Rights.NOBODY),
        Route("GET", "/metrics/per-object", per_object, Rights.NOBODY),
        Route("GET", "/metrics/detailed", detailed, Rights.NOBODY),
    )


def _aggregated(node: Manageable, registry: CollectorRegistry) -> Iterator[str]:
    yield generate_latest(registry).decode()
    if isinstance(node, Node):  # stand-ins in tests have no queues
        yield from rabbitmq.aggregated(node)


def _node(node: Manageable) -> Node:
    assert isinstance(node, Node)
    return node
