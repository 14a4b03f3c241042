"""AMQP 1.0 without sockets for tests: Proton's engine as a client of the broker in
`tests.broker.amqp091.wire`.

`Talker` is one client. Its output is sent at the next `turn`, which goes on until neither side has more to
send. `Octets` is a client that sends arbitrary bytes.
"""

from __future__ import annotations

from typing import Any

from proton import Collector, Connection, Delivery, Event, Link, Message, Receiver, Sender, Session, Transport

from broker.amqp10.connection import PROTOCOLS
from broker.connection import Connection as Served
from broker.hooks import Hooks
from broker.peer import Peer
from tests.broker.amqp091.wire import LOOPBACK, World


def world10(hooks: Hooks | None = None, **settings: Any) -> World:
    """A world whose broker also serves AMQP 1.0."""
    world = World(hooks, **settings)
    world.broker.protocols.update(PROTOCOLS)
    return world


class Octets:
    """A client that sends arbitrary bytes. Replies are in `inbox`, while it is `reading`."""

    def __init__(self, world: World, peer: Peer = LOOPBACK) -> None:
        self.world = world
        self.connection: Served = world.broker.accept(peer, world.now)
        self.inbox = b""
        self.reading = True
        world.clients.append(self)  # type: ignore[arg-type]

    @property
    def closed(self) -> bool:
        return self.connection.wants_close

    def raw(self, data: bytes) -> None:
        self.connection.receive(data, self.world.now)
        self.connection = self.connection.successor or self.connection
        self.world.tick()

    def take(self) -> bytes:
        """Everything that came back since the last call."""
        taken, self.inbox = self.inbox, b""
        return taken


class Talker(Octets):
    """One connection with one session. `events`: the names of all engine events, with their contexts."""

    def __init__(
        self, world: World, *, user: str = "guest", password: str = "guest", hostname: str | None = None,
        properties: dict[Any, Any] | None = None, idle: float = 0.0, peer: Peer = LOOPBACK,
        frame_max: int = 0, window: int = 0, open_: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(world, peer)
        self.engine = Connection()
        self._collector = Collector()
        self.engine.collect(self._collector)
        self.engine.container, self.engine.user, self.engine.password = "talker", user, password
        if hostname is not None:
            self.engine.hostname = hostname
        if properties is not None:
            self.engine.properties = properties
        self.transport = Transport()
        sasl = self.transport.sasl()
        sasl.allow_insecure_mechs = True
        sasl.allowed_mechs("PLAIN")
        if idle:
            self.transport.idle_timeout = idle
        if frame_max:
            self.transport.max_frame_size = frame_max
        self.transport.bind(self.engine)
        self.events: list[tuple[str, Any]] = []
        self.session: Session = self.engine.session()
        if window:
            self.session.incoming_capacity = window
        self._tag = 0
        if open_:
            self.engine.open()
            self.session.open()
            self.turn()

    def turn(self) -> None:
        """Exchange bytes until both sides are silent."""
        moved = True
        while moved:
            moved = self._say() | self._hear()

    def _say(self) -> bool:
        data = b""
        while (size := self.transport.pending()) > 0:
            part = self.transport.peek(size)
            assert part
            self.transport.pop(len(part))
            data += part
        if data and not self.connection.wants_close:
            self.raw(data)
        else:
            self.world.tick()
        return bool(data)

    def _hear(self) -> bool:
        data = self.take()
        at = 0
        while at < len(data) and (room := self.transport.capacity()) > 0:
            self.transport.push(data[at : at + room])
            at += room
            self._note()
        self._note()
        return bool(data)

    def _note(self) -> None:
        while (event := self._collector.peek()) is not None:
            self.events.append((event.type.name, event.context))
            self._collector.pop()

    def heard(self, kind: Any) -> list[Any]:
        """Remove and return the contexts of the events of one kind, oldest first."""
        found = [context for name, context in self.events if name == kind.name]
        self.events = [event for event in self.events if event[0] != kind.name]
        return found

    @property
    def refused(self) -> tuple[str, str] | None:
        """The condition and text with which the broker has closed the connection."""
        found = self.engine.remote_condition
        return None if found is None else (str(found.name), str(found.description))

    # -- links

    def sender(
        self, address: str | None, name: str = "out", *, settled: bool = False,
        properties: dict[Any, Any] | None = None,
    ) -> Sender:  # fmt: skip
        link = self.session.sender(name)
        if address is not None:
            link.target.address = address
        else:
            link.target.type = 2
        if settled:
            link.snd_settle_mode = Link.SND_SETTLED
        if properties is not None:
            link.properties = properties
        link.open()
        self.turn()
        return link

    def receiver(
        self, address: str | None, credit: int = 0, name: str = "in", *, settled: bool = False,
        second: bool = False, properties: dict[Any, Any] | None = None,
    ) -> Receiver:  # fmt: skip
        """`second`: the broker settles first, and the client after it."""
        link = self.session.receiver(name)
        if address is not None:
            link.source.address = address
        else:
            link.source.dynamic = True
        if settled:
            link.snd_settle_mode = Link.SND_SETTLED
        if second:
            link.rcv_settle_mode = Link.RCV_SECOND
        if properties is not None:
            link.properties = properties
        link.open()
        if credit:
            link.flow(credit)
        self.turn()
        return link

    def send(self, link: Sender, *messages: Message | bytes, settle: bool = False) -> list[Delivery]:
        """Send all payloads, then make a turn."""
        sent = []
        for message in messages:
            self._tag += 1
            delivery = link.delivery(str(self._tag))
            link.stream(message if isinstance(message, bytes) else message.encode())
            if settle:
                delivery.settle()
            link.advance()
            sent.append(delivery)
        self.turn()
        return sent

    def received(self, link: Receiver) -> list[tuple[Delivery, Message]]:
        """Complete messages that arrived on the link, each once."""
        found = []
        while (delivery := link.current) is not None and delivery.readable and not delivery.partial:
            data = link.recv(delivery.pending)
            link.advance()
            message = Message()
            message.decode(bytes(data or b""))
            found.append((delivery, message))
        return found

    def settle(self, delivery: Delivery, outcome: int) -> None:
        delivery.update(outcome)
        delivery.settle()
        self.turn()


def detached(link: Link) -> tuple[str, str] | None:
    """The condition and text with which the broker has closed the link."""
    found = link.remote_condition
    return None if found is None else (str(found.name), str(found.description))


REMOTE_OPEN, SETTLED = Event.LINK_REMOTE_OPEN, Event.DELIVERY
