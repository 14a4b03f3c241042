"""A room of the HTTP server: what its handlers get, and how they tell which paths they answer.

Role: the types between `HttpServer` and the rooms (`node`, `metrics`, `api`, `console`). A room has a
function `routes(room)`, which the server calls once. The server checks the login and the tags before it calls
a handler. Each handler gets a `Call`, one request. It raises `Refused` to refuse it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from broker.security.identity import ADMINISTRATOR, Identity
from understudy import codes
from understudy.http.answers import Refused, bad
from understudy.http.audit import Audit
from understudy.http.guard import JSON, TwiceThere, object_of
from understudy.http.node.disk_probe import DiskProbe
from understudy.http.places import Places
from understudy.shared.addresses import HostPort

LARGEST = 64 * 1024
"""Largest body of a command, in octets."""
_OF_BROWSERS = ("Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Referer", "Cookie")
"""A POST of a page has at least the first of these."""


class NodeFolders(NamedTuple):
    """Where this node's files are."""

    data: Path
    """Its data directory."""
    reports: Path
    watch: Path
    """The checkpoint of a watch of its ledger."""
    brokers: tuple[str, ...] = ()
    """Addresses of the pair for clients; none of a broker on its own."""


class Manageable(Protocol):
    """What the rooms need of a node."""

    def status(self) -> dict[str, Any]: ...

    def manage(
        self, command: str, args: dict[str, Any], reply: Callable[[dict[str, Any]], None], now: float
    ) -> None: ...


class Rights(Enum):
    """What a request needs, by RabbitMQ's tags of users. The value: any one of these tags."""

    NOBODY = frozenset[str]()
    """No login."""
    MANAGEMENT = frozenset({"management", "policymaker", "monitoring", ADMINISTRATOR})
    """Own virtual hosts, and what the user's permissions allow there."""
    POLICYMAKER = frozenset({"policymaker", ADMINISTRATOR})
    """Policies and parameters of own virtual hosts."""
    MONITORING = frozenset({"monitoring", ADMINISTRATOR})
    """All virtual hosts, nodes, connections; reads only."""
    ADMINISTRATOR = frozenset({ADMINISTRATOR})


class Visitor(NamedTuple):
    """The user of a request. `password` is empty on the control socket, which needs none."""

    identity: Identity
    password: str
    host: str
    """The address that the request came from."""

    @property
    def name(self) -> str:
        return self.identity.name

    def has(self, rights: Rights) -> bool:
        return not rights.value or not rights.value.isdisjoint(self.identity.tags)


NOBODY = Visitor(Identity(""), "", "")


class TlsState(Protocol):
    """The state of `broker.security.tls.Tls`."""

    refused: bool

    @property
    def expires_at(self) -> float: ...


class Listener(NamedTuple):
    """`protocol` as RabbitMQ names it: `amqp`, `amqp/ssl`, `http`, `https`, `clustering`."""

    protocol: str
    host: str
    port: int


@dataclass(slots=True)
class Room:
    """What all rooms share. Owner: `HttpServer`."""

    node: Manageable
    clock: Callable[[], float]
    """The clock that drives the node."""
    tick_soon: Callable[[], None]
    places: Places
    audit: Audit
    amqp: HostPort | None = None
    """Where a client on this machine reaches the node."""
    folders: NodeFolders | None = None
    local: bool = False
    """Whether this is the control socket: no browser reaches it, no password is needed, and the client may be
    a resource manager, whose word that another node is off counts."""
    disk: DiskProbe | None = None
    """Read for each status; only of the control socket."""
    tls: TlsState | None = None
    """The node's TLS files."""
    listeners: list[Listener] = field(default_factory=list)
    """Where clients reach this node."""
    closing: list[Callable[[], None]] = field(default_factory=list)
    """Called when the listener closes: ends requests that would go on for ever."""
    status: Callable[[], dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.status = self.node.status

    async def ask(self, command: str, args: dict[str, Any]) -> dict[str, Any]:
        """The node's answer to a management command."""
        answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        def reply(answer: dict[str, Any]) -> None:
            if not answered.done():
                answered.set_result(answer)

        # Over the control socket comes the node's own resource manager, not an operator.
        asked = args if self.local else args | {"operator": True}
        self.node.manage(command, asked, reply, self.clock())
        self.tick_soon()
        return await answered


@dataclass(slots=True, frozen=True)
class Call:
    """One request."""

    room: Room
    request: web.Request
    visitor: Visitor

    def part(self, name: str) -> str:
        """A part of the path, decoded: `%2F` in it is a slash."""
        return self.request.match_info[name]

    async def ask(self, command: str, args: dict[str, Any]) -> dict[str, Any]:
        return await self.room.ask(command, args)

    async def body(self, largest: int = LARGEST, *, named: bool = True) -> dict[str, Any]:
        """The JSON object of the body; an empty body is an empty object. `named`: see `check_type`. Raises
        Refused."""
        self.check_type(named=named)
        try:
            async with asyncio.timeout(self.room.places.limits.body):
                octets = await self.octets(largest)
            if len(octets) > LARGEST:
                return await asyncio.to_thread(object_of, octets)
            return object_of(octets)
        except TimeoutError:
            raise Refused(408, codes.HTTP_TIMEOUT.say()) from None
        except TwiceThere as error:
            raise bad(f"the body has {str(error)[:100]!a} twice") from error
        except ValueError as error:
            raise bad("the body must be a JSON object") from error

    async def octets(self, largest: int) -> bytes:
        """The body. Raises Refused if it is larger, or does not match its headers."""
        body = bytearray()
        try:
            async for piece in self.request.content.iter_any():
                body += piece
                if len(body) > largest:
                    raise Refused(413, codes.HTTP_BAD_ARGUMENTS.say(fault=f"larger than {largest} octets"))
        except web.RequestPayloadError as error:
            raise bad("the body does not match its headers") from error
        return bytes(body)

    def check_type(self, *, named: bool = True) -> None:
        """Require JSON as the content type of a POST. A page in a browser can send other types without
        permission, but no other methods. `named` False: a program may call a body what it likes, as for
        RabbitMQ. A browser always says from which page it posts. Raises Refused."""
        request = self.request
        if not named and not any(header in request.headers for header in _OF_BROWSERS):
            return
        told = "Content-Type" in request.headers or request.body_exists
        if not self.room.local and request.method == "POST" and told and request.content_type != JSON:
            raise Refused(415, codes.HTTP_NOT_JSON.say())

    def changed(self, what: str, **of: object) -> None:
        """Note in the audit log that this request has changed something."""
        self.room.audit.changed(self.visitor.name, self.visitor.host, what, of)


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    """`path` may have parts `{name}`, each up to the next slash. `password`: whether the handler needs the
    password itself, also over the control socket."""

    method: str
    path: str
    handler: Handler
    rights: Rights = Rights.MANAGEMENT
    password: bool = False
