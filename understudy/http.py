"""The node over HTTP: metrics for Prometheus, health for load balancers and resource managers, status,
promotion.

Role: a second door to what `Node.status` and `Node.manage` say; lives on the broker's event loop and does
nothing that blocks it. Owner: the daemon. Reading is open to whoever reaches the port; promote, demote and
switchover ask for an administrator by HTTP basic authentication, and for POST. So do definitions, both ways.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from broker.errors import LoginRefused
from broker.security.authenticator import Authenticator
from broker.server.listener import listen
from understudy.config_types import HostPort
from understudy.definitions_http import DefinitionsApi
from understudy.management import SERVING, could_serve
from understudy.metrics import NodeCollector, TlsState
from understudy.open_files import VISITORS

_IDLE = 75.0
"""Seconds for which a connection may say nothing."""
_GOODBYE = 2.0
"""Seconds that requests get to end when the node stops."""
_LOG = logging.getLogger("understudy.http")


class _OneLine(logging.Filter):
    """A request that is none, or is broken off, is the visitor's affair, and worth one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError):
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.INFO, "INFO"
            record.msg, record.args = "HTTP: %s: %.200s", (record.getMessage(), " ".join(str(error).split()))
        return _LOG.isEnabledFor(record.levelno)


_LOG.addFilter(_OneLine())


