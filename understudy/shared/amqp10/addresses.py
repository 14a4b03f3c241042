"""Addresses of sources and targets: RabbitMQ's (version 2), and the plain name of a queue.

    /queues/NAME             a queue
    /exchanges/NAME/KEY      an exchange, with a routing key
    /exchanges/NAME          an exchange, with an empty routing key
    NAME                     a queue

Names and keys are percent-encoded in the first three, and as they are in the last, which therefore cannot
begin with a slash. https://www.rabbitmq.com/docs/amqp#addresses
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

from understudy.shared.amqp10.conditions import INVALID_FIELD, Fault
from understudy.shared.text import short

_QUEUES, _EXCHANGES = "/queues/", "/exchanges/"
_LONGEST = 255
"""Octets of a name or a routing key, as in 0-9-1."""


class Address(NamedTuple):
    """`queue`: the name of the queue, if the address is one; then `exchange` is the default exchange, and
    `key` is the same name."""

    exchange: str
    key: str
    queue: str | None


def parse(text: str) -> Address:
    """Parse an address. Raises Fault."""
    if text.startswith(_QUEUES):
        name = _decoded(text, text.removeprefix(_QUEUES))
        return Address("", name, name)
    if text.startswith(_EXCHANGES):
        exchange, _, key = text.removeprefix(_EXCHANGES).partition("/")
        if not exchange:
            raise _unfit(text, "it names no exchange")
        return Address(_decoded(text, exchange), _decoded(text, key) if key else "", None)
    if not text or text.startswith("/"):
        raise _unfit(text, "it is none of NAME, /queues/NAME, /exchanges/NAME and /exchanges/NAME/KEY")
    return Address("", _checked(text, text), text)


def of_queue(name: str) -> str:
    """The address of a queue."""
    return _QUEUES + quote(name, safe="")


def _decoded(text: str, part: str) -> str:
    if "/" in part:
        raise _unfit(text, "a slash in a name is written %2F")
    try:
        name = unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise _unfit(text, "what it encodes is not UTF-8") from None
    if not name:
        raise _unfit(text, "it names no queue")
    return _checked(text, name)


def _checked(text: str, name: str) -> str:
    if "\0" in name or len(name.encode(errors="replace")) > _LONGEST:
        raise _unfit(text, f"a name has at most {_LONGEST} octets, and no NUL")
    return name


def _unfit(text: str, why: str) -> Fault:
    return Fault(INVALID_FIELD, short(f"address {text[:80]!r}: {why}"))
