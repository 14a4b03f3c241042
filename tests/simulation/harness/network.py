"""The virtual network: ordered byte streams between named hosts, cut at any byte, late, held back or broken.

What the real thing guarantees is kept: bytes arrive in order and unaltered. All else each connection draws:
how long they take, where a read ends, whether a broken connection ends with FIN (all that was sent arrives
first) or with RST (the tail of what was sent is lost, cut at any byte).

A `Cut` stops all packets from some hosts to others. What was sent waits (TCP sends it again) and arrives
after the cut is mended, or the sender gives up by itself: its end is closed, the other is not told, and
learns of it by a RST when it next sends something. A host without power is silent in the same way; when it
is up again, it answers the packets of connections that it no longer knows with RST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

from tests.simulation.harness.clock import Clock, Timer
from tests.simulation.harness.plan import NetworkPlan

Address = tuple[str, int]
Tap = Callable[[str, str, str, bytes], None]
"""Called with a connection's name, the sending host, the receiving host and the bytes sent."""

CONNECT_LIMIT = 8.0
"""Seconds for which a dial that is not answered goes on; its owner may give up earlier."""


KEEPALIVE = 2.0
"""Seconds after which a client's kernel, or a node's for a client, finds out that nobody is at the other
end."""


class Socket(Protocol):
    """What the owner of one end of a stream implements."""

    def received(self, data: bytes) -> None: ...

    def closed(self, clean: bool) -> None:
        """The other end is gone: FIN (`clean`) or RST, or this kernel gave it up (`End.gave_up`). Called at
        most once; nothing follows."""


@dataclass(frozen=True, slots=True)
class Cut:
    """No packet of `sources` reaches `targets`. `way`: on that network only; None: on all. `refuses`: whoever
    dials is told that nobody listens, by a firewall, or by a host whose interface is gone."""

    sources: frozenset[str]
    targets: frozenset[str]
    way: int | None = None
    refuses: bool = False

    def between(self, source: str, target: str, way: int) -> bool:
        here = self.way is None or self.way == way
        return here and source in self.sources and target in self.targets


NO_WAY = -1
"""Of what goes over no network of the nodes in particular."""


