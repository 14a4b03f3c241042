"""Refuses HTTP requests that a page in an operator's browser may have sent.

Role: pure checks of the headers and of the form of a body. A page can make a browser send almost any request
to this node, with the operator's password. It cannot choose `Host` (the name by which the browser found this
node: DNS rebinding), `Origin` and `Sec-Fetch-Site`. Nor can it send JSON as the content type without
permission. Owner: `HttpServer`, which asks for each request. Each refusal is a code and one line.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from understudy import codes
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from understudy.config.settings import Settings

JSON = "application/json"
LOOPBACK = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_OWN_PAGES = ("same-origin", "none")
"""`none`: the operator asked, not a page."""
_PORTS = {"http": 80, "https": 443}
_SHOWN = 100


class Refusal(NamedTuple):
    """`status`: the HTTP status."""

    status: int
    said: Coded


def names_of(settings: Settings) -> set[str]:
    """Names by which HTTP clients may address this node: those of the configuration, and the name of the
    machine."""
    broker, ha = settings.broker, settings.ha
    own = [address for address in (broker.http, ha.listen) if address is not None]
    addresses = (*own, *broker.listen, *broker.tls_listen, *ha.routes, *ha.public_brokers)
    return {socket.gethostname(), *(address.host for address in addresses), *broker.http_hosts}


class TwiceThere(ValueError):
    """An object in a body has the same key twice. Readers would differ on which value counts."""


class Guard:
    """`names`: names of this node, in addition to IP addresses and loopback names."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {_bare(name) for name in (*LOOPBACK, *names)}

    def refusal(self, method: str, headers: Mapping[str, Collection[str]]) -> Refusal | None:
        """The refusal of a request with these headers, or None. Names of headers are in lower case."""
        hosts = list(headers.get("host", ()))
        if len(hosts) > 1:
            return Refusal(
                400, codes.HTTP_BAD_ARGUMENTS.say(fault="the request must have exactly one Host header")
            )
        host = hosts[0].strip() if hosts else ""
        if host and not self._is_known(host):
            return Refusal(421, codes.HTTP_UNKNOWN_HOST.say(host=_shown(host)))
        return None if method in ("GET", "HEAD") else _foreign(host, headers)

    def _is_known(self, host: str) -> bool:
        """Whether `host` is an IP address or a known name. An IP address needs no DNS lookup that an attacker
        could answer, so browsers, health checks and Prometheus may use any address."""
        name, _ = _split(host)
        return _is_address(name) or name in self._names


def _foreign(host: str, headers: Mapping[str, Collection[str]]) -> Refusal | None:
    """The refusal of a request that a page of another site sent, or None."""
    if any(site.strip().lower() not in _OWN_PAGES for site in headers.get("sec-fetch-site", ())):
        return Refusal(403, codes.HTTP_FOREIGN_PAGE.say())
    for origin in headers.get("origin", ()):
        if not _same(origin.strip(), host):
            return Refusal(403, codes.HTTP_FOREIGN_ORIGIN.say(origin=_shown(origin), host=_shown(host)))
    return None


def _same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
        found = _bare(parts.hostname or ""), parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return False
    name, port = _split(host)
    return bool(name) and found == (name, port or _PORTS.get(parts.scheme))


def _split(host: str) -> tuple[str, int | None]:
    """Name or address, and port, of a Host header. The name is empty if the header is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        if parts.path or parts.query or parts.fragment or "@" in parts.netloc:
            return "", None
        return _bare(parts.hostname or ""), parts.port
    except ValueError:
        return "", None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _bare(name: str) -> str:
    """The name as it is sent: in lower case, in IDNA, without the final dot."""
    name = name.lower().removesuffix(".")
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        return name


def object_of(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; an empty body is an empty object. Raises ValueError, or TwiceThere for a
    repeated key."""
    if not body.strip():
        return {}
    try:
        found = json.loads(body, object_pairs_hook=_once)
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise TwiceThere(next(key for key in keys if keys.count(key) > 1))
    return found


def _shown(text: str) -> str:
    return ascii(text[:_SHOWN])
