"""A broker without sockets for tests: raw clients send frames and read the replies, on a simulated clock.

`World` is the broker and its time; `Raw` is one client. Nothing sleeps: `World.pass_time` moves the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from broker.amqp091.codec.fields import write_longstr
from broker.amqp091.codec.frames import BODY, HEADER, HEARTBEAT, METHOD, PROTOCOL_HEADER, frame, head
from broker.amqp091.codec.grammar import decode_arguments, encode_frame, lookup
from broker.amqp091.codec.message_format import MESSAGE_FORMAT
from broker.amqp091.server.connection import ServerConnection
from broker.engine import Broker
from broker.hooks import Hooks
from broker.model.history.history import History
from broker.model.queue.message_run import Overflow
from broker.model.values import Position
from broker.model.vhost.vhosts import VirtualHosts
from broker.peer import Peer
from broker.settings import BrokerSettings

LOOPBACK = Peer("127.0.0.1", 40000, loopback=True)
OUTSIDE = Peer("192.0.2.7", 40000, loopback=False)


@dataclass
class Seen:
    """One frame, or one message with its method, in a form that tests compare."""

    channel: int
    name: str
    args: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""
    header: bytes = b""

    def __getitem__(self, key: str) -> Any:
        return self.args[key]


class ManualGate:
    """A gate that a test moves by hand."""

    def __init__(self) -> None:
        self.applied = Position(0, 0)
        self.durable = Position(0, 0)


class World:
    """One broker, its clock, and all that it logged."""

    def __init__(self, hooks: Hooks | None = None, overflow: Overflow | None = None, **settings: Any) -> None:
        self.now = 1000.0
        numbers = count(1)
        self.hooks = hooks or Hooks()
        self.vhost = VirtualHosts(
            self.hooks, History(), lambda: next(numbers).to_bytes(16, "big"), MESSAGE_FORMAT
        ).root
        self.vhost.shared.activate(1)
        self.logged: list[str] = []
        self.broker = Broker(
            BrokerSettings(**settings),
            self.hooks,
            self.vhost.shared,
            log=lambda told: self.logged.append(str(told)),
            overflow=overflow,
        )
        self.clients: list[Raw] = []

    def tick(self) -> None:
        """End ticks until nothing is left to do. Clients that read get their output."""
        for _ in range(1000):
            self.broker.end_tick(self.now, int(self.now * 1000))
            dirty = self.broker.take_dirty()
            for connection in dirty:
                client = next((c for c in self.clients if c.connection is connection), None)
                if client is not None and client.reading:
                    client.inbox += b"".join(connection.take_output())
                    connection.written(0)
            deadline = self.broker.next_deadline()
            if not dirty and (deadline is None or deadline > self.now):
                return

    def pass_time(self, seconds: float) -> None:
        """Move the clock, stopping at each deadline on the way."""
        end = self.now + seconds
        while True:
            deadline = self.broker.next_deadline()
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            self.broker.timers(self.now)
            self.tick()
        self.now = end
        self.tick()

    def connect(self, peer: Peer = LOOPBACK) -> Raw:
        """Accept a socket without sending anything."""
        client = Raw(self, self.broker.accept(peer, self.now))
        self.clients.append(client)
        return client

    def open(self, *, channel: int = 1, **login: Any) -> Raw:
        """A logged-in client with one open channel."""
        client = self.connect(login.pop("peer", LOOPBACK))
        client.login(**login)
        if channel:
            client.call(channel, "channel.open")
        return client


class Raw:
    """One client: `raw` sends bytes, `send` and `call` send methods, `read` returns the replies."""

    def __init__(self, world: World, connection: ServerConnection) -> None:
        self.world = world
        self.connection = connection
        self.inbox = b""
        self.reading = True

    @property
    def closed(self) -> bool:
        """The broker wants the socket closed."""
        return self.connection.wants_close

    def raw(self, data: bytes) -> None:
        self.connection.receive(data, self.world.now)
        self.world.tick()

    def send(self, channel: int, name: str, **arguments: Any) -> None:
        self.raw(encode_frame(channel, name, **arguments))

    def call(self, channel: int, name: str, **arguments: Any) -> Seen:
        """Send a method, and return the one frame that came back."""
        self.send(channel, name, **arguments)
        seen = self.read()
        assert len(seen) == 1, seen
        return seen[0]

    def login(self, *, vhost: str = "/", **login: Any) -> None:
        """The handshake, up to open-ok."""
        self.begin_login(**login)
        self.send(0, "connection.open", virtual_host=vhost)
        names = [seen.name for seen in self.read()]
        assert names == ["connection.start", "connection.tune", "connection.open-ok"], names

    def begin_login(
        self, user: str = "guest", password: str = "guest", *, capabilities: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None, frame_max: int = 131072, heartbeat: int = 0,
        channel_max: int = 2047,
    ) -> None:  # fmt: skip
        """The handshake up to connection.tune."""
        self.raw(PROTOCOL_HEADER)
        claims = {
            "authentication_failure_close": True,
            "consumer_cancel_notify": True,
            **(capabilities or {}),
        }
        self.send(
            0, "connection.start-ok", client_properties={**(properties or {}), "capabilities": claims},
            mechanism="PLAIN", response=b"\0%b\0%b" % (user.encode(), password.encode()), locale="en_US",
        )  # fmt: skip
        self.send(0, "connection.tune-ok", channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)

    def publish(
        self, channel: int, body: bytes, *, exchange: str = "", routing_key: str = "",
        mandatory: bool = False, properties: bytes = b"\0\0",
    ) -> None:  # fmt: skip
        self.raw(message(channel, body, exchange, routing_key, mandatory=mandatory, properties=properties))

    def read(self) -> list[Seen]:
        """Everything that came back, with messages joined from their frames."""
        seen: list[Seen] = []
        at = 0
        data = self.inbox
        while at + 7 <= len(data):
            if data[at : at + 4] == b"AMQP":
                seen.append(Seen(0, "header"))
                at += 8
                continue
            kind, channel, length = head(data, at)
            end = at + 8 + length
            assert data[end - 1] == 0xCE
            payload = data[at + 7 : end - 1]
            if kind == METHOD:
                method = lookup(payload)
                seen.append(Seen(channel, method.name, decode_arguments(method, payload)))
            elif kind == HEADER:
                seen[-1].header = payload
            elif kind == BODY:
                seen[-1].body += payload
            elif kind == HEARTBEAT:
                seen.append(Seen(channel, "heartbeat"))
            at = end
        self.inbox = data[at:]
        return seen

    def names(self) -> list[str]:
        return [seen.name for seen in self.read()]


def content(channel: int, body: bytes, *, properties: bytes = b"\0\0", frame_max: int = 131072) -> bytes:
    """Content header and body frames."""
    data = frame(HEADER, channel, b"\0\x3c\0\0" + len(body).to_bytes(8, "big") + properties)
    room = frame_max - 8
    for at in range(0, len(body), room):
        data += frame(BODY, channel, body[at : at + room])
    return data


def message(
    channel: int, body: bytes, exchange: str = "", routing_key: str = "", *, mandatory: bool = False,
    properties: bytes = b"\0\0", frame_max: int = 131072,
) -> bytes:  # fmt: skip
    """A complete publish: method and content frames."""
    method = encode_frame(
        channel, "basic.publish", exchange=exchange, routing_key=routing_key, mandatory=mandatory
    )
    return method + content(channel, body, properties=properties, frame_max=frame_max)


def extension_frame(channel: int, method_id: int, payload: bytes) -> bytes:
    """A frame of the extension class."""
    return frame(METHOD, channel, b"\0\xfa" + method_id.to_bytes(2, "big") + write_longstr(payload))
