"""How a peering logs in, and its time limits. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class PeeringLimits:
    """Times of one peering, in seconds."""

    handshake_timeout: float = 2.0
    """To connect; as long again for TLS, and for the login, which takes four round trips."""
    heartbeat: int = 5
    """The broker there counts as gone after two intervals without a word."""
    redial_most: float = 1.0
    """The longest pause between two attempts."""


@dataclass(slots=True, frozen=True)
class PeeringLogin:
    """`name`: in `peerings` of the configuration; "" for the pair's own. `tls`: the driver speaks TLS there,
    and checks the certificate."""

    username: str
    password: str = field(repr=False)
    name: str = ""
    vhost: str = "/"
    tls: bool = False
    limits: PeeringLimits = field(default_factory=PeeringLimits)
