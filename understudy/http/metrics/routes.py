"""The paths that Prometheus reads. Reading needs no login."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from understudy.http.metrics.node_collector import NodeCollector, TlsState
from understudy.http.room import Call, Rights, Room, Route


def routes(room: Room, tls: TlsState | None = None) -> Iterable[Route]:
    """`tls`: the state of the node's TLS files."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(room.status, tls))
    ProcessCollector(registry=registry)

    async def metrics(_call: Call) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return (Route("GET", "/metrics", metrics, Rights.NOBODY),)
