"""Messages for tests of conversions: built by hand, and decoded by pika."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pika.frame import Header, decode_frame
from pika.spec import BasicProperties

from broker.amqp091.codec.content_check import unreadable
from broker.amqp091.codec.properties import HEADERS
from broker.amqp10.conversion import as_0_9_1, incoming, outgoing
from broker.model.queue.removals import Death
from tests.broker.amqp091.wire import content
from understudy.shared.amqp10.sections import Head, body_octets, outline, parse_head
from understudy.shared.amqp10.types import (
    Described,
    Symbol,
    ULong,
    write,
)  # fmt: skip


def section(code: int | str, value: Any) -> bytes:
    """One section, by its number or its name."""
    return write(Described(Symbol(code) if isinstance(code, str) else ULong(code), value))


DIED = Death("q", "expired", "shop", "order.new", 1_700_000_000_999)
UUID_TEXT = "urn:uuid:75757575-7575-7575-7575-757575757575"


def payload(
    *, header: list[Any] | None = None, annotations: dict[Any, Any] | None = None,
    properties: list[Any] | None = None, application: dict[str, Any] | None = None,
    body: bytes = b"\0\x53\x75\xa0\x04body", delivery: dict[Any, Any] | None = None,
) -> bytes:  # fmt: skip
    """An AMQP 1.0 message with the given sections."""
    parts = [(0x70, header), (0x71, delivery), (0x72, annotations), (0x73, properties), (0x74, application)]
    return b"".join(section(code, value) for code, value in parts if value is not None) + body


def pika_of(raw: bytes) -> tuple[BasicProperties, bytes]:
    """Properties and body of content frames as pika decodes them. Checks that each frame is complete."""
    assert unreadable([raw]) == ""
    used, header = decode_frame(raw)
    assert isinstance(header, Header)
    body = raw[used:]
    assert header.body_size == (len(body) - 8 if body else 0)
    if body:
        assert body[:3] == b"\3\0\0" and body[-1:] == b"\xce"
    return header.properties, body[7:-1]


def seen(**parts: Any) -> tuple[BasicProperties, bytes]:
    """The message as a 0-9-1 client gets it."""
    return pika_of(as_0_9_1(incoming(payload(**parts)).raw))


def out(raw: bytes, **changes: Any) -> bytes:
    """The message as an AMQP 1.0 client gets it."""
    told: dict[str, Any] = {
        "channel": int.from_bytes(raw[1:3], "big"), "persistent": False, "priority": 0, "ttl": None,
        "redelivered": False, "exchange": "ex", "routing_key": "key", "replication_id": None,
    }  # fmt: skip
    return outgoing(raw, **told | changes)


ROUTE = {"x-exchange": "ex", "x-routing-key": "key"}


def message(**properties: Any) -> bytes:
    """0-9-1 content frames as pika writes their properties, on channel 7, in two body frames."""
    encoded = b"".join(BasicProperties(**properties).encode())
    return content(7, b"x" * 5000, properties=encoded, frame_max=4096)


def with_table(*entries: bytes) -> bytes:
    """0-9-1 content frames with this table of headers."""
    table = b"".join(entries)
    listed = HEADERS.to_bytes(2, "big") + len(table).to_bytes(4, "big") + table
    return content(7, b"body", properties=listed)


@dataclass(slots=True, frozen=True)
class Sections:
    """A decoded message. `stored`: its octets without header and delivery-annotations."""

    head: Head
    kind: int
    body: bytes
    """See `body_octets`."""
    footer: bytes
    """The encoded section; empty if there is none."""
    stored: bytes


def split(payload: bytes) -> Sections:
    """Decode all sections of a message. Raises DecodeError."""
    plan = outline(payload)
    head = parse_head(payload[: plan.body])
    footer = payload[plan.footer :]
    return Sections(head, plan.kind, body_octets(payload, plan), footer, payload[head.kept :])
