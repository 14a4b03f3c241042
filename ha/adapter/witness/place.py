"""Where the witness of a pair is, and how the nodes log in there. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from ha.adapter.peering.login import PeeringLimits, PeeringLogin

LOGIN = "ha.witness"
"""The name of the login; none of `peerings` has a dot."""
HANDSHAKE = 2.0
HEARTBEAT = 2
REDIAL_MOST = 2.0
"""And at most a quarter of the lease: a witness that has started gives the owner one lease, in which it must
be back."""


@dataclass(slots=True, frozen=True)
class WitnessPlace:
    """`login.username`: the name of the pair there."""

    host: str
    port: int
    login: PeeringLogin

    @classmethod
    def at(
        cls, host: str, port: int, name: str, password: str, *, tls: bool = False, lease: float
    ) -> WitnessPlace:
        """`lease`: in seconds."""
        limits = PeeringLimits(HANDSHAKE, HEARTBEAT, min(REDIAL_MOST, lease / 4))
        return cls(host, port, PeeringLogin(name, password, LOGIN, tls=tls, limits=limits))

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        """With the name of the pair there: for comparing settings."""
        return f"{'amqps://' if self.login.tls else ''}{self.address} ({self.login.username})"
