"""The other end of an inbound connection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from broker.security.access import Door


class TlsSuite(NamedTuple):
    """Of a TLS connection, in the words of RabbitMQ: `tlsv1.3`, `any`, `aes_256_gcm`, `aead`."""

    protocol: str
    key_exchange: str
    cipher: str
    hash: str


@dataclass(slots=True, frozen=True)
class Peer:
    """The remote end as the socket reports it."""

    host: str
    port: int
    loopback: bool
    tls: bool = False
    door: Door = Door.ANY
    """The kind of clients that the listener of this connection serves."""
    local: tuple[str, int] = ("", 0)
    """Host and port that it connected to; empty if that is not known."""
    shown: Callable[[], bytes | None] = lambda: None
    """Returns the peer's certificate in DER, signed by the listener's authority. None: the listener required
    none."""
    suite: Callable[[], TlsSuite | None] = lambda: None
    """Returns what TLS has agreed on; None without TLS, and before the handshake is done."""

    @property
    def address(self) -> str:
        return _address(self.host, self.port)

    @property
    def local_address(self) -> str:
        """Where it connected to; "" if that is not known."""
        host, port = self.local
        return _address(host, port) if host else ""


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
