"""PlainChannels: the channels of all agents on the connections to plain AMQP 0-9-1 brokers. Owner:
Federation.

From frames to answers and messages, and back. Nothing that a broker sends raises anything but LinkError,
which costs it the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from broker.amqp091.client import ClientConnection
from broker.amqp091.codec.frames import BODY, HEADER, METHOD, OVERHEAD, reframe
from broker.amqp091.codec.grammar import decode_arguments, encode_frame, lookup
from broker.amqp091.codec.properties import PROPERTIES_AT
from broker.errors import AmqpError
from broker.model.octets import as_text
from broker.model.vhost.links import plain_node
from ha.core.errors import LinkError
from ha.core.federation.plain.ports import Delivery, Given, Server
from ha.core.mirror.wire import one_line

FIRST = 2
"""The lowest channel: the client has opened the first one for itself."""
BASIC = b"\0\x3c"
DELIVER = BASIC + b"\0\x3c"


class Answer(NamedTuple):
    """A method on the channel of a stream."""

    stream: int
    name: str
    arguments: dict[str, Any]


class ChannelClosed(NamedTuple):
    """The broker closed the channel of a stream. `failed`: class and method."""

    stream: int
    code: int
    text: str
    failed: tuple[int, int]


class Deliveries(NamedTuple):
    stream: int
    messages: list[Delivery]


Event = Answer | ChannelClosed | Deliveries


@dataclass(slots=True, eq=False)
class _Channel:
    """`stream`: whose it is; 0: nobody's, it is being closed. The rest: the message that is arriving."""

    stream: int
    tag: int = 0
    redelivered: bool = False
    key: str = ""
    missing: int = -1
    """Octets of its body; -1: no message is arriving; -2: its header is due."""
    parts: list[bytes] = field(default_factory=list)
    largest: int = 0


@dataclass(slots=True, eq=False)
class _Peer:
    upstream: str
    vhost: str
    """The one that is opened there."""
    channels: dict[int, _Channel] = field(default_factory=dict)
    streams: dict[int, int] = field(default_factory=dict)
    """Channel of each stream."""


