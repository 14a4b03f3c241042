"""The types of values in a configuration: durations, sizes, addresses, paths, names.

Used by `settings` only as annotations. Each parser raises ValueError with a text that fits on one line and
says what is valid.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, InstanceOf, PlainSerializer

from understudy.shared.addresses import (
    HostPort,
    is_host,
    parse_address,
    parse_addresses,
    parse_members,
    parse_public_address,
    parse_public_addresses,
)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*\Z")
_SIZES = {"": 1, "k": 2**10, "kib": 2**10, "m": 2**20, "mib": 2**20, "g": 2**30, "gib": 2**30}
_SIZE = re.compile(r"\s*(\d+)\s*([a-z]*)\s*\Z")
_SOCKET_PATH_MAX = 107
_ENDPOINT = re.compile(r"(https?)://([^/?#\s\\]*?)(:[^]:/?#]*)?/*", re.IGNORECASE)
_SHORT_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_PREFIX = re.compile(r"(/[A-Za-z0-9_.-]+)+")


LONGEST_DURATION = 100 * 365.25 * 86400
"""Seconds. A longer duration would be too long for a clock, and is a mistake."""


def parse_duration(value: Any) -> float:
    """`"2s"`, `"10ms"`, `"1.5m"`, `"1h"` in seconds. A number without a unit is refused."""
    if isinstance(value, str) and (found := _DURATION.match(value)):
        seconds = float(found[1]) * _UNITS[found[2]]
        if seconds > LONGEST_DURATION:
            raise ValueError(f"{value[:40]!r} is a duration of more than 100 years")
        return seconds
    raise ValueError(f'{value!r} is not a duration such as "2s" or "10ms"')


def parse_node_name(value: str) -> str:
    """A broker's name, for logs, ledgers and commands."""
    if not 0 < len(value) <= 100 or not value.isprintable():
        raise ValueError(f"{value[:40]!r} is not a broker name: 1 to 100 printable characters")
    if value[0] in "._":
        raise ValueError(
            f"{value[:40]!r} is not a broker name: the files of its ledger would begin with {value[0]!r},"
            " which hides them from readers"
        )
    return value


def parse_federation_node(value: str) -> str:
    """The name of a federation node; "" for none."""
    if not value:
        return value
    parse_node_name(value)
    if "@" in value or " " in value:
        raise ValueError(f"{value[:40]!r} is not a federation node: its name has no '@' and no space")
    return value


def parse_positive_duration(value: Any) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError(f"{value!r} must be longer than zero")
    return seconds


def parse_size(value: Any) -> int:
    """`"64MiB"`, `"16k"` or a plain number, in bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (found := _SIZE.match(value.lower())) and found[2] in _SIZES:
        return int(found[1]) * _SIZES[found[2]]
    raise ValueError(f'{value!r} is not a size such as "64MiB"')


def parse_optional_address(value: Any) -> HostPort | None:
    """An address; None for `off`, false or an empty value."""
    if value is None or value is False or value in ("", "off"):
        return None
    return parse_address(value)


def parse_endpoints(value: Any) -> tuple[str, ...]:
    """`"http://H:P,https://H:P"` or a list of URLs without a path, a query and a fragment."""
    urls = tuple(_endpoint(url) for url in parse_names(value))
    if len(set(urls)) < len(urls):
        raise ValueError("names an endpoint twice")
    return urls


def _endpoint(url: str) -> str:
    """`scheme://host:port`: the scheme in lower case, and etcd's port if the URL names none."""
    if "@" in url:
        raise ValueError(f"{shown_url(url)!r} must not have a login: use ha.etcd.username")
    if (found := _ENDPOINT.fullmatch(url)) is None:
        raise ValueError(f"{shown_url(url)!r} is not a URL such as 'http://HOST:2379'")
    scheme, host, port = found.groups()
    try:
        return f"{scheme.lower()}://{parse_address(host + (port or ':2379'))}"
    except ValueError as error:
        raise ValueError(f"{shown_url(url)!r}: {error}") from None


def shown_url(url: str) -> str:
    """As a message may show it: without a login, and not longer than 100 characters."""
    return re.sub(r"//.*@", "//***@", url, flags=re.DOTALL)[:100]


def parse_optional_public_address(value: Any) -> HostPort | None:
    """An address for clients; None for `off`, false or an empty value."""
    if value is None or value is False or value in ("", "off"):
        return None
    return parse_public_address(value)


def parse_short_name(value: Any) -> str:
    """A name that people give, for files and keys: of a pair at its witness, or of a peering."""
    if isinstance(value, str) and _SHORT_NAME.fullmatch(value):
        return value
    raise ValueError(f"{str(value)[:40]!r} is not a name of 1 to 60 letters, digits, '_' and '-'")


