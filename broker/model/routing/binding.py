"""A binding: from a source exchange to a queue or another exchange. Owner: `Topology`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.model.definition_octets import BINDING, of_table, of_text
from broker.model.history.records import Bind, Unbind
from broker.model.history.value_codec import canonical
from broker.model.values import Scope

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue
    from broker.model.routing.exchange import Exchange

BindingKey = tuple[bytes, str, bytes]
"""Target (a queue's UUID, or `x` and an exchange's name), routing key, canonical arguments."""


def target_key(target: Queue | Exchange) -> bytes:
    """Names a queue or exchange; stable over restarts. The prefix keeps the two apart."""
    uuid: bytes | None = getattr(target, "uuid", None)
    return b"q" + uuid if uuid is not None else b"x" + target.name.encode()


def key_of(record: Bind | Unbind) -> BindingKey:
    """Of the binding that a record makes or ends."""
    target = b"q" + record.queue if record.queue is not None else b"x" + record.target.encode()
    return target, record.routing_key, canonical(record.arguments)


def marks_of(exchange: Exchange) -> list[Bind | Unbind]:
    """What tells those who follow that it has been bound, where its bindings do not: it is bound to
    itself, and is not any more."""
    mark = Binding(exchange, exchange, "", {})
    return [mark.bind_record(), mark.unbind_record()]


class Binding:
    """Immutable."""

    __slots__ = ("arguments", "key", "routing_key", "source", "target")

    def __init__(
        self, source: Exchange, target: Queue | Exchange, routing_key: str, arguments: Mapping[str, object]
    ) -> None:
        self.source = source
        self.target = target
        self.routing_key = routing_key
        self.arguments = arguments
        self.key: BindingKey = (target_key(target), routing_key, canonical(arguments))

    @property
    def octets(self) -> int:
        """What it takes, about, without what its exchange needs to find it."""
        return BINDING + of_text(self.routing_key) + len(self.key[2]) + of_table(self.arguments)

    @property
    def scope(self) -> Scope:
        """What both ends have in common: a binding needs both."""
        return self.source.scope & self.target.scope

    @property
    def queue_uuid(self) -> bytes | None:
        """16 bytes, or None when the target is an exchange."""
        uuid: bytes | None = getattr(self.target, "uuid", None)
        return uuid

    def bind_record(self) -> Bind:
        return Bind(
            self.source.name, self.queue_uuid, self.target.name, self.routing_key, self.arguments, self.scope,
            self.source.vhost,
        )  # fmt: skip

    def unbind_record(self) -> Unbind:
        return Unbind(
            self.source.name, self.queue_uuid, self.target.name, self.routing_key, self.arguments, self.scope,
            self.source.vhost,
        )  # fmt: skip
