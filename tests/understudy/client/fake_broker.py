"""A broker in memory for tests of the client kit: channels that record, brokers that die when told.

It stands where `Failover` stands, so that no socket, thread or clock is involved; what py-amqp itself does is
tested over real sockets elsewhere.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from amqp.exceptions import ConnectionForced

from understudy.client.ledgers import Pulse
from understudy.client.transport import Lost


@dataclass
class Published:
    """One publish as the broker saw it."""

    tag: int
    body: bytes | str
    exchange: str
    routing_key: str
    sequence: int | None


class FakeChannel:
    """One channel of one connection. `fail_after`: the connection dies at that many publishes."""

    channel_id = 1

    def __init__(self, broker: FakeFailover) -> None:
        self.broker = broker
        self.events: dict[str, set[Callable[..., None]]] = defaultdict(set)
        self.published: list[Published] = []
        self.acks: list[tuple[int, bool]] = []
        self.rejects: list[tuple[int, bool]] = []
        self.consuming: dict[str, Any] = {}
        self.prefetch = 0
        self.delivered = 0
        self.confirming = False
        self.fail_after: int | None = None

    def confirm_select(self) -> None:
        self.confirming = True

    def basic_publish(self, message: Any, exchange: str, routing_key: str, mandatory: bool) -> None:
        if self.fail_after is not None and len(self.published) >= self.fail_after:
            raise Lost("reset by the broker")
        headers = message.properties.get("application_headers") or {}
        self.published.append(
            Published(
                len(self.published) + 1,
                message.body,
                exchange,
                routing_key,
                headers.get("x-producer-sequence"),
            )
        )

    def basic_qos(self, _size: int, count: int, _global: bool) -> None:
        self.prefetch = count

    def basic_consume(self, queue: str, **arguments: Any) -> None:
        self.consuming = {"queue": queue, **arguments}

    def basic_ack(self, tag: int, *, multiple: bool) -> None:
        self.acks.append((tag, multiple))

    def basic_reject(self, tag: int, requeue: bool) -> None:
        self.rejects.append((tag, requeue))

    # -- what the broker does ------------------------------------------------------------------------------

    def confirm(self, tag: int, *, multiple: bool = False) -> None:
        for callback in list(self.events["basic_ack"]):
            callback(tag, multiple)

    def nack(self, tag: int, *, multiple: bool = False) -> None:
        for callback in list(self.events["basic_nack"]):
            callback(tag, multiple)

    def give_back(self, sequence: int) -> None:
        message = SimpleNamespace(properties={"application_headers": {"x-producer-sequence": sequence}})
        error = SimpleNamespace(reply_code=312, reply_text="NO_ROUTE")
        for callback in list(self.events["basic_return"]):
            callback(error, "", "", message)

    def deliver(self, tag: int, identifier: str | None = None, *, redelivered: bool = False) -> None:
        properties = {"application_headers": {"x-replication-id": identifier}} if identifier else {}
        info = {"redelivered": redelivered, "exchange": "", "routing_key": "q", "delivery_tag": tag}
        self.consuming["callback"](
            SimpleNamespace(
                body=b"body %d" % tag, properties=properties, delivery_info=info, octets_of_key=None
            )
        )


@dataclass
class FakeFailover:
    """Replaces `Failover`: each `connect` makes a channel, each `drain_all` runs one step of `script`."""

    channels: list[FakeChannel] = field(default_factory=list)
    script: deque[Callable[[], None]] = field(default_factory=deque)
    properties: list[Mapping[str, Any]] = field(default_factory=list)
    prepare: Callable[[FakeChannel], None] = lambda channel: None
    connects: int = 0
    connected: bool = False
    frame_max: int = 131072
    outage_marks: list[str] = field(default_factory=list)
    held_up: bool = False
    unsent: bool = False
    blocked: str = ""
    server_properties: Mapping[str, Any] = field(default_factory=lambda: {"producer_numbers": True})
    described: str = "127.0.0.1:1"

    def title(self, queue: str) -> str:
        return queue

    def connect(self, client_properties: Mapping[str, Any], **_rest: Any) -> FakeChannel:
        assert not self.connected
        self.properties.append(client_properties)
        self.connects += 1
        self.connected = True
        channel = FakeChannel(self)
        self.prepare(channel)
        self.channels.append(channel)
        return channel

    def wait(self, _timeout: float, pulse: Pulse, limit: int = 1000) -> None:
        pulse.beat()
        if not self.script:
            raise AssertionError("the code waits, and the script has nothing more to happen")
        self.script.popleft()()

    def serving(self) -> None:
        self.outage_marks.append("serving")

    def beat(self) -> None:
        """No heartbeats here."""

    def drop(self, *, outage: bool = True) -> None:
        if outage and self.connected:
            self.outage_marks.append("lost")
        self.connected = False

    def close(self) -> None:
        self.connected = False

    def abandon(self) -> None:
        """Nothing is open in a forked process."""

    @property
    def channel(self) -> FakeChannel:
        """The one of the latest connection."""
        return self.channels[-1]


def broker_dies() -> None:
    """A step of a script."""
    raise ConnectionForced("CONNECTION_FORCED - broker shut down")
