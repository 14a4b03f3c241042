"""The answer to the management command `definitions`: virtual hosts, users, permissions, policies, exchanges,
queues and bindings, in the form of RabbitMQ's definitions JSON. Called by Node; reads only.

An answer is one piece of at most `PIECE` objects, so that a long list never holds up the broker. The next
request starts at `next`, with the `as_of` of the first piece. If anything was declared or deleted in between,
the answer is no, with `changed`, and the client begins again; so all pieces show one moment's definitions.
Argument values that JSON cannot express are written as tables of one key (`to_json`).
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from broker.model.octets import as_octets, is_unicode
from broker.model.queue.delays.delay_queue import is_internal
from broker.model.queue.queue import Queue
from ha.adapter import codes
from ha.adapter.management.directory_changes import directory_of
from ha.adapter.management.serving import not_serving

if TYPE_CHECKING:
    from broker.model.routing.exchange import Binding, Exchange
    from broker.model.vhost.vhosts import VirtualHosts
    from broker.security.identity import User

PIECE = 1000
"""Objects in one answer: a few milliseconds of the broker's thread."""


def definitions_of(
    vhosts: VirtualHosts, users: Iterable[User], status: Mapping[str, Any], args: Mapping[str, Any]
) -> dict[str, Any]:
    """One answer, of all virtual hosts. `args`: `start` (0), `as_of` (none), `whole` (False: in pieces).

    Built-in exchanges, exclusive queues and the broker's own queues are left out, and bindings to these.
    """
    if (refusal := not_serving(vhosts, status)) is not None:
        return refusal.answer()
    start, as_of = args.get("start", 0), f"{vhosts.history.epoch}-{vhosts.generation}"
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        return codes.BAD_ARGUMENTS.say(fault="'start' must be a number of objects, from 0").answer()
    if args.get("as_of", as_of) != as_of:
        return codes.DEFINITIONS_CHANGED.say().answer() | {"changed": True}
    end = None if args.get("whole") else start + PIECE
    found: dict[str, Any] = {"ok": True, "reason": "", "as_of": as_of, "next": None}
    if start == 0:
        found |= directory_of(vhosts.directory, users)
    before = 0
    for kind, items, line in _kinds(vhosts):
        last = None if end is None else max(end - before, 0)
        found[kind] = [line(item) for item in items[max(start - before, 0) : last]]
        before += len(items)
    if end is not None and end < before:
        found["next"] = end
    return found


_Line = Callable[[Any], dict[str, Any]]


def _kinds(vhosts: VirtualHosts) -> tuple[tuple[str, list[Any], _Line], ...]:
    exchanges = [exchange for vhost in vhosts for exchange in vhost.exchanges.values()]
    return (
        ("exchanges", [exchange for exchange in exchanges if not exchange.built_in], _exchange),
        ("queues", [queue for queue in vhosts.queues_by_uuid.values() if _is_kept(queue)], _queue),
        ("bindings", list(_bindings(exchanges)), _binding),
    )


def _bindings(exchanges: list[Exchange]) -> Iterator[Binding]:
    for exchange in exchanges:
        for binding in exchange.bindings.values():
            if not isinstance(binding.target, Queue) or _is_kept(binding.target):
                yield binding


def _is_kept(queue: Queue) -> bool:
    return not queue.exclusive and not is_internal(queue.name)


def _exchange(exchange: Exchange) -> dict[str, Any]:
    return {
        "name": exchange.name, "vhost": exchange.vhost, "type": exchange.type.value,
        "durable": exchange.durable, "auto_delete": exchange.auto_delete, "internal": exchange.internal,
        "arguments": to_json(exchange.arguments),
    }  # fmt: skip


def _queue(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name, "vhost": queue.vhost, "durable": queue.durable, "auto_delete": queue.auto_delete,
        "arguments": to_json(queue.arguments),
    }  # fmt: skip


def _binding(binding: Binding) -> dict[str, Any]:
    return {
        "source": binding.source.name, "vhost": binding.source.vhost,
        "destination": binding.target.name,
        "destination_type": "queue" if isinstance(binding.target, Queue) else "exchange",
        "routing_key": key_to_json(binding.routing_key), "arguments": to_json(binding.arguments),
    }  # fmt: skip


def key_to_json(key: str) -> Any:
    """JSON is Unicode; a key of other octets is written as in a table of arguments."""
    return key if is_unicode(key) else to_json(as_octets(key))


# -- argument values


def to_json(value: object) -> Any:
    """An argument table, or a value of one, for JSON. Octets, decimals and what is no finite number become
    `{"$bytes": base64}`, `{"$decimal": text}`, `{"$double": "nan"}`; a client's own table of one such key
    becomes `{"$table": it}`."""
    match value:
        case bool() | None | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else {"$double": str(float(value))}
        case Decimal():
            return {"$decimal": str(value)}
        case datetime():
            return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
        case bytes() | bytearray() | memoryview():
            return {"$bytes": b64encode(value).decode()}
        case Mapping():
            table = {str(key): to_json(item) for key, item in value.items()}
            return {"$table": table} if _is_tagged(table) else table
        case list() | tuple():
            return [to_json(item) for item in value]
    raise TypeError(f"no JSON for {type(value).__name__}")


def from_json(value: Any) -> Any:
    """The inverse of `to_json`. Raises ValueError for a `$` table without a meaning."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if not _is_tagged(value):
        return {key: from_json(item) for key, item in value.items()}
    ((tag, inner),) = value.items()
    try:
        match tag, inner:
            case "$bytes", str():
                return b64decode(inner, validate=True)
            case "$decimal", str():
                return Decimal(inner)
            case "$double", "nan" | "inf" | "-inf":
                return float(inner)
            case "$table", dict():
                return {key: from_json(item) for key, item in inner.items()}
    except (NotBase64, InvalidOperation):
        pass
    raise ValueError(f"{tag} with a value that it cannot have")


_TAGS = ("$bytes", "$decimal", "$double", "$table")


def _is_tagged(table: Mapping[str, object]) -> bool:
    return len(table) == 1 and next(iter(table)) in _TAGS
