"""The other end of an inbound connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.security.access import Door


@dataclass(slots=True, frozen=True)
class Peer:
    """As the socket says."""

    host: str
    port: int
    loopback: bool
    tls: bool = False
    door: Door = Door.ANY
    """Whom the listener that it came by is for."""
    shown: Callable[[], bytes | None] = lambda: None
    """The certificate that it has shown, in DER, and that is one of the listener's authority; None: it needed
    none."""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
