"""What an inbound connection is to the broker, whatever protocol it speaks: output, back-pressure, time.

Owner: `Broker`; driven by the shell (or a simulation) through `receive`, `eof`, `lost`, `take_output` and
`writable`. The base of each protocol's own machine, which never raises for what the peer sends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from broker.heartbeat import Heartbeat

if TYPE_CHECKING:
    from broker.authorization import Access
    from broker.engine import Broker, BrokerSettings, Peer
    from broker.model.vhost import VirtualHost


class Connection(ABC):
    """`is_management`: the peer claimed, and may claim, to speak the extension class only (link or
    management). `wants_close`: close the socket once the output is written. `paused_reading`: do not read for
    now. `successor`: who speaks with the peer instead from now on, if it began in another protocol."""

    __slots__ = (
        "_choked", "_dirty", "_pending", "_stalled", "_writable", "access", "broker", "buffered", "clean",
        "client_properties", "deadline", "gone", "is_management", "life", "now", "out", "paused_reading",
        "peer", "peer_address", "publishes", "settings", "successor", "tags", "user", "vhost", "wants_close",
    )  # fmt: skip

    def __init__(self, broker: Broker, peer: Peer, now: float) -> None:
        self.broker = broker
        self.peer = peer
        self.peer_address = peer.address
        self.settings: BrokerSettings = broker.settings
        self.vhost: VirtualHost = broker.vhost
        self.user = ""
        self.tags: frozenset[str] = frozenset()
        self.access: Access | None = None
        """What a stored user may do; None: everything that its tags allow."""
        self.client_properties: dict[str, Any] = {}
        self.is_management = self.publishes = False
        self.now = now
        self.life = Heartbeat(now)
        self.out: list[bytes] = []
        self._pending = 0
        self.buffered = 0
        """Octets that the kernel had not taken when something was last written."""
        self._writable = True
        self._choked = self._stalled = self._dirty = False
        self.wants_close = self.paused_reading = self.clean = self.gone = False
        self.deadline: float | None = None
        self.successor: Connection | None = None

    # -- of each protocol

    @property
    @abstractmethod
    def running(self) -> bool:
        """Let in, and neither end is closing it."""

    @property
    @abstractmethod
    def withheld(self) -> bool:
        """While the broker withholds output, this connection gets none: it was let in, and is a client's."""

    @property
    def transacting(self) -> int:
        """Octets held in transactions."""
        return 0

    @abstractmethod
    def receive(self, data: bytes, now: float) -> None:
        """Bytes arrived."""

    @abstractmethod
    def timer(self, now: float) -> None:
        """A deadline of its own has come."""

    @abstractmethod
    def resume(self) -> None:
        """By the broker, at the start of an end_tick after output was taken: go on where back-pressure
        stopped."""

    @abstractmethod
    def block(self, blocked: bool) -> None:
        """An alarm of the broker, of memory or disk, began, or the last one ended."""

    @abstractmethod
    def close(self, code: int, text: str) -> None:
        """Take leave after what is queued, with a reply code of AMQP 0-9-1; text as it is."""

    @abstractmethod
    def let_go(self) -> None:
        """Requeue, cancel, and end what belonged to this connection. Idempotent."""

    @abstractmethod
    def finish(self) -> None:
        """Nothing more is said: `wants_close`."""

    @abstractmethod
    def forgotten(self) -> None:
        """The socket is gone, and the broker knows of it no more."""

    @property
    def certificate(self) -> bytes | None:
        """What the peer has shown of itself, in DER; None: nothing was asked of it."""
        return self.peer.shown()

    def capability(self, name: str) -> bool:
        """Does the peer say that it has this capability? A protocol without any has none of it."""
        return False

    def log(self, sentence: str) -> None:
        self.broker.log(f"connection {self.peer.address}: {sentence}")

    # -- output

    def send(self, *parts: bytes) -> None:
        """Queue bytes."""
        self.out += parts
        self.sent(sum(map(len, parts)))

    def sent(self, octets: int) -> None:
        """`octets` were appended to `out`: they count as unsent, and the shell will be told."""
        self._pending += octets
        if not self._dirty:
            self._dirty = True
            self.broker.dirty.append(self)

    def take_output(self) -> list[bytes]:
        """What to write, drained; write it joined."""
        if self.broker.withheld and self.withheld:
            self._dirty = False
            return []
        out, self.out = self.out, []
        self._dirty = False
        if out:
            self.life.sent = self.broker.now
        self._pending = 0
        if self._choked or self._stalled:
            self._ask_to_resume()
        return out

    def drop_output(self) -> None:
        """What was withheld is never sent. Taken whole each time, it begins and ends with whole frames."""
        if self.withheld:
            self.out = []
            self._pending = 0

    def written(self, buffered: int) -> None:
        """The shell's answer to a write, as `buffered` has it. Optional for a driver."""
        self.buffered = buffered

    def writable(self, writable: bool) -> None:
        """Back-pressure from the transport: False stops deliveries to this connection, True resumes (then
        tick)."""
        self._writable = writable
        if writable:
            self.buffered = 0
            self._ask_to_resume()

    def _ask_to_resume(self) -> None:
        if self._writable and self.running:
            self._choked = False
            self.broker.resuming[self] = None

    @property
    def delivery_budget(self) -> int:
        """Octets that may still be delivered now; 0 or less for none."""
        return self.settings.unsent_max - self._pending if self._writable else 0

    def choke(self) -> None:
        """A delivery did not fit: `resume` is called once output has been taken."""
        self._choked = True

    @property
    def clogged(self) -> bool:
        """The transport holds more than its limit: signs of life would only pile up."""
        return not self._writable

    @property
    def unsent(self) -> int:
        return self._pending + self.buffered

    # -- back-pressure on publishers

    @property
    def filled(self) -> bool:
        """So much input waits unserved, while output is stalled, that no more is to be read."""
        return True

    def note_publish(self) -> None:
        """The peer publishes: an alarm of memory or disk stops reading from it."""
        if not self.publishes:
            self.publishes = True
            self.update_paused()

    def update_paused(self) -> None:
        """Read no more, or again, as memory, the client's own reading and the broker's owner have it."""
        held_back = (self.broker.pausing and self.publishes) or (self.broker.input_held and self.withheld)
        paused = (self._stalled and self.filled) or (held_back and self.running)
        if paused is not self.paused_reading:
            self.paused_reading = paused
            self.life.received = self.now
            self.sent(0)

    # -- time

    def arm(self, when: float) -> None:
        """Ask for `timer` at `when` at the latest."""
        if self.deadline is None or when < self.deadline:
            self.deadline = when
            self.broker.arm(when, self)

    # -- the end

    def abandon(self, why: str) -> None:
        """Close the socket without a word: the peer would not understand, or is not there."""
        self.log(why)
        self.let_go()
        self.finish()

    def eof(self, now: float) -> None:
        """The peer will send no more (FIN); a half-open AMQP connection has no use, so it ends."""
        self.broker.clock(now, 0)
        self.now, self.clean = now, True
        if not self.wants_close:
            if self.running:
                self.log("closed by the client without a close")
            self.let_go()
            self.finish()

    def lost(self, now: float) -> None:
        """The socket is gone: requeue what it held, end its exclusive queues. Idempotent; then tick."""
        if self.gone:
            return
        self.broker.clock(now, 0)
        self.gone, self.now = True, now
        self.let_go()
        self.finish()
        self.out = []
        self.broker.forget(self)
        self.forgotten()
