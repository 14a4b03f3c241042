"""The node over HTTP: metrics for Prometheus, health for load balancers and resource managers, status,
promotion and definitions.

Role: HTTP access to `Node.status` and `Node.manage`. Runs on the broker's event loop and never blocks it.
Owner: the daemon. Reading needs no login. Promote, demote, switchover and both directions of definitions need
an administrator, by HTTP basic authentication; commands need POST. Requests by pages in a browser are refused
(`http_guard`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

from broker.errors import AmqpError, ConnectionForced, LoginRefused
from broker.security.authenticator import Login
from broker.security.logins import BUSY, Logins
from broker.security.tickets import Answer, Ticket
from broker.server.listener import listen
from ha.adapter.management.command_arguments import fault_of
from understudy import codes
from understudy.definitions.http import DefinitionsApi
from understudy.management import SERVING, could_serve
from understudy.server.http_guard import JSON, Guard, TwiceThere, object_of
from understudy.server.http_places import LIMITS, Limits, Places
from understudy.server.metrics import NodeCollector, TlsState
from understudy.server.open_files import VISITORS
from understudy.shared.addresses import HostPort
from understudy.shared.codes import Coded

_PATIENCE = 10.0
"""Maximum seconds that a password waits for its check."""
_GOODBYE = 2.0
"""Seconds for open requests to finish when the node stops."""
_LOG = logging.getLogger("understudy.http")


class _OneLine(logging.Filter):
    """Logs a malformed or aborted request in one line without a traceback: it is the fault of the client."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError):
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.INFO, "INFO"
            record.msg, record.args = "HTTP: %s: %.200s", (record.getMessage(), " ".join(str(error).split()))
        elif record.levelno >= logging.WARNING and not isinstance(record.msg, Coded):
            record.msg, record.args = codes.HTTP_FAILED.say(cause=record.getMessage()), ()
        return _LOG.isEnabledFor(record.levelno)


_LOG.addFilter(_OneLine())


class Manageable(Protocol):
    """What this module needs of a node."""

    def status(self) -> dict[str, Any]: ...

    def manage(
        self, command: str, args: dict[str, Any], reply: Callable[[dict[str, Any]], None], now: float
    ) -> None: ...