class _Refused(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Manageable(Protocol):
    """What this module needs of a node."""

    def status(self) -> dict[str, Any]: ...

    def manage(
        self, command: str, args: dict[str, Any], reply: Callable[[dict[str, Any]], None], now: float
    ) -> None: ...


class HttpServer:
    """One listener. `start`, then `close`; both on the event loop."""

    def __init__(
        self,
        node: Manageable,
        authenticator: Authenticator,
        *,
        clock: Callable[[], float],
        tick_soon: Callable[[], None],
        amqp: HostPort | None = None,
        tls: TlsState | None = None,
        visitors: int = VISITORS,
    ) -> None:
        """`clock` is the one the node is driven by; `tick_soon` asks the shell for a tick after a command.
        `amqp`: where a client on this machine reaches the node. `visitors`: the most connections at a
        time; others are closed at once."""
        self._node = node
        self._authenticator = authenticator
        self._clock = clock
        self._tick_soon = tick_soon
        self._registry = CollectorRegistry()
        self._registry.register(NodeCollector(node.status, tls))
        ProcessCollector(registry=self._registry)
        self._visitors = visitors
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._definitions = DefinitionsApi(self._ask, amqp)

    async def start(self, address: HostPort) -> HostPort:
        """Listen; the address as bound. Raises OSError."""
        await self._prepare()
        self._server = await listen(self._visit, address.host, address.port)
        bound = self._server.sockets[0].getsockname()
        return HostPort(str(bound[0]), int(bound[1]))

    async def _prepare(self) -> None:
        app = web.Application(client_max_size=64 * 1024)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health/live", self._live)
        app.router.add_get("/health/ready", self._ready)
        app.router.add_get("/health/primary", self._primary)
        app.router.add_get("/api/status", self._status)
        app.router.add_post("/api/promote", self._promote)
        app.router.add_post("/api/demote", self._demote)
        app.router.add_post("/api/switchover", self._switchover)
        app.router.add_get("/api/definitions", self._get_definitions)
        app.router.add_post("/api/definitions", self._post_definitions)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, logger=_LOG, keepalive_timeout=_IDLE,
            shutdown_timeout=_GOODBYE,
        )  # fmt: skip
        await self._runner.setup()

    def _visit(self) -> asyncio.BaseProtocol:
        """For one connection more."""
        assert self._runner is not None and self._runner.server is not None
        if len(self._runner.server.connections) < self._visitors:
            return self._runner.server()
        _LOG.warning("HTTP connection refused: %d are open already", self._visitors)
        return _Refused()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def _live(self, _request: web.Request) -> web.Response:
        return _plain(True, "alive")

    async def _ready(self, _request: web.Request) -> web.Response:
        found = self._node.status()
        return _plain(could_serve(found), found["status"])

    async def _primary(self, _request: web.Request) -> web.Response:
        found = self._node.status()
        if found.get("withheld"):
            return _plain(False, found["reason"])
        return _plain(found["status"] in SERVING, found["status"])

    async def _status(self, _request: web.Request) -> web.Response:
        return web.json_response(self._node.status())

    async def _promote(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        args = await self._arguments(request)
        fault = self._promote_fault(args)
        if fault is not None:
            return web.json_response({"ok": False, "reason": fault}, status=400)
        return await self._command("promote", {"force_lossy": False} | args)

    def _promote_fault(self, args: dict[str, Any]) -> str | None:
        """What is wrong with the arguments."""
        if not isinstance(args.get("force_lossy", False), bool) or set(args) - {"force_lossy"}:
            return 'the only argument is "force_lossy", true or false'
        return None

    async def _demote(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if await self._arguments(request):
            return web.json_response({"ok": False, "reason": "it takes no arguments"}, status=400)
        return await self._command("demote", {})

    async def _switchover(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        args = await self._arguments(request)
        to = args.get("to")
        if not isinstance(to, str | None) or set(args) - {"to"}:
            return web.json_response(
                {"ok": False, "reason": 'the only argument is "to", the name of a backup'}, status=400
            )
        return await self._command("switchover", {"to": to})

    async def _get_definitions(self, request: web.Request) -> web.StreamResponse:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        return await self._definitions.get(request)

    async def _post_definitions(self, request: web.Request) -> web.StreamResponse:
        if (refusal := self._login_refusal(request)) is not None:
            return refusal
        return await self._definitions.post(request, *_credentials(request.headers["Authorization"]))

    async def _arguments(self, request: web.Request) -> dict[str, Any]:
        """The JSON object of the body; an empty body is an empty one."""
        try:
            body = await request.read()
        except web.RequestPayloadError as error:
            raise web.HTTPBadRequest(text="the body is not what its headers say\n") from error
        if not body.strip():
            return {}
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise web.HTTPBadRequest(text="the body must be a JSON object\n")
        return found

    async def _command(self, command: str, args: dict[str, Any]) -> web.Response:
        answer = await self._ask(command, args)
        return web.json_response(answer, status=200 if answer.get("ok") else 409)

    async def _ask(self, command: str, args: dict[str, Any]) -> dict[str, Any]:
        return await self._answered(command, args | {"operator": True})

    async def _answered(self, command: str, args: dict[str, Any]) -> dict[str, Any]:
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def reply(answer: dict[str, Any]) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._node.manage(command, args, reply, self._clock())
        self._tick_soon()
        return await answered

    def _refusal(self, request: web.Request) -> web.Response | None:
        """None for an administrator."""
        return self._login_refusal(request)

    def _login_refusal(self, request: web.Request) -> web.Response | None:
        """None for an administrator who has logged in."""
        challenge = {"WWW-Authenticate": 'Basic realm="understudy", charset="UTF-8"'}
        name, password = _credentials(request.headers.get("Authorization", ""))
        try:
            identity = self._authenticator.authenticate(name, password, loopback=self._is_near(request))
        except LoginRefused:
            return web.json_response(
                {"ok": False, "reason": "log in as an administrator"}, status=401, headers=challenge
            )
        if not identity.is_administrator:
            return web.json_response(
                {"ok": False, "reason": f"{identity.name} is not an administrator"}, status=403
            )
        return None

    def _is_near(self, request: web.Request) -> bool:
        """It comes from this machine."""
        return _is_loopback(request.remote)


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:  # not base64, not ASCII, not UTF-8
        return "", ""
    return name, password


def _is_loopback(remote: str | None) -> bool:
    try:
        return ipaddress.ip_address((remote or "").partition("%")[0]).is_loopback
    except ValueError:
        return False


def _plain(good: bool, text: str) -> web.Response:
    return web.Response(text=text + "\n", status=200 if good else 503)


def reachable(bound: HostPort) -> HostPort:
    """Where a client on this machine finds a listener that is bound so: a wildcard is no address to go to."""
    try:
        address = ipaddress.ip_address(bound.host)
    except ValueError:
        return bound
    if not address.is_unspecified:
        return bound
    return HostPort("::1" if address.version == 6 else "127.0.0.1", bound.port)
