"""A client's one connection: handshake, one channel, requests answered in order. Bytes in, bytes out.

Owner: one of the actors in `clients` or the operator. A session lives once; the owner opens another when
`lost` was called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.clients import wire
from tests.simulation.harness.clock import Clock, Timer
from tests.simulation.harness.network import Address, End, Network

HANDSHAKE_LIMIT = 1.0
"""Seconds after which a client gives up on a broker that does not open its connection."""

Arguments = dict[str, Any]
Answer = Callable[[str, Arguments, bytes], None]

_ANSWERS = {"basic.get": ("basic.get-ok", "basic.get-empty")}


class SessionOwner:
    """What a session tells its owner; this base ignores it."""

    def ready(self, session: Session) -> None: ...

    def lost(self, session: Session, code: int, why: str) -> None:
        """Gone, for whatever reason; `code` is the broker's reply code, 0 if it gave none."""

    def delivered(self, session: Session, arguments: Arguments, body: bytes) -> None: ...

    def returned(self, session: Session, arguments: Arguments, body: bytes) -> None: ...

    def confirmed(self, session: Session, tag: int, multiple: bool, nacked: bool) -> None: ...

    def cancelled(self, session: Session, tag: str) -> None: ...


class Session:
    """Implements `network.Socket`."""

    def __init__(
        self, clock: Clock, network: Network, name: str, address: Address, owner: SessionOwner, *,
        frame_max: int = 0, heartbeat: int = 0, properties: dict[str, object] | None = None,
        vhost: str = "/",
    ) -> None:  # fmt: skip
        self.clock = clock
        self.network = network
        self.name = name
        self.address = address
        self.owner = owner
        self.frame_max = frame_max
        self.heartbeat = heartbeat
        self.vhost = vhost
        self.alive = True
        self.is_ready = False
        self.end: End | None = None
        self._parser = wire.Parser()
        self._properties = properties or {}
        self._waiting: deque[tuple[str, Answer]] = deque()
        self._content: tuple[str, Arguments, Answer | None] | None = None
        self._size = 0
        self._body = bytearray()
        self._limit: Timer | None = clock.after(
            HANDSHAKE_LIMIT, lambda: self._gone(0, "no answer to the handshake")
        )
        network.connect(name, address, self._connected, lambda why: self._gone(0, why))

    # -- for the owner

    def call(self, name: str, answer: Answer, **arguments: wire.Value) -> None:
        """Send a request; `answer(name, arguments, body)` is called when its reply comes."""
        self._waiting.append((name, answer))
        self.send(wire.method(1, name, **arguments))

    @property
    def connection(self) -> str:
        """The name that both ends and the network have for it."""
        return self.end.name if self.end is not None else ""

    @property
    def established(self) -> bool:
        """Its channel is open, and the broker's kernel knows it: one that lost its power tells nobody."""
        return self.alive and self.is_ready and self.end is not None and self.end.peer.open

    @property
    def left_at(self) -> float:
        """Not before then did the broker send what is heard now."""
        return self.end.left_at if self.end is not None else self.clock.now

    def send(self, data: bytes) -> None:
        if self.end is not None:
            self.end.send(data)

    def close(self, *, clean: bool) -> None:
        """End it: with connection.close and FIN, or RST as a killed client does. `lost` is not called."""
        if not self.alive:
            return
        if clean and self.is_ready:
            self.send(wire.method(0, "connection.close", code=200, text="bye"))
        self.alive = False
        self._stop_limit()
        if self.end is not None:
            self.end.close(clean)

    # -- for the network

    def received(self, data: bytes) -> None:
        for item in self._parser.feed(data):
            if not self.alive:
                return
            if isinstance(item, wire.Method):
                self._method(item.name, item.arguments)
            elif isinstance(item, wire.Content):
                self._part(item)

    def closed(self, clean: bool) -> None:
        self._gone(0, "FIN" if clean else "RST")

    # -- inside

    def _connected(self, end: End) -> Session:
        self.end = end
        if not self.alive:
            end.close(clean=False)
        end.send(wire.PREAMBLE)
        return self

    def _gone(self, code: int, why: str) -> None:
        if not self.alive:
            return
        self.alive = False
        self._stop_limit()
        if self.end is not None:
            self.end.close(clean=True)
        self.owner.lost(self, code, why)

    def _stop_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _method(self, name: str, arguments: Arguments) -> None:
        match name:
            case "basic.ack" | "basic.nack":
                self.owner.confirmed(self, arguments["tag"], arguments["multiple"], name == "basic.nack")
            case "basic.deliver" | "basic.return" | "basic.get-ok":
                answer = self._waiting.popleft()[1] if name == "basic.get-ok" else None
                self._content, self._body = (name, arguments, answer), bytearray()
            case "basic.cancel":
                self.owner.cancelled(self, arguments["tag"])
            case "connection.close":
                self.send(wire.method(0, "connection.close-ok"))
                self._gone(arguments["code"], f"connection closed: {arguments['code']} {arguments['text']}")
            case "channel.close":
                self.send(wire.method(1, "channel.close-ok"))
                self._gone(arguments["code"], f"channel closed: {arguments['code']} {arguments['text']}")
            case "connection.start":
                self._start()
            case "connection.tune":
                self._tune(arguments)
            case "connection.open-ok":
                self.call("channel.open", lambda *_: self._opened())
            case _:
                self._answer(name, arguments)

    def _answer(self, name: str, arguments: Arguments) -> None:
        if not self._waiting:
            raise wire.WireError(f"{self.name}: {name} answers nothing")
        asked, answer = self._waiting.popleft()
        if name not in _ANSWERS.get(asked, (f"{asked}-ok",)):
            raise wire.WireError(f"{self.name}: {asked} was answered by {name}")
        answer(name, arguments, b"")

    def _part(self, part: wire.Content) -> None:
        if self._content is None:
            raise wire.WireError(f"{self.name}: content that nothing announced")
        if part.body is None:
            self._size = part.size
        else:
            self._body += part.body
        if len(self._body) > self._size:
            raise wire.WireError(f"{self.name}: more content than announced")
        if len(self._body) == self._size:
            (name, arguments, answer), self._content = self._content, None
            if answer is not None:
                answer(name, arguments, bytes(self._body))
            elif name == "basic.deliver":
                self.owner.delivered(self, arguments, bytes(self._body))
            else:
                self.owner.returned(self, arguments, bytes(self._body))

    def _start(self) -> None:
        properties: dict[str, object] = {
            "product": "simulated client",
            "connection_name": self.name,
            "capabilities": {
                "publisher_confirms": True, "basic.nack": True, "consumer_cancel_notify": True,
                "authentication_failure_close": True,
            },
        } | self._properties  # fmt: skip
        self.send(
            wire.method(
                0,
                "connection.start-ok",
                properties=properties,
                mechanism="PLAIN",
                response=b"\0guest\0guest",
                locale="en_US",
            )
        )

    def _tune(self, offer: Arguments) -> None:
        self.frame_max = min(self.frame_max or offer["frame_max"], offer["frame_max"])
        self.send(
            wire.method(
                0,
                "connection.tune-ok",
                channel_max=offer["channel_max"],
                frame_max=self.frame_max,
                heartbeat=self.heartbeat,
            )
            + wire.method(0, "connection.open", vhost=self.vhost)
        )
        if "capabilities" not in self._properties:
            self.network.on_client(self.address)
        if self.heartbeat:
            self.clock.after(self.heartbeat / 2, self._beat)

    def _beat(self) -> None:
        if self.alive:
            self.send(wire.frame(wire.HEARTBEAT, 0, b""))
            self.clock.after(self.heartbeat / 2, self._beat)

    def _opened(self) -> None:
        self._stop_limit()
        self.is_ready = True
        self.owner.ready(self)
