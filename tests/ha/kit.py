"""The client kit on a simulated pair: its consumer speaks real frames to whichever host serves.

Owner: the test, which moves the time by calling the consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from broker.amqp091.codec.frames import BODY, HEADER, METHOD, head
from broker.amqp091.codec.grammar import decode_arguments, encode_frame, lookup
from broker.amqp091.codec.properties import headers_of
from tests.ha.client import knock
from tests.ha.pair import STEP, Host, Pair
from tests.understudy.client.fake_broker import FakeFailover
from understudy.client import Consumer
from understudy.client.ledgers import Pulse
from understudy.client.transport import Lost


class Line:
    """One connection with one channel, in the place of py-amqp's channel."""

    def __init__(self, pair: Pair, host: Host) -> None:
        self._pair = pair
        self._host = host
        self._node = host.running
        self._conn = knock(pair, host)
        self._inbox = b""
        self._callback: Callable[[Any], None] = lambda message: None
        self._method: dict[str, Any] = {}
        self._header = b""
        self._send("channel.open")

    def basic_qos(self, _size: int, count: int, _global: bool) -> None:
        self._send("basic.qos", prefetch_size=0, prefetch_count=count)

    def basic_consume(self, queue: str, *, callback: Any, arguments: dict[str, Any], **_rest: Any) -> None:
        self._callback = callback
        self._send("basic.consume", queue=queue, consumer_tag="c", arguments=arguments)

    def basic_ack(self, tag: int, *, multiple: bool) -> None:
        self._send("basic.ack", delivery_tag=tag, multiple=multiple)

    def basic_reject(self, tag: int, requeue: bool) -> None:
        self._send("basic.reject", delivery_tag=tag, requeue=requeue)

    def _send(self, name: str, **arguments: Any) -> None:
        if self._host.node is not self._node:
            raise Lost("the process is gone")
        self._conn.receive(encode_frame(1, name, **arguments), self._pair.now)

    def read(self) -> None:
        """Hand what came to the kit."""
        if self._host.node is not self._node:
            raise Lost("the process is gone")
        data = self._inbox + b"".join(self._conn.take_output())
        at = 0
        while len(data) - at >= 7:
            kind, _, length = head(data, at)
            end = at + 8 + length
            if end > len(data):
                break
            self._frame(kind, data[at:end])
            at = end
        self._inbox = data[at:]

    def _frame(self, kind: int, frame: bytes) -> None:
        payload = frame[7:-1]
        if kind == METHOD:
            method = lookup(payload)
            self._method = decode_arguments(method, payload) if method.name == "basic.deliver" else {}
        elif kind == HEADER:
            self._header = frame
        elif kind == BODY:
            self._callback(
                SimpleNamespace(
                    body=payload, properties={"application_headers": headers_of(self._header)},
                    delivery_info=self._method, octets_of_key=None,
                )
            )  # fmt: skip


class Serving(FakeFailover):
    """In the place of the kit's `Failover`: connects to whichever host serves."""

    def __init__(self, pair: Pair) -> None:
        super().__init__()
        self._pair = pair
        self.line: Line | None = None

    def connect(self, client_properties: Mapping[str, Any], **_rest: Any) -> Any:
        (host,) = [h for h in self._pair.hosts if h.node is not None and h.running.vhost.serving]
        self.connects += 1
        self.connected = True
        self.line = Line(self._pair, host)
        return self.line

    def wait(self, _timeout: float, pulse: Pulse, limit: int = 1000) -> None:
        assert self.line is not None
        self._pair.run(4 * STEP)
        self.line.read()


def consumer(pair: Pair, queue: str, **arguments: Any) -> Consumer:
    """A consumer of the kit, which acks each message by itself."""
    made = Consumer("127.0.0.1:1", queue, "billing", ack_every=1, **arguments)
    made.failover = Serving(pair)  # type: ignore[assignment]
    return made


def deliveries(billing: Consumer) -> list[Any]:
    """All that come now, each acked."""
    found = []
    while (delivery := billing.receive()) is not None:
        found.append(delivery)
        billing.ack(delivery)
    return found