class PlainChannels:
    """See the module. `client`: what speaks on a connection; `message_max`: larger messages are not kept."""

    def __init__(self, client: Callable[[int], ClientConnection | None], message_max: int) -> None:
        self._client = client
        self._message_max = message_max
        self._peers: dict[int, _Peer] = {}
        self._target: tuple[int, str, str] | None = None
        """Channel, exchange and routing key of the last message that was published."""
        self._head = b""
        """The method frame for it."""

    def opened(self, peer: int, upstream: str, vhost: str) -> None:
        """A connection to that upstream is logged in."""
        self._peers[peer] = _Peer(upstream, vhost)

    # -- the wire (see PlainWire)

    def server(self, peer: int) -> Server:
        client, of_peer = self._client(peer), self._peers[peer]
        properties = client.server_properties if client is not None else {}
        cluster, product, version = (
            _text(properties.get(key)) for key in ("cluster_name", "product", "version")
        )
        told = properties.get("capabilities")
        able = told if isinstance(told, dict) else {}
        name = one_line(f"{product} {version}".strip() or "a broker")[:100]
        return Server(
            cluster or of_peer.upstream, plain_node(cluster or of_peer.upstream, of_peer.vhost), name,
            confirms=able.get("publisher_confirms") is True,
            joins=able.get("exchange_exchange_bindings") is True,
        )  # fmt: skip

    def open(self, peer: int, stream: int) -> bool:
        client, of_peer = self._client(peer), self._peers.get(peer)
        if client is None or of_peer is None:
            return False
        number = FIRST
        while number in of_peer.channels:
            number += 1
        if number > client.channel_max:
            return False
        of_peer.channels[number] = _Channel(stream)
        of_peer.streams[stream] = number
        client.send_frames([encode_frame(number, "channel.open")])
        return True

    def call(self, peer: int, stream: int, name: str, **arguments: object) -> None:
        client, number = self._client(peer), self._number(peer, stream)
        if client is not None and number:
            client.send_frames([encode_frame(number, name, **arguments)])

    def publish(self, peer: int, stream: int, exchange: str, message: Given) -> None:
        client, number = self._client(peer), self._number(peer, stream)
        if client is None or not number:
            return
        target = number, exchange, message.routing_key
        if target != self._target:
            self._target = target
            self._head = encode_frame(
                number, "basic.publish", exchange=exchange, routing_key=message.routing_key
            )
        client.send_frames([self._head, reframe(message.raw, number, client.frame_max)])

    def release(self, peer: int, stream: int) -> None:
        number = self._number(peer, stream)
        of_peer, client = self._peers.get(peer), self._client(peer)
        if of_peer is None or not number:
            return
        del of_peer.streams[stream]
        of_peer.channels[number] = _Channel(0)
        if client is not None:
            client.send_frames([encode_frame(number, "channel.close", reply_code=200, reply_text="Goodbye")])

    def _number(self, peer: int, stream: int) -> int:
        of_peer = self._peers.get(peer)
        return of_peer.streams.get(stream, 0) if of_peer is not None else 0

    def lost(self, peer: int) -> None:
        self._peers.pop(peer, None)

    # -- what comes

    def hear(self, peer: int, frames: list[tuple[int, int, bytes]]) -> list[Event]:
        """What these frames say, in order. LinkError if they cannot be right."""
        of_peer = self._peers.get(peer)
        events: list[Event] = []
        for kind, number, frame in frames:
            channel = of_peer.channels.get(number) if of_peer is not None else None
            if channel is None or of_peer is None:
                raise LinkError(f"a frame on channel {number}, which is not open")
            if kind == METHOD:
                if channel.missing != -1:
                    raise LinkError("a method in the middle of a message")
                self._method(peer, of_peer, number, channel, frame, events)
            elif kind == HEADER:
                self._header(channel, frame)
            elif kind == BODY:
                self._body(channel, frame)
            if channel.missing == 0:
                self._whole(number, channel, events)
        return events

    def _method(
        self, peer: int, of_peer: _Peer, number: int, channel: _Channel, frame: bytes, events: list[Event]
    ) -> None:
        if frame[7:11] == DELIVER:
            self._deliver(channel, frame)
            return
        try:
            method = lookup(frame[7:-1])
            arguments = decode_arguments(method, frame[7:-1])
        except AmqpError as error:
            raise LinkError(f"a method that cannot be read: {error.text}") from error
        client = self._client(peer)
        if method.name == "channel.close-ok" and not channel.stream:
            del of_peer.channels[number]
        elif method.name == "channel.close":
            del of_peer.channels[number]
            of_peer.streams.pop(channel.stream, None)
            if client is not None:
                client.send_frames([encode_frame(number, "channel.close-ok")])
            failed = arguments["failed_class"], arguments["failed_method"]
            text = one_line(arguments["reply_text"])
            if channel.stream:
                events.append(ChannelClosed(channel.stream, arguments["reply_code"], text, failed))
        elif method.name == "channel.flow":
            if client is not None:
                client.send_frames([encode_frame(number, "channel.flow-ok", active=arguments["active"])])
        elif channel.stream:
            events.append(Answer(channel.stream, method.name, arguments))

    def _deliver(self, channel: _Channel, frame: bytes) -> None:
        at = 11 + 1 + frame[11]
        exchange_at = at + 9
        end = len(frame) - 1
        if exchange_at >= end or (key_at := exchange_at + 1 + frame[exchange_at]) >= end:
            raise LinkError("a delivery that is cut short")
        if key_at + 1 + frame[key_at] != end:
            raise LinkError("a delivery of a wrong size")
        channel.tag = int.from_bytes(frame[at : at + 8], "big")
        channel.redelivered = bool(frame[at + 8] & 1)
        channel.key = as_text(frame[key_at + 1 : end])
        channel.missing, channel.parts, channel.largest = -2, [], 0

    def _header(self, channel: _Channel, frame: bytes) -> None:
        if channel.missing != -2 or len(frame) < PROPERTIES_AT + 3 or frame[7:9] != BASIC:
            raise LinkError("a content header that is not due, is cut short, or is of another class")
        channel.missing = int.from_bytes(frame[11:19], "big")
        channel.largest = len(frame)
        channel.parts = [frame] if channel.missing <= self._message_max else []

    def _body(self, channel: _Channel, frame: bytes) -> None:
        channel.missing -= len(frame) - OVERHEAD
        if channel.missing < 0:
            raise LinkError("a body that is not due, or is larger than its header says")
        if channel.parts:
            channel.parts.append(frame)
            channel.largest = max(channel.largest, len(frame))

    def _whole(self, number: int, channel: _Channel, events: list[Event]) -> None:
        raw = b"".join(channel.parts)
        channel.missing, channel.parts = -1, []
        if not channel.stream:
            return
        message = Delivery(channel.tag, channel.redelivered, channel.key, raw, number, channel.largest)
        last = events[-1] if events else None
        if isinstance(last, Deliveries) and last.stream == channel.stream:
            last.messages.append(message)
        else:
            events.append(Deliveries(channel.stream, [message]))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
