"""Who sends a request: HTTP basic authentication by the broker's users.

Owner: `HttpServer`, which asks for each request that needs a login. Passwords are checked by the broker's
`Logins`, off the event loop, with its pauses for addresses that keep failing.
"""

from __future__ import annotations

import asyncio
import ipaddress
from base64 import b64decode
from collections.abc import Callable

from aiohttp import web

from broker.errors import AmqpError, ConnectionForced, LoginRefused
from broker.security.authenticator import Login
from broker.security.identity import ADMINISTRATOR, Identity
from broker.security.logins import BUSY, Logins
from broker.security.tickets import Answer, Ticket
from understudy import codes
from understudy.http.answers import Refused
from understudy.http.room import NOBODY, Rights, Route, Visitor
from understudy.shared.codes import Coded

_PATIENCE = 10.0
"""Maximum seconds that a password waits for its check."""
_CHALLENGE = {"WWW-Authenticate": 'Basic realm="understudy", charset="UTF-8"'}
_LOCAL = Visitor(Identity("control socket", frozenset({ADMINISTRATOR})), "", "this machine")


class HttpLogins:
    """`local`: the requests come over the control socket. Who may open it is an administrator."""

    def __init__(self, logins: Logins, clock: Callable[[], float], local: bool) -> None:
        self._logins = logins
        self._clock = clock
        self._local = local

    async def visitor(self, request: web.Request, route: Route) -> Visitor:
        """Who asks, if they may. Raises Refused."""
        if route.rights is Rights.NOBODY:
            return NOBODY
        if self._local and not route.password:
            return _LOCAL
        visitor = await self._logged_in(request)
        if not visitor.has(route.rights):
            raise Refused(403, _missing(visitor, route.rights))
        return visitor

    async def _logged_in(self, request: web.Request) -> Visitor:
        name, password = credentials(request.headers.get("Authorization", ""))
        answer: Answer | None = None
        if name:
            near = self._local or is_loopback(request.remote)
            secure = request.transport is not None and bool(request.transport.get_extra_info("ssl_object"))
            answer = await self._checked(
                Login(name, password, request.remote or "", loopback=near, tls=secure, protocol="http")
            )
        if answer is None or isinstance(answer, LoginRefused):
            raise Refused(401, codes.HTTP_LOGIN.say(), _CHALLENGE)
        if isinstance(answer, AmqpError):
            raise Refused(503, codes.HTTP_LOGINS_BUSY.say(cause=answer.text), {"Retry-After": "1"})
        return Visitor(answer, password, request.remote or "this machine")

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


def _missing(visitor: Visitor, rights: Rights) -> Coded:
    if rights is Rights.ADMINISTRATOR:
        return codes.HTTP_NOT_ADMINISTRATOR.say(user=visitor.name)
    return codes.HTTP_NO_TAG.say(user=visitor.name, tags=", ".join(sorted(rights.value)))


def credentials(header: str) -> tuple[str, str]:
    """Name and password of an `Authorization` header; empty if it is none of basic authentication."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        name, _, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:  # not base64, not ASCII, not UTF-8
        return "", ""
    return name, password


def is_loopback(remote: str | None) -> bool:
    try:
        return ipaddress.ip_address((remote or "").partition("%")[0]).is_loopback
    except ValueError:
        return False
