"""Clients that keep a connection: what publishers, consumers and the others share.

An actor goes round the addresses of the pair until one of them opens a connection, does its work there, and
starts again when the connection is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from tests.simulation.clients.session import Session, SessionOwner
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.journal import Journal, Line
from tests.simulation.harness.network import Address, Network, break_stream

RETRY = 0.05
"""Seconds from a refused connection to the next try."""
RECONNECT = 0.25
"""Seconds from a lost connection to the next: longer than its last bytes can be on their way."""
EXPECTED_CODES = frozenset({0, 320})
"""No reply code (the connection just went), or CONNECTION_FORCED: what a failover may do to any client."""


class ClientFault(Exception):
    """A broker said to a well-behaved client what it never should."""


@dataclass(slots=True)
class Surroundings:
    """What every actor is given."""

    clock: Clock
    network: Network
    random: Callable[[str], Random]
    """Gives the source of draws for a purpose (`plan.Plan.random`)."""
    journal: Journal
    addresses: list[Address]


class Actor(SessionOwner):
    """Owner of one session at a time."""

    frame_max = 0
    heartbeat = 0
    reconnect = RECONNECT
    expected_codes = EXPECTED_CODES
    vhost: ClassVar[str] = "/"

    def __init__(self, around: Surroundings, name: str, *, cut_every: float = 0.0) -> None:
        self.around = around
        self.clock = around.clock
        self.rng = around.random(f"actor/{name}")
        self.cut_every = cut_every
        self.journal = around.journal
        self.name = name
        self.session: Session | None = None
        self.line = Line(0)
        """The connection that it has, or had last."""
        self.running = False
        self.finishing = False
        """Set by the run: begin nothing new."""
        self.connections = 0
        self._next_address = self.rng.randrange(len(around.addresses))

    @property
    def finished(self) -> bool:
        """Nothing is outstanding any more."""
        return self.finishing

    @property
    def connected(self) -> bool:
        """With a broker that is there, which this client itself may find out late."""
        return self.session is not None and self.session.established

    def start(self) -> None:
        self.running = True
        self._connect()

    def stop(self, *, clean: bool = True) -> None:
        """Leave for good; unclean: as a killed client does."""
        self.running = False
        session, self.session = self.session, None
        if session is not None:
            self.gives_back(session.address[1])
            was_ready = session.is_ready
            session.close(clean=clean)
            self._lost_line()
            self.clock.note(f"{self.name} leaves {'cleanly' if clean else 'by kill'}")
            if was_ready:
                self.disconnected()

    def cut(self, clean: bool) -> bool:
        """The network breaks the connection of this client, if it has one."""
        if self.session is None or self.session.end is None or not self.session.alive:
            return False
        self.gives_back(self.session.address[1])
        self._lost_line()
        break_stream(self.session.end, clean)
        return True

    def begin(self, session: Session) -> None:
        """The connection and its channel are open."""

    def disconnected(self) -> None:
        """The connection is gone; it had been open."""

    def properties(self) -> dict[str, object]:
        """What its next connection says of itself."""
        return {"producer": self.name}

    def gives_back(self, port: int) -> None:
        """The node at `port` will requeue what this client holds there."""

    # -- SessionOwner

    def ready(self, session: Session) -> None:
        self.connections += 1
        self.line = Line(session.address[1], self.clock.now)
        self.clock.note(f"{self.name} connected to port {session.address[1]}")
        self.begin(session)

    def lost(self, session: Session, code: int, why: str) -> None:
        if session is not self.session:
            return
        if code not in self.expected_codes:
            raise ClientFault(f"{self.name}: {why}")
        pause = RETRY
        self._lost_line()
        if session.is_ready:
            self.clock.note(f"{self.name} lost its connection: {why}")
            self.gives_back(session.address[1])
            pause = self.reconnect
            self.disconnected()
        self.session = None
        if self.running:
            self._next_address += 1
            self.clock.after(pause, self._connect)

    def _lost_line(self) -> None:
        if self.line.lost_at is None:
            self.line.lost_at = self.clock.now

    def _connect(self) -> None:
        if self.running and self.session is None:
            address = self.around.addresses[self._next_address % len(self.around.addresses)]
            self.session = Session(
                self.clock, self.around.network, self.name, address, self,
                frame_max=self.frame_max, heartbeat=self.heartbeat, properties=self.properties(),
                vhost=self.vhost,
            )  # fmt: skip
