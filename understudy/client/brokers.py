"""The brokers that a client knows of, and its times without service: what does not depend on the protocol.

Role: the base of both kits' `Failover`. Owner: a publisher or consumer, on its own thread.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from understudy.client_tls import ClientTls
from understudy.shared.addresses import HostPort, TlsHostPort, parse_public_addresses

RETRY = 0.05
"""Seconds between two rounds over all addresses."""
CONNECT_TIMEOUT = 2.0
"""Seconds that one broker may take to accept and shake hands; a joining one would hold us longer."""
HEARTBEAT = 5.0
"""Seconds; a broker that is silent for twice as long is given up."""

Addresses = str | Sequence[str | HostPort]


ALL_OR_NONE = "with TLS every address is amqps://HOST:PORT"


def parse_brokers(addresses: Addresses) -> tuple[HostPort, ...]:
    """`"host:port,host:port"` or a sequence of such. ValueError for none, or if some only are amqps."""
    parsed = parse_public_addresses(addresses if isinstance(addresses, str) else list(addresses))
    if not parsed:
        raise ValueError("at least one address HOST:PORT is needed")
    if len({isinstance(address, TlsHostPort) for address in parsed}) > 1:
        raise ValueError(ALL_OR_NONE)
    return parsed


class ConnectFailed(Exception):
    """No broker of the list let us in for the time that was given. `str()` is one line."""


class TimeUp(ConnectFailed):
    """The time that was given is over; nobody has said to give up."""


@dataclass(slots=True, frozen=True)
class Outage:
    """One stretch without service, in seconds since 1970."""

    began: float
    """Last sign of service before the connection was lost."""
    lost: float
    """When the loss was seen."""
    ended: float
    """First sign of service on a new connection."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Brokers(ABC):
    """Addresses that are tried in turn, credentials, and what became of the connections that were made."""

    def __init__(
        self,
        addresses: Addresses,
        *,
        user: str = "guest",
        password: str = "guest",
        virtual_host: str = "/",
        retry: float = RETRY,
        connect_timeout: float = CONNECT_TIMEOUT,
        heartbeat: float = HEARTBEAT,
        tls: ClientTls | None = None,
    ) -> None:
        """`addresses`: `"host:port,host:port"` or a sequence of such, all of them `amqps://host:port` for
        TLS, with the files of `tls`. ValueError if there is none, or if they are mixed."""
        self.addresses = parse_brokers(addresses)
        secure = isinstance(self.addresses[0], TlsHostPort)
        if tls is not None and not secure:
            raise ValueError(ALL_OR_NONE)
        self._tls = (tls or ClientTls()) if secure else None
        self.user = user
        self._password = password
        self._virtual_host = virtual_host
        self._retry = retry
        self._connect_timeout = connect_timeout
        self._heartbeat = heartbeat
        self.connects = 0
        """Connections made so far."""
        self.outages: list[Outage] = []
        self._failed = 0
        """Tries since the last connection."""
        self._last_service = 0.0
        self._lost_at = 0.0

    def title(self, queue: str) -> str:
        """A queue's name as brokers have it in their ledgers: with its virtual host in front, if not `/`."""
        return queue if self._virtual_host == "/" else f"{self._virtual_host}/{queue}"

    @property
    def described(self) -> str:
        return ", ".join(str(address) for address in self.addresses)

    @abstractmethod
    def drop(self) -> None:
        """Forget the connection without a word to the broker: it is gone, or not to be trusted."""

    @abstractmethod
    def close(self) -> None:
        """Say goodbye, then close; never raises for what the network does."""

    @abstractmethod
    def abandon(self) -> None:
        """In a process that a fork made: close its descriptor; the connection itself is the parent's."""

    def _in_turn(self) -> list[HostPort]:
        """The addresses, from the one whose turn it is: a caller with little time, who comes again, gets to
        all of them."""
        turn = self._failed % len(self.addresses)
        return [*self.addresses[turn:], *self.addresses[:turn]]

    def serving(self) -> None:
        """The caller saw a sign of service (a confirm, a delivery): ends an outage, if there is one."""
        now = time.time()
        if self._lost_at:
            self.outages.append(Outage(self._last_service or self._lost_at, self._lost_at, now))
            self._lost_at = 0.0
        self._last_service = now

    def _note_lost(self) -> None:
        """An outage has begun, if it had not before."""
        if not self._lost_at:
            self._lost_at = time.time()

    def _check_patience(self, error: Exception, deadline: float | None, given_up: Callable[[], bool]) -> None:
        """Another try has failed: raises ConnectFailed if it was the last one, TimeUp if for want of time."""
        self._failed += 1
        try:
            over = given_up()
        except OSError as wrong:  # not the network's: it would be taken for a lost connection
            raise ConnectFailed(f"given up, since whether to is not known: {wrong}") from wrong
        if over:
            raise ConnectFailed(f"given up while no broker served: {error}") from error
        if deadline is not None and time.monotonic() > deadline:
            raise TimeUp(f"none of {self.described} serves: {error}") from error