def parse_witness_names(value: Any) -> tuple[str, ...]:
    names = tuple(parse_short_name(name) for name in parse_names(value))
    if len(set(names)) < len(names):
        raise ValueError("names a pair twice")
    return names


def parse_key_prefix(value: Any) -> str:
    """The beginning of keys of etcd: absolute, like a path."""
    if isinstance(value, str) and len(value) <= 200 and _PREFIX.fullmatch(value):
        return value
    raise ValueError(f"{value!r:.100} is not a prefix of keys such as '/understudy/orders'")


def parse_file(value: Any) -> str | None:
    """The path of a file; None for `off` or an empty value. The file is not opened here."""
    if value is None or (isinstance(value, str) and value in ("", "off")):
        return None
    if isinstance(value, str | os.PathLike) and "\0" not in str(value):
        return str(value)
    raise ValueError(f"{value!r} is not the path of a file")


def parse_socket_path(value: Any) -> Path | None:
    """The path of a Unix socket; None for `off` or an empty value. The kernel allows 107 bytes."""
    found = parse_file(value)
    if found is None:
        return None
    if not os.path.isabs(found):
        raise ValueError(f"{found!r} is not an absolute path")
    if len(os.fsencode(found)) > _SOCKET_PATH_MAX:
        raise ValueError(f"{found!r} is longer than the {_SOCKET_PATH_MAX} bytes of a Unix socket's path")
    return Path(found)


def parse_names(value: Any) -> tuple[str, ...]:
    """`"a,b"` or a list of words."""
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{value!r} is not a list of words")
    return tuple(item.strip() for item in value if item.strip())


def parse_host_names(value: Any) -> tuple[str, ...]:
    """`"a,b"` or a list of host names."""
    names = parse_names(value)
    for name in names:
        if not is_host(name) or any(letter in name for letter in ":/@*[] ") or not name.isprintable():
            raise ValueError(f"{name[:100]!r} is not a host name, without port and path")
    return names


def _seconds_text(seconds: float) -> str:
    return f"{seconds * 1000:g}ms" if 0 < seconds < 1 else f"{seconds:g}s"


def _address_text(address: HostPort | None) -> str:
    return "off" if address is None else str(address)


Duration = Annotated[float, BeforeValidator(parse_positive_duration), PlainSerializer(_seconds_text)]
"""Seconds, more than zero."""
DurationOrZero = Annotated[float, BeforeValidator(parse_duration), PlainSerializer(_seconds_text)]
"""Seconds, zero allowed."""
Size = Annotated[int, BeforeValidator(parse_size)]
"""Bytes."""
Address = Annotated[HostPort, BeforeValidator(parse_address), PlainSerializer(_address_text)]
OptionalAddress = Annotated[
    HostPort | None, BeforeValidator(parse_optional_address), PlainSerializer(_address_text)
]
Addresses = Annotated[
    tuple[HostPort, ...],
    BeforeValidator(parse_addresses),
    PlainSerializer(lambda addresses: ",".join(str(address) for address in addresses)),
]
Members = Annotated[
    tuple[tuple[HostPort, ...], ...],
    BeforeValidator(parse_members),
    PlainSerializer(lambda members: ",".join("|".join(map(str, routes)) for routes in members)),
]
"""The addresses of each node."""
PublicAddresses = Annotated[
    tuple[InstanceOf[HostPort], ...],
    BeforeValidator(parse_public_addresses),
    PlainSerializer(lambda addresses: ",".join(str(address) for address in addresses)),
]
FilePath = Annotated[str | None, BeforeValidator(parse_file)]
SocketPath = Annotated[Path | None, BeforeValidator(parse_socket_path)]
Endpoints = Annotated[
    tuple[str, ...], BeforeValidator(parse_endpoints), PlainSerializer(lambda urls: ",".join(urls))
]
OptionalPublicAddress = Annotated[
    InstanceOf[HostPort] | None, BeforeValidator(parse_optional_public_address), PlainSerializer(str)
]
ShortName = Annotated[str, BeforeValidator(parse_short_name)]
WitnessNames = Annotated[
    tuple[str, ...], BeforeValidator(parse_witness_names), PlainSerializer(lambda names: ",".join(names))
]
KeyPrefix = Annotated[str, BeforeValidator(parse_key_prefix)]
HostNames = Annotated[tuple[str, ...], BeforeValidator(parse_host_names)]
Names = Annotated[tuple[str, ...], BeforeValidator(parse_names)]