class HttpServer:
    """One listener. Call `start`, then `close`, both on the event loop."""

    BROWSERS = True
    """Whether a browser can reach this listener."""
    VOUCHES = False
    """Whether the client may be a resource manager, whose word that another node is off counts."""

    def __init__(
        self,
        node: Manageable,
        logins: Logins,
        *,
        clock: Callable[[], float],
        tick_soon: Callable[[], None],
        amqp: HostPort | None = None,
        tls: TlsState | None = None,
        visitors: int = VISITORS,
        hosts: Iterable[str] = (),
        limits: Limits = LIMITS,
    ) -> None:
        """`clock` is the clock that drives the node. `tick_soon` asks the shell for a tick after a command.
        `amqp`: where a client on this machine reaches the node. `visitors`: maximum connections at a time;
        see `Places`. `hosts`: names by which clients find this node."""
        self._node = node
        self._logins = logins
        self._clock = clock
        self._tick_soon = tick_soon
        self._registry = CollectorRegistry()
        self._registry.register(NodeCollector(node.status, tls))
        ProcessCollector(registry=self._registry)
        self._places = Places(visitors, limits, lambda said: _LOG.info(said.about("HTTP")))
        self._guard = Guard(hosts)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._definitions = DefinitionsApi(self._ask, amqp, limits.upload)

    async def start(self, address: HostPort) -> HostPort:
        """Listen. Returns the bound address. Raises OSError."""
        await self._prepare()
        self._server = await listen(self._visit, address.host, address.port)
        bound = self._server.sockets[0].getsockname()
        return HostPort(str(bound[0]), int(bound[1]))

    async def _prepare(self) -> None:
        app = web.Application(client_max_size=64 * 1024, middlewares=[self._let_in])
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
        limits = self._places.limits
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, logger=_LOG, keepalive_timeout=limits.idle,
            lingering_time=limits.head, shutdown_timeout=_GOODBYE,
        )  # fmt: skip
        await self._runner.setup()

    @web.middleware
    async def _let_in(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Every request passes here: checks its headers, and notes its begin and end."""
        self._places.begins(transport := request.transport)
        try:
            refusal = self._guard_refusal(request)
            return refusal if refusal is not None else await handler(request)
        finally:
            self._places.ends(transport)

    def _guard_refusal(self, request: web.Request) -> web.Response | None:
        if self.BROWSERS:
            headers = {name.lower(): request.headers.getall(name) for name in request.headers}
            if (refusal := self._guard.refusal(request.method, headers)) is not None:
                return _no(refusal.status, refusal.said)
        return None

    def _visit(self) -> asyncio.BaseProtocol:
        """A protocol for a new connection."""
        assert self._runner is not None and self._runner.server is not None
        return self._places.take(self._runner.server)

    async def close(self) -> None:
        self._places.close()
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
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        args = await self._arguments(request)
        fault = fault_of("promote", args, vouches=self.VOUCHES)
        if fault is not None:
            return _no(400, codes.HTTP_BAD_ARGUMENTS.say(fault=fault))
        return await self._command("promote", {"force_lossy": False} | args)

    async def _demote(self, request: web.Request) -> web.Response:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        if (fault := fault_of("demote", await self._arguments(request))) is not None:
            return _no(400, codes.HTTP_BAD_ARGUMENTS.say(fault=fault))
        return await self._command("demote", {})

    async def _switchover(self, request: web.Request) -> web.Response:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        args = await self._arguments(request)
        if (fault := fault_of("switchover", args)) is not None:
            return _no(400, codes.HTTP_BAD_ARGUMENTS.say(fault=fault))
        return await self._command("switchover", {"to": args.get("to")})

    async def _get_definitions(self, request: web.Request) -> web.StreamResponse:
        if (refusal := await self._refusal(request)) is not None:
            return refusal
        return await self._definitions.get(request)

    async def _post_definitions(self, request: web.Request) -> web.StreamResponse:
        if (refusal := await self._login_refusal(request)) is not None:
            return refusal
        self._check_type(request)
        return await self._definitions.post(request, *_credentials(request.headers["Authorization"]))

    async def _arguments(self, request: web.Request) -> dict[str, Any]:
        """The JSON object of the body, or an empty one for an empty body. Raises an HTTP error of aiohttp."""
        self._check_type(request)
        try:
            async with asyncio.timeout(self._places.limits.body):
                return object_of(await request.read())
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"{codes.HTTP_TIMEOUT.say()}\n") from None
        except web.RequestPayloadError as error:
            raise _bad("the body does not match its headers") from error
        except TwiceThere as error:
            raise _bad(f"the body has {str(error)[:100]!a} twice") from error
        except ValueError as error:
            raise _bad("the body must be a JSON object") from error

    def _check_type(self, request: web.Request) -> None:
        """Require JSON as the content type. A page in a browser can send other types without permission.
        Raises HTTPUnsupportedMediaType."""
        named = "Content-Type" in request.headers or request.body_exists
        if self.BROWSERS and named and request.content_type != JSON:
            raise web.HTTPUnsupportedMediaType(text=f"{codes.HTTP_NOT_JSON.say()}\n")

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

    async def _refusal(self, request: web.Request) -> web.Response | None:
        """The refusal of a command, or None for an administrator."""
        return await self._login_refusal(request)

    async def _login_refusal(self, request: web.Request) -> web.Response | None:
        """The refusal, or None for an administrator who gave the right password."""
        challenge = {"WWW-Authenticate": 'Basic realm="understudy", charset="UTF-8"'}
        name, password = _credentials(request.headers.get("Authorization", ""))
        answer: Answer | None = None
        if name:
            near = self._is_near(request)
            answer = await self._checked(Login(name, password, request.remote or "", loopback=near))
        if answer is None or isinstance(answer, LoginRefused):
            return _no(401, codes.HTTP_LOGIN.say(), challenge)
        if isinstance(answer, AmqpError):
            return _no(503, codes.HTTP_LOGINS_BUSY.say(cause=answer.text), {"Retry-After": "1"})
        if not answer.is_administrator:
            return _no(403, codes.HTTP_NOT_ADMINISTRATOR.say(user=answer.name))
        if not self._places.vouched(request.transport):
            return _no(503, codes.HTTP_BUSY.say())
        return None

    async def _checked(self, login: Login) -> Answer:
        """The user, or why the login is refused. Waits at most `_PATIENCE`."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answer(found: Answer, _now: float) -> None:
            if not answered.done():
                answered.set_result(found)

        found = self._logins.ask(login, answer, self._clock())
        if not isinstance(found, Ticket):
            return found
        try:
            async with asyncio.timeout(_PATIENCE):
                return await answered
        except TimeoutError:
            return ConnectionForced(BUSY)
        finally:
            self._logins.withdraw(found)

    def _is_near(self, request: web.Request) -> bool:
        """Whether the request comes from this machine."""
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


def _no(status: int, said: Coded, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(said.answer(), status=status, headers=headers)


def _bad(fault: str) -> web.HTTPBadRequest:
    return web.HTTPBadRequest(text=f"{codes.HTTP_BAD_ARGUMENTS.say(fault=fault)}\n")


def _plain(good: bool, text: str) -> web.Response:
    return web.Response(text=text + "\n", status=200 if good else 503)


def reachable(bound: HostPort) -> HostPort:
    """Where a client on this machine reaches a listener with this bound address; loopback for a wildcard."""
    try:
        address = ipaddress.ip_address(bound.host)
    except ValueError:
        return bound
    if not address.is_unspecified:
        return bound
    return HostPort("::1" if address.version == 6 else "127.0.0.1", bound.port)
