"""The virtual network: ordered byte streams between named hosts, cut at any byte, late, or broken.

What the real thing guarantees is kept: bytes arrive in order and unaltered. All else each connection draws:
how long they take, where a read ends, whether a broken connection ends with FIN (all that was sent arrives
first) or with RST (the tail of what was sent is lost, cut at any byte).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Protocol

from tests.simulation.clock import Clock
from tests.simulation.plan import NetworkPlan

Address = tuple[str, int]


class Socket(Protocol):
    """What the owner of one end of a stream implements."""

    def received(self, data: bytes) -> None: ...

    def closed(self, clean: bool) -> None:
        """The other end is gone: FIN (`clean`) or RST. Called at most once; nothing follows."""


class End:
    """One end of a connection. `send` and `close` are for its owner; the rest is the network's."""

    def __init__(self, network: Network, name: str, rng: Random) -> None:
        self.network = network
        self.name = name
        self.rng = rng
        self.socket: Socket | None = None
        self.peer: End = self
        self.open = True
        self.inbound: list[bytes] = []
        self.waiting = 0
        self._fin: bool | None = None
        self._next_arrival = 0.0
        self._scheduled = False
        self.sent_bytes = 0

    def send(self, data: bytes) -> None:
        """Hand bytes to the kernel. Lost silently if this end is closed already."""
        if not self.open or self._fin is not None or not data:
            return
        self.sent_bytes += len(data)
        self.peer._incoming(data)

    def close(self, clean: bool = True) -> None:
        """Close this end: FIN after all that was sent, or RST, which may destroy what is under way."""
        if not self.open:
            return
        self.open = False
        self.socket = None
        self.inbound.clear()
        self.peer._ending(clean)

    def _incoming(self, data: bytes) -> None:
        if not self.open:
            return
        self.inbound.append(data)
        self.waiting += len(data)
        self._schedule()

    def _ending(self, clean: bool) -> None:
        if not self.open or self._fin is not None:
            return
        self._fin = clean
        if not clean and self.inbound:
            data = b"".join(self.inbound)
            keep = self.rng.randint(0, len(data))
            self.inbound = [data[:keep]] if keep else []
            self.waiting = keep
        self._schedule()

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
        if self.inbound:
            data = b"".join(self.inbound)
            cut = self.network.cut(self.rng, len(data)) if self._fin is None else len(data)
            self.inbound = [data[cut:]] if cut < len(data) else []
            self.waiting = len(data) - cut
            if self.socket is not None:
                self.socket.received(data[:cut])
        if self.inbound:
            self._schedule()
        elif self._fin is not None and self.socket is not None:
            self.open = False
            socket, self.socket = self.socket, None
            socket.closed(self._fin)


class Network:
    """All streams of a run. Hosts listen at addresses; connecting to one where nobody listens is refused."""

    def __init__(self, clock: Clock, plan: NetworkPlan, random: Callable[[str], Random]) -> None:
        self.clock = clock
        self.plan = plan
        self.random = random
        self.listeners: dict[Address, Callable[[End], Socket | None]] = {}
        self._serials: Counter[str] = Counter()

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

    def listen(self, address: Address, accept: Callable[[End], Socket | None]) -> None:
        self.listeners[address] = accept

    def unlisten(self, address: Address) -> None:
        self.listeners.pop(address, None)

    def connect(
        self, name: str, address: Address, connected: Callable[[End], Socket], failed: Callable[[str], None]
    ) -> None:
        """Dial `address` for `name`. `connected` gets the near end and returns its owner."""

        self._serials[name] += 1
        whole_name = f"{name}#{self._serials[name]}"
        rng = self.random(f"connection/{whole_name}")

        def arrive() -> None:
            accept = self.listeners.get(address)
            if accept is None:
                self.clock.after(self.latency(rng), lambda: failed("connection refused"))
                return
            near, far = End(self, whole_name, rng), End(self, f"port {address[1]} of {whole_name}", rng)
            near.peer, far.peer = far, near
            near.socket = connected(near)
            far.socket = accept(far)
            if far.socket is None:
                far.close(clean=False)

        self.clock.after(self.latency(rng), arrive)


def break_stream(end: End, clean: bool = False) -> None:
    """The network cuts a connection: both ends see it broken, each loses what was under way to it."""
    near, far = end, end.peer
    if near.open and far.open:
        near._ending(clean)
        far._ending(clean)
