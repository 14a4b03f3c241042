"""An ordinary AMQP client of one node, for transcripts: real frames in, and in words what came back.

Owner: the interpreter, which calls `pump` after each tick. Publishes in confirm mode, or in transactions,
consumes with acks.
"""

from __future__ import annotations

from broker.amqp091.codec.frames import BODY, HEADER, METHOD, PROTOCOL_HEADER, frame, head
from broker.amqp091.codec.grammar import decode_arguments, encode_frame, lookup
from broker.connection import Connection
from broker.peer import Peer
from tests.ha.pair import STEP, Host, Pair

PERSISTENT = b"\x10\0\2"
TRANSIENT = b"\x10\0\1"
UNSAID = frozenset({
    "connection.start", "connection.tune", "connection.open-ok", "channel.open-ok", "confirm.select-ok",
    "tx.select-ok", "connection.close-ok", "basic.consume-ok", "basic.qos-ok",
})  # fmt: skip


class Client:
    """One connection, one channel."""

    def __init__(
        self, name: str, host: Host, now: float, login: str = "guest:guest",
        told: dict[str, object] | None = None, certificate: bytes | None = None,
    ) -> None:  # fmt: skip
        """`certificate`: over TLS, with this one in DER, which names the user (EXTERNAL)."""
        user, _, password = login.partition(":")
        plain = f"\0{user}\0{password}".encode()
        mechanism, response = ("PLAIN", plain) if certificate is None else ("EXTERNAL", b"")
        peer = Peer("127.0.0.1", 40000, loopback=True, tls=certificate is not None, shown=lambda: certificate)
        self.name = name
        self.host = host
        self.node = host.running
        self.conn = self.node.accept(peer, now)
        self.gone = False
        self.words: list[str] = []
        self._inbox = b""
        self._waiting: list[bytes] = []
        self._sent = 0
        self._delivered: tuple[int, str] = (0, "")
        self._send(PROTOCOL_HEADER, now)
        self._method(
            0, "connection.start-ok", now, mechanism=mechanism, response=response,
            client_properties={**(told or {}), "capabilities": {"authentication_failure_close": True}},
            locale="en_US",
        )  # fmt: skip
        self._method(0, "connection.tune-ok", now, channel_max=10, frame_max=131072, heartbeat=0)
        self._method(0, "connection.open", now, virtual_host="/")

    def begin(self, now: float, mode: str = "confirm") -> None:
        """Logged in: a channel in that mode, `confirm` or `tx`."""
        self._method(1, "channel.open", now)
        self._method(1, f"{mode}.select", now)

    def publish(
        self, queue: str, letters: str, now: float, *, persistent: bool = True, exchange: str = ""
    ) -> None:
        """One message a letter, in one burst."""
        data = b""
        for letter in letters:
            data += encode_frame(1, "basic.publish", exchange=exchange, routing_key=queue, mandatory=False)
            properties = PERSISTENT if persistent else TRANSIENT
            data += frame(HEADER, 1, b"\0\x3c\0\0" + (1).to_bytes(8, "big") + properties)
            data += frame(BODY, 1, letter.encode())
        self._sent += len(letters)
        self._send(data, now)

    def consume(self, queue: str, window: int, now: float) -> None:
        self._method(1, "basic.qos", now, prefetch_size=0, prefetch_count=window)
        self._method(1, "basic.consume", now, queue=queue, consumer_tag="c", arguments={})

    def ack(self, tag: int, now: float) -> None:
        self._method(1, "basic.ack", now, delivery_tag=tag, multiple=False)

    def call(self, name: str, now: float, **arguments: object) -> None:
        """Any other method; its -ok is told."""
        self._method(1, name, now, **arguments)

    def pump(self, now: float) -> list[str]:
        """What came back since, as lines. A frozen host reads what was sent to it as soon as it wakes."""
        if self.host.frozen or self.gone:
            return []
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self._send(data, now)
        if self.host.node is not self.node:
            self.gone = True
            self.words.append("the connection is lost")
        else:
            self._inbox += b"".join(self.conn.take_output())
            self._read()
            if self.conn.wants_close:
                self.gone = True
                self.conn.lost(now)
        words, self.words = self.words, []
        return [f"{self.name}: {line}" for line in words]

    def _read(self) -> None:
        at = 0
        data = self._inbox
        while len(data) - at >= 7:
            kind, _, length = head(data, at)
            end = at + 8 + length
            if end > len(data):
                break
            payload = data[at + 7 : end - 1]
            if kind == METHOD:
                method = lookup(payload)
                self._told(method.name, decode_arguments(method, payload))
            elif kind == BODY:
                tag, again = self._delivered
                self.words.append(f"got {payload.decode()} as {tag}{again}")
            at = end
        self._inbox = data[at:]

    def _told(self, name: str, args: dict[str, object]) -> None:
        if name in ("basic.ack", "basic.nack"):
            verb = "confirmed" if name == "basic.ack" else "refused"
            self.words.append(f"{verb} {'up to ' if args['multiple'] else ''}{args['delivery_tag']}")
        elif name == "basic.deliver":
            self._delivered = (
                int(str(args["delivery_tag"])), ", redelivered" if args["redelivered"] else ""
            )  # fmt: skip
        elif name in ("connection.close", "channel.close"):
            self.words.append(f"{name.replace('.', ' ')} {args['reply_code']} {args['reply_text']}")
        elif name not in UNSAID:
            self.words.append(name)

    def _method(self, channel: int, name: str, now: float, **arguments: object) -> None:
        self._send(encode_frame(channel, name, **arguments), now)

    def _send(self, data: bytes, now: float) -> None:
        if self.host.frozen:
            self._waiting.append(data)
        elif not self.gone and self.host.node is self.node:
            self.conn.receive(data, now)


def moving(pair: Pair, host: Host, source: str, target: str, letters: str) -> Client:
    """In a transaction that wants but its commit: what is in `source`, these letters, goes to `target`."""
    client = Client("m", host, pair.now)
    pair.run(2 * STEP)
    client.pump(pair.now)
    client.begin(pair.now, "tx")
    client.consume(source, 10, pair.now)
    said: list[str] = []
    pair.until(lambda: said.extend(client.pump(pair.now)) or len(said) == len(letters))
    client.publish(target, letters, pair.now)
    for tag in range(1, len(letters) + 1):
        client.ack(tag, pair.now)
    return client


def knock(pair: Pair, host: Host) -> Connection:
    """A client that says all it has to say before it is let in or refused."""
    conn = host.running.accept(Peer("127.0.0.1", 40000, loopback=True), pair.now)
    conn.receive(PROTOCOL_HEADER, pair.now)
    for name, more in (
        ("connection.start-ok", {"client_properties": {}, "mechanism": "PLAIN", "response": b"\0guest\0guest",
                                 "locale": "en_US"}),
        ("connection.tune-ok", {"channel_max": 10, "frame_max": 131072, "heartbeat": 0}),
        ("connection.open", {"virtual_host": "/"}),
    ):  # fmt: skip
        conn.receive(encode_frame(0, name, **more), pair.now)
    return conn
