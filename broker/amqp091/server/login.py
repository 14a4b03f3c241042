"""Parses the responses of the supported SASL mechanisms: bytes in, user and password out.

The handshakes of both protocols use it. No error quotes the response, because it contains a password.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.amqp091.codec.fields import read_table, write_longstr
from broker.errors import CommandInvalid, SyntaxError_


def parse_plain(response: bytes) -> tuple[str, str]:
    """User and password of a SASL PLAIN response (RFC 4616). Raises SyntaxError_."""
    parts = response.split(b"\0")
    if len(parts) != 3 or not parts[1]:
        raise SyntaxError_("malformed PLAIN response")
    try:
        parts[0].decode()  # the authorization identity is ignored, but must be text
        return parts[1].decode(), parts[2].decode()
    except UnicodeDecodeError:
        raise SyntaxError_("malformed PLAIN response") from None


def parse_amqplain(response: bytes) -> tuple[str, str]:
    """User and password of an AMQPLAIN response: the entries of a field table without its length, with the
    keys LOGIN and PASSWORD (AMQP 0-8; the default of older php-amqplib and bunny). Raises SyntaxError_."""
    try:
        table, _ = read_table(write_longstr(response), 0)
    except SyntaxError_:
        raise SyntaxError_("malformed AMQPLAIN response") from None
    name, password = table.get("LOGIN"), table.get("PASSWORD")
    if not isinstance(name, str) or not isinstance(password, str) or not name:
        raise SyntaxError_("malformed AMQPLAIN response: it needs the strings LOGIN and PASSWORD")
    return name, password


_PARSERS: dict[str, Callable[[bytes], tuple[str, str]]] = {"PLAIN": parse_plain, "AMQPLAIN": parse_amqplain}

MECHANISMS = " ".join(_PARSERS)
"""The list in connection.start."""


def credentials(mechanism: str, response: bytes, offered: str = MECHANISMS) -> tuple[str, str]:
    """User and password. Raises CommandInvalid for another mechanism, SyntaxError_ for a malformed
    response."""
    parse = _PARSERS.get(mechanism)
    if parse is None:
        raise CommandInvalid(f"mechanism {mechanism[:40]!r} is not supported, only {offered}")
    return parse(response)