class End:
    """One end of a connection. `send`, `close` and `reading` are for its owner; the rest is the network's."""

    __slots__ = (
        "_fin", "_next_arrival", "_patience", "_scheduled", "drained", "gave_up", "host", "inbound",
        "keepalive", "left_at", "name", "network", "open", "peer", "reading", "rng", "sent_bytes", "socket",
        "stream", "vanished", "waiting", "way", )  # fmt: skip

    def __init__(self, network: Network, name: str, stream: str, host: str, rng: Random) -> None:
        self.network = network
        self.name = name
        self.stream = stream
        """The name of the connection, the same at both ends."""
        self.host = host
        self.rng = rng
        self.way = 0
        """The network that it goes over."""
        self.socket: Socket | None = None
        self.peer: End = self
        self.open = True
        self.reading = True
        """False while the owner takes nothing from its kernel: use `read`."""
        self.inbound: list[bytes] = []
        self.waiting = 0
        """Bytes on the way to this end, or there and not read."""
        self.left_at = 0.0
        """Not before then did the peer send what is on the way, or what was read just now."""
        self.drained: Callable[[], None] | None = None
        """Set by the peer's owner: called once when little is waiting any more."""
        self.keepalive = False
        """It is a client's. The nodes' own have heartbeats instead, which must do."""
        self.gave_up = False
        """This kernel closed it for want of an answer."""
        self.vanished = False
        """Its kernel does not know it any more, and told nobody."""
        self.sent_bytes = 0
        self._fin: bool | None = None
        self._next_arrival = 0.0
        self._scheduled = False
        self._patience: Timer | None = None
        """Of the peer, while nothing that it sent arrives here."""

    def send(self, data: bytes) -> None:
        """Hand bytes to the kernel. Lost silently if this end is closed already."""
        if not self.open or self._fin is not None or not data:
            return
        self.sent_bytes += len(data)
        tap = self.network.tap
        if tap is not None:
            tap(self.stream, self.host, self.peer.host, data)
        self.peer._incoming(data)

    def close(self, clean: bool = True) -> None:
        """Close this end: FIN after all that was sent, or RST, which may destroy what is under way."""
        if not self.open:
            return
        self._shut()
        self.peer._ending(clean)

    def read(self, reading: bool) -> None:
        """Stop, or go on, taking bytes from the kernel."""
        self.reading = reading
        if reading and (self.inbound or self._fin is not None):
            self._schedule()

    def vanish(self) -> None:
        """The host lost its power: nobody is told, and of what was under way a tail is lost."""
        if self.open:
            self._shut()
            self.vanished = True
            self.peer._truncate()
            self._probe()

    # -- the network's

    def _shut(self) -> None:
        self.open = False
        self.socket = None
        self.inbound.clear()
        self.waiting = 0

    def _incoming(self, data: bytes) -> None:
        if not self.open:
            if self.vanished:
                self._unanswered()
            return
        if not self.waiting:
            self.left_at = self.network.clock.now
        self.inbound.append(data)
        self.waiting += len(data)
        self._schedule()

    def _ending(self, clean: bool) -> None:
        if not self.open or self._fin is not None:
            return
        self._fin = clean
        if not clean:
            self._truncate()
        self._schedule()

    def _truncate(self) -> None:
        if self.inbound:
            data = b"".join(self.inbound)
            keep = self.rng.randint(0, len(data))
            self.inbound = [data[:keep]] if keep else []
            self.waiting = keep

    def _schedule(self) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        clock = self.network.clock
        when = max(clock.now + self.network.latency(self.rng), self._next_arrival)
        self._next_arrival = when
        clock.at(when, self._arrive)

    def _arrive(self) -> None:
        self._scheduled = False
        if not self.open:
            return
        if self.network.troubled and self.network.blocked(self.peer.host, self.host, self.way):
            self._hold()
            return
        if not self.reading and self._fin is not False:
            return
        if self.inbound:
            data = b"".join(self.inbound)
            cut = self.network.cut(self.rng, len(data)) if self._fin is None else len(data)
            self.inbound = [data[cut:]] if cut < len(data) else []
            self.waiting = len(data) - cut
            if self.drained is not None and self.waiting < self.network.plan.buffer // 2:
                drained, self.drained = self.drained, None
                drained()
            if self.socket is not None:
                self.socket.received(data[:cut])
        if self.inbound:
            self._schedule()
        elif self._fin is not None and self.socket is not None:
            self.open = False
            socket, self.socket = self.socket, None
            socket.closed(self._fin)

    # -- silence

    def _hold(self) -> None:
        """What was sent here is lost on the way, and sent again, until somebody mends it or gives up."""
        self._scheduled = True
        self.network.held.append(self)
        if self._patience is None and self.peer.open:
            self._patience = self.network.clock.after(self.network.patience(self.rng), self.peer._give_up)

    def _unanswered(self) -> None:
        """Bytes came for an end that this kernel does not know: RST, if the host is up and the way is
        free."""
        network = self.network
        here, there = self.host, self.peer.host
        way = self.way
        if network.troubled and (network.blocked(there, here, way) or network.blocked(here, there, way)):
            if self not in network.held:
                self._hold()
        else:
            self._go_on()
            network.clock.after(network.latency(self.rng), partial(self.peer._ending, False))

    def _probe(self) -> None:
        """A client's connection has keepalive, at both ends: the peer, left alone, finds out before long."""
        network = self.network

        def found_out() -> None:
            here, there, way = self.host, self.peer.host, self.way
            if network.blocked(there, here, way) or network.blocked(here, there, way):
                self.peer._give_up()
            else:
                self.peer._ending(False)

        if self.keepalive:
            network.clock.after(KEEPALIVE * (0.5 + self.rng.random()), found_out)

    def _go_on(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def resume(self) -> None:
        """The way is free again; the next repetition of what was sent arrives before long."""
        if self.open:
            self._go_on()
            again = self.network.clock.now + self.rng.random() * self.network.plan.retransmit
            self._next_arrival = max(again, self._next_arrival)
            self.network.clock.at(self._next_arrival, self._arrive)
        elif self.vanished:
            self._unanswered()

    def _give_up(self) -> None:
        """Nothing that was sent was acknowledged for too long. The other end is not told."""
        if not self.open:
            return
        socket = self.socket
        self._shut()
        self.vanished = self.gave_up = True
        if self.peer.open:
            self.peer.inbound.clear()
            self.peer.waiting = 0
            self._probe()
        if socket is not None:
            socket.closed(False)


class Network:
    """All streams of a run. Hosts listen at addresses; connecting to one where nobody listens is refused."""

    def __init__(self, clock: Clock, plan: NetworkPlan, random: Callable[[str], Random]) -> None:
        self.clock = clock
        self.plan = plan
        self.random = random
        self.tap: Tap | None = None
        self.listeners: dict[Address, Callable[[End], Socket | None]] = {}
        self.hosts: dict[Address, str] = {}
        self.ways: dict[Address, int] = {}
        """By address: its network, 0 where nothing is said."""
        self.cuts: list[Cut] = []
        self.down: set[str] = set()
        """Hosts without power."""
        self.troubled = False
        """There are cuts, or hosts that are down."""
        self.held: list[End] = []
        self.on_client: Callable[[Address], None] = lambda address: None
        """Told when a client that is no operator, after its login, asks at that address to be let in."""
        self.on_change: Callable[[], None] = lambda: None
        """Told when hosts or ways have come or gone."""
        self._serials: Counter[str] = Counter()

    # -- what each connection draws

    def latency(self, rng: Random) -> float:
        """Seconds until the next bytes of a stream arrive."""
        if self.plan.slow and rng.random() < self.plan.slow:
            return self.plan.latency + rng.random() * 0.2
        return self.plan.latency + rng.random() * self.plan.spread

    def cut(self, rng: Random, size: int) -> int:
        """How many of the `size` bytes that are there the next read returns: all, or any number from 1."""
        if size > 1 and self.plan.cut and rng.random() < self.plan.cut:
            return rng.randint(1, size - 1)
        return size

    def patience(self, rng: Random) -> float:
        """Seconds for which a kernel repeats what is not acknowledged."""
        return self.plan.give_up * (0.5 + rng.random())

    # -- trouble

    def blocked(self, source: str, target: str, way: int = NO_WAY) -> bool:
        return target in self.down or any(
            not cut.refuses and cut.between(source, target, way) for cut in self.cuts
        )

    def refuses(self, source: str, target: str, way: int) -> bool:
        return any(cut.refuses and cut.between(source, target, way) for cut in self.cuts)

    def apply(self, cut: Cut) -> None:
        self.cuts.append(cut)
        self.troubled = True
        self.on_change()

    def mend(self, cut: Cut) -> None:
        self.cuts.remove(cut)
        self._release()
        self.on_change()

    def power(self, host: str, up: bool) -> None:
        """A host goes, with all it knew, or comes back."""
        if up and host in self.down:
            self.down.discard(host)
            self._release()
        elif not up and host not in self.down:
            self.down.add(host)
            self.troubled = True
        else:
            return
        self.on_change()

    def _release(self) -> None:
        self.troubled = bool(self.cuts or self.down)
        held, self.held = self.held, []
        for end in held:
            end.resume()

    # -- for hosts

    def listen(self, address: Address, accept: Callable[[End], Socket | None], host: str = "") -> None:
        self.listeners[address] = accept
        self.hosts[address] = host

    def unlisten(self, address: Address) -> None:
        self.listeners.pop(address, None)

    def datagram(
        self, source: str, target: str, rng: Random, arrive: Callable[[], None],
        lost: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """One packet without a connection: late, or lost if the way is cut when it arrives."""

        def land() -> None:
            if not self.troubled or not self.blocked(source, target):
                arrive()
            else:
                lost()

        self.clock.after(self.latency(rng), land)

    def connect(
        self, name: str, address: Address, connected: Callable[[End], Socket], failed: Callable[[str], None],
        host: str | None = None,
    ) -> None:  # fmt: skip
        """Dial `address` from `host` (by default the host `name`). `connected` gets the near end and returns
        its owner. Without an answer, `failed` comes after CONNECT_LIMIT; whoever wants it earlier counts
        himself."""
        self._serials[name] += 1
        stream = f"{name}#{self._serials[name]}"
        rng = self.random(f"connection/{stream}")
        here = name if host is None else host

        def arrive(again: float = 1.0) -> None:
            there, way = self.hosts.get(address, ""), self.ways.get(address, 0)
            if self.troubled and (self.blocked(here, there, way) or self.blocked(there, here, way)):
                if again < CONNECT_LIMIT:
                    self.clock.after(again, partial(arrive, 2 * again))
                else:
                    failed("timed out")
                return
            accept = self.listeners.get(address)
            if accept is None or (self.cuts and self.refuses(here, there, way)):
                self.clock.after(self.latency(rng), lambda: failed("connection refused"))
                return
            near = End(self, stream, stream, here, rng)
            far = End(self, f"port {address[1]} of {stream}", stream, there, rng)
            near.peer, far.peer = far, near
            near.way = far.way = way
            near.keepalive = far.keepalive = host is None
            near.socket = connected(near)
            far.socket = accept(far)
            if far.socket is None:
                far.close(clean=False)

        self.clock.after(self.latency(rng), arrive)


def break_stream(end: End, clean: bool = False) -> None:
    """The network cuts a connection: both ends see it broken, each loses what was under way to it."""
    near, far = end, end.peer
    if near.open and far.open:
        for one in (near, far):
            if one.network.blocked(one.peer.host, one.host, one.way):
                one.inbound.clear()  # nobody sends it again
                one.waiting = 0
        near._ending(clean)
        far._ending(clean)
