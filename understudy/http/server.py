"""The HTTP listener of a node: metrics, health for load balancers and resource managers, RabbitMQ's
management API and the console.

Role: connections, limits, logins and headers. What is answered is in the rooms (`understudy/http/room.py`).
Runs on the broker's event loop and never blocks it. Owner: the daemon. Requests by pages of other sites are
refused (`guard`).

aiohttp carries it: it is a dependency already. A small request costs 0.1 ms of the loop, as with Starlette on
uvicorn and httptools; 0.16 ms with h11.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import product

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from broker.security.logins import Logins
from broker.server.listener import listen
from understudy import codes
from understudy.http.answers import Refused, error_of
from understudy.http.api import routes as api
from understudy.http.api.changes import routes as changes
from understudy.http.audit import Audit
from understudy.http.console import routes as console
from understudy.http.guard import Guard
from understudy.http.headers import add_headers
from understudy.http.logins import HttpLogins
from understudy.http.metrics import routes as metrics
from understudy.http.node import routes as node
from understudy.http.places import LIMITS, VISITORS, Limits, Places
from understudy.http.room import (
    LARGEST,
    Call,
    Listener,
    Manageable,
    NodeFolders,
    Rights,
    Room,
    Route,
    TlsState,
)
from understudy.http.secure import Securing
from understudy.shared.addresses import HostPort
from understudy.shared.codes import Coded

_GOODBYE = 2.0
"""Seconds for open requests to finish when the node stops."""
_LOG = logging.getLogger("understudy.http")
_Next = Callable[[web.Request], Awaitable[web.StreamResponse]]


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


class HttpServer:
    """One listener. Call `start`, then `close`, both on the event loop."""

    LOCAL = False
    """Whether this is the control socket."""

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
        listeners: Iterable[Listener] = (),
        limits: Limits = LIMITS,
        folders: NodeFolders | None = None,
        secure: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`clock` is the clock that drives the node. `tick_soon` asks the shell for a tick after a command.
        `amqp`: where a client on this machine reaches the node. `visitors`: maximum connections at a time;
        see `Places`. `hosts`: names by which clients find this node. `tls`: the state of its TLS files.
        `listeners`: those of its other protocols. `folders`: what the console shows files of. `secure`: the
        context of TLS now; None: plain HTTP."""
        self._places = Places(visitors, limits, lambda said: _LOG.info(said.about("HTTP")))
        self.room = Room(
            node, clock, tick_soon, self._places, Audit(), amqp, folders, self.LOCAL, tls=tls,
            listeners=[*listeners],
        )  # fmt: skip
        self._logins = HttpLogins(logins, clock, self.LOCAL)
        self._tls = tls
        self._secure = secure
        self._guard = Guard(hosts)
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def start(self, address: HostPort) -> HostPort:
        """Listen. Returns the bound address. Raises OSError."""
        await self._prepare()
        self._server = await listen(self._visit, address.host, address.port)
        host, port, *_ = self._server.sockets[0].getsockname()
        protocol = "http" if self._secure is None else "https"
        self.room.listeners.append(Listener(protocol, str(host), int(port)))
        return HostPort(str(host), int(port))

    def routes(self) -> Iterable[Route]:
        """All paths that are answered, of all rooms."""
        yield from node.routes(self.room)
        yield from metrics.routes(self.room, self._tls)
        yield from api.routes(self.room)
        yield from changes.routes(self.room)
        yield from console.routes(self.room)

    async def _prepare(self) -> None:
        app = web.Application(client_max_size=LARGEST, middlewares=[self._let_in])
        app.on_response_prepare.append(add_headers)
        for route in self.routes():
            handler = partial(self._answer, route)
            methods = ("GET", "HEAD") if route.method == "GET" else (route.method,)
            # As in RabbitMQ, a slash at the end makes no difference.
            paths = (route.path, f"{route.path}/") if route.path.startswith("/api/") else (route.path,)
            for path, method in product(paths, methods):
                app.router.add_route(method, path, handler)
        limits = self._places.limits
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, logger=_LOG, keepalive_timeout=limits.idle,
            lingering_time=limits.head, shutdown_timeout=_GOODBYE,
        )  # fmt: skip
        await self._runner.setup()

    @web.middleware
    async def _let_in(self, request: web.Request, handler: _Next) -> web.StreamResponse:
        """Every request passes here: checks its headers, and notes its begin and end."""
        self._places.begins(transport := request.transport)
        try:
            self._check(request)
            return await handler(request)
        except Refused as refused:
            return refused.response()
        except web.HTTPException as error:
            return _as_json(error) if request.path.startswith("/api/") and error.status >= 400 else error
        finally:
            self._places.ends(transport)

    async def _answer(self, route: Route, request: web.Request) -> web.StreamResponse:
        """Raises Refused."""
        visitor = await self._logins.visitor(request, route)
        if route.rights is not Rights.NOBODY and not self._places.vouched(request.transport):
            raise Refused(503, codes.HTTP_BUSY.say())
        return await route.handler(Call(self.room, request, visitor))

    def _check(self, request: web.Request) -> None:
        """Raises Refused."""
        if not self.LOCAL:
            headers = {name.lower(): request.headers.getall(name) for name in request.headers}
            if (refusal := self._guard.refusal(request.method, headers)) is not None:
                raise Refused(refusal.status, refusal.said)

    def _visit(self) -> asyncio.BaseProtocol:
        """A protocol for a new connection."""
        assert self._runner is not None and self._runner.server is not None
        visit = self._places.take(self._runner.server)
        if self._secure is None:
            return visit
        return Securing(visit, self._secure, self._places.limits.head)

    async def close(self) -> None:
        self._places.close()
        if self._server is not None:
            self._server.close()
        for end in self.room.closing:
            end()
        if self._runner is not None:
            await self._runner.cleanup()


def _as_json(error: web.HTTPException) -> web.Response:
    """What aiohttp itself refuses, in RabbitMQ's form: no such path, no such method."""
    kept = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
    found = {"ok": False, "reason": error.reason} | error_of(error.status)
    return web.json_response(found, status=error.status, headers=kept)


def reachable(bound: HostPort) -> HostPort:
    """Where a client on this machine reaches a listener with this bound address; loopback for a wildcard."""
    try:
        address = ipaddress.ip_address(bound.host)
    except ValueError:
        return bound
    if not address.is_unspecified:
        return bound
    return HostPort("::1" if address.version == 6 else "127.0.0.1", bound.port)
