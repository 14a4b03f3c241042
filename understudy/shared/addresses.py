"""TCP addresses as people write them, in settings, on the command line and in the client kit.

Each parser raises ValueError with a text that fits on one line and says what is valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
MOST_ROUTES = 4
"""Addresses of one node of a pair: one for each network between the nodes."""


class HostPort(NamedTuple):
    """A TCP address. An IPv6 host is written `[::1]:5672`."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TlsHostPort(HostPort):
    """An address where TLS is spoken: `amqps://HOST:PORT`."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"amqps://{super().__str__()}"


def parse_address(value: Any) -> HostPort:
    """`HOST:PORT` with a port of 0-65535."""
    if isinstance(value, HostPort):
        return value
    if isinstance(value, str):
        host, colon, port = value.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if colon and host and port.isascii() and port.isdigit() and int(port) <= 65535 and is_host(host):
            return HostPort(host, int(port))
    raise ValueError(f"{without_login(value)} is not an address HOST:PORT")


def is_host(text: str) -> bool:
    """Whether the resolver accepts the name. It raises UnicodeError for an empty or too long label."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return not set("\0@/") & set(text)


def without_login(value: object) -> str:
    """A value as an error quotes it. What is in front of the host of a URI may be a password."""
    if not isinstance(value, str) or "@" not in value:
        return repr(value)
    login, _, host = value.rpartition("@")
    scheme, found, _ = login.partition("://")
    return repr(f"{scheme}{found}***@{host}" if found else f"***@{host}")


def parse_addresses(value: Any) -> tuple[HostPort, ...]:
    """`"H:P,H:P"` or a list of such strings; an empty string, or `off`, is an empty list."""
    return _parsed_each(value, parse_address)


def parse_members(value: Any) -> tuple[tuple[HostPort, ...], ...]:
    """A list in the forms of `parse_addresses`, of nodes: the address of each, or up to MOST_ROUTES with `|`
    between them."""
    return _parsed_each(value, _parse_member)


def _parse_member(value: Any) -> tuple[HostPort, ...]:
    if isinstance(value, HostPort):
        return (value,)
    if isinstance(value, tuple) and value:
        return tuple(parse_address(address) for address in value)
    if not isinstance(value, str):
        raise ValueError(f"{without_login(value)} is not an address HOST:PORT")
    parts = value.split("|")
    if len(parts) > 1 and not all(part.strip() for part in parts):
        raise ValueError(f"{value!r} has an empty part: write HOST:PORT|HOST:PORT")
    if len(parts) > MOST_ROUTES:
        raise ValueError(f"{value!r} has {len(parts)} addresses of one node; {MOST_ROUTES} are the most")
    return tuple(parse_address(part) for part in parts)


def _parsed_each(value: Any, parse: Callable[[Any], T]) -> tuple[T, ...]:
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()] if value.strip() != "off" else []
    if not isinstance(value, list | tuple):
        raise ValueError(f"{without_login(value)} is not a list of addresses HOST:PORT,HOST:PORT")
    return tuple(parse(item) for item in value)


def parse_public_address(value: Any) -> HostPort:
    """An address for clients: `HOST:PORT`, or `amqps://HOST:PORT` for TLS."""
    if isinstance(value, str):
        if value.strip().startswith("amqps://"):
            return TlsHostPort(*parse_address(value.strip().removeprefix("amqps://").removesuffix("/")))
        value = value.strip().removeprefix("amqp://").removesuffix("/")
    return parse_address(value)


def parse_public_addresses(value: Any) -> tuple[HostPort, ...]:
    """A list of addresses for clients, in the forms of `parse_addresses`."""
    return _parsed_each(value, parse_public_address)
