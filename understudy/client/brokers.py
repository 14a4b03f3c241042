"""A client's list of brokers, and the outages that it saw: the part that does not depend on the protocol.

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
"""Seconds for one broker to accept and shake hands. A joining broker would keep the client waiting longer."""
HEARTBEAT = 5.0
"""Seconds. The client drops a connection on which the broker is silent for twice as long."""

Addresses = str | Sequence[str | HostPort]


ALL_OR_NONE = "with TLS every address must be amqps://HOST:PORT"


def parse_brokers(addresses: Addresses) -> tuple[HostPort, ...]:
    """Parse `"host:port,host:port"`, or a sequence of addresses. Raises ValueError for an empty list, and for
    a mix of amqps and plain addresses."""
    parsed = parse_public_addresses(addresses if isinstance(addresses, str) else list(addresses))
    if not parsed:
        raise ValueError("at least one address HOST:PORT is needed")
    if len({isinstance(address, TlsHostPort) for address in parsed}) > 1:
        raise ValueError(ALL_OR_NONE)
    return parsed


class ConnectFailed(Exception):
    """No broker accepted a connection before the caller gave up. `str()` is one line."""


class TimeUp(ConnectFailed):
    """The time limit has passed; `given_up` has not asked to stop."""


@dataclass(slots=True, frozen=True)
class Outage:
    """One period without service, in seconds since 1970."""

    began: float
    """Last sign of service before the connection was lost."""
    lost: float
    """When the client noticed the loss."""
    ended: float
    """First sign of service on a new connection."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Brokers(ABC):
    """Addresses that are tried in turn, credentials, and the outages so far."""

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
        """`addresses`: `"host:port,host:port"`, or a sequence of addresses. For TLS, all of them are
        `amqps://host:port`, and `tls` names the files. Raises ValueError for an empty or mixed list."""
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
        """Failed attempts since the last connection."""
        self._last_service = 0.0
        self._lost_at = 0.0

    def title(self, queue: str) -> str:
        """A queue's name as brokers write it in their ledgers: after the virtual host, unless that is `/`."""
        return queue if self._virtual_host == "/" else f"{self._virtual_host}/{queue}"

    @property
    def described(self) -> str:
        return ", ".join(str(address) for address in self.addresses)

    @abstractmethod
    def drop(self) -> None:
        """Drop the connection without closing it in order: it is lost, or no longer safe to use."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection in order. Never raises for network errors."""

    @abstractmethod
    def abandon(self) -> None:
        """In a forked child: close the descriptor. The connection itself stays the parent's."""

    def _in_turn(self) -> list[HostPort]:
        """The addresses, starting with the next one due: repeated calls with short time limits thus try
        every address."""
        turn = self._failed % len(self.addresses)
        return [*self.addresses[turn:], *self.addresses[:turn]]

    def serving(self) -> None:
        """Note a sign of service (a confirm or a delivery). This ends an outage, if there is one."""
        now = time.time()
        if self._lost_at:
            self.outages.append(Outage(self._last_service or self._lost_at, self._lost_at, now))
            self._lost_at = 0.0
        self._last_service = now

    def _note_lost(self) -> None:
        """Note the start of an outage, unless one has already begun."""
        if not self._lost_at:
            self._lost_at = time.time()

    def _check_patience(self, error: Exception, deadline: float | None, given_up: Callable[[], bool]) -> None:
        """Count a failed attempt. Raises ConnectFailed if the caller gives up, TimeUp after the deadline."""
        self._failed += 1
        try:
            over = given_up()
        except (
            OSError
        ) as wrong:  # the application's own error: unchanged, it would look like a lost connection
            raise ConnectFailed(f"gave up, because given_up failed: {wrong}") from wrong
        if over:
            raise ConnectFailed(f"gave up while no broker served: {error}") from error
        if deadline is not None and time.monotonic() > deadline:
            raise TimeUp(f"none of {self.described} serves: {error}") from error
