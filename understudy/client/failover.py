"""Finding the broker that serves: one kombu connection over a list of addresses, tried round and round.

Role: what publisher and consumer have in common. Owner: each of them has its own `Failover`, on its own
thread. Kombu's failover list is used as it is, only with 50 ms between rounds where its default waits 2 s,
then 4 s: a backup that is about to be promoted refuses at once (AMQP 320) and is asked again soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from select import POLLIN, poll
from typing import Any
from urllib.parse import quote

import amqp
import kombu.connection
from amqp.exceptions import AMQPError
from kombu.exceptions import OperationalError

from understudy.client_tls import ClientTls
from understudy.config_types import HostPort, TlsHostPort, parse_public_addresses
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT
from understudy.ledger.writer import LedgerWriter

RETRY = 0.05
"""Seconds between two rounds over all addresses."""
CONNECT_TIMEOUT = 2.0
"""Seconds that one broker may take to accept and shake hands; a joining one would hold us longer."""
READ_TIMEOUT = 10.0
"""Seconds that one blocking read (the answer to a declare, say) may take before the connection counts as
lost.
"""
HEARTBEAT = 5.0
"""Seconds; a broker that is silent for twice as long is given up."""

_KombuConnection: Any = kombu.connection.Connection  # kombu's own annotations are partial


class _Connection(_KombuConnection):  # type: ignore[misc]
    """Each broker of the list is checked by its own name; kombu would keep that of the first."""

    ssl: Any

    def _establish_connection(self) -> Any:
        if isinstance(self.ssl, dict):
            self.ssl = {**self.ssl, "server_hostname": self.hostname}
        return super()._establish_connection()


_FRAME_TIMEOUT = 0.5
"""Seconds to wait for the rest of a frame before others get their turn; what has come of it is kept."""

Addresses = str | Sequence[str | HostPort]

LOST: tuple[type[Exception], ...] = (
    OSError,
    amqp.exceptions.RecoverableConnectionError,
    amqp.exceptions.ConnectionError,
)
"""What py-amqp raises when a connection is gone. `TimeoutError` is among them: catch it first."""
_NOT_YET: tuple[type[Exception], ...] = (*LOST, OperationalError)
_GOODBYE: tuple[type[Exception], ...] = (*LOST, AMQPError, AttributeError)
"""What taking leave of a dead connection may raise; py-amqp's AttributeError when its transport is gone
already.
"""


class ConnectFailed(Exception):
    """No broker of the list let us in for the time that was given. `str()` is one line."""


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


class Failover:
    """Addresses, credentials, and at most one open connection."""

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
        self.addresses = parse_public_addresses(addresses if isinstance(addresses, str) else list(addresses))
        if not self.addresses:
            raise ValueError("at least one address HOST:PORT is needed")
        secure = [isinstance(address, TlsHostPort) for address in self.addresses]
        if any(secure) is not all(secure) or (tls is not None and not any(secure)):
            raise ValueError("with TLS every address is amqps://HOST:PORT")
        self._tls = (tls or ClientTls()) if any(secure) else None
        self._virtual_host = virtual_host
        self.connects = 0
        """Connections made so far."""
        self.outages: list[Outage] = []
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        self._urls = [
            f"amqp://{login}@{HostPort(*address)}/{quote(virtual_host, safe='')}"
            for address in self.addresses
        ]
        self._retry = retry
        self._connect_timeout = connect_timeout
        self._heartbeat = heartbeat
        self._heartbeat_at = 0.0
        self._last_service = 0.0
        self._lost_at = 0.0
        self.connection: Any = None

    def title(self, queue: str) -> str:
        """A queue's name as brokers have it in their ledgers: with its virtual host in front, if not `/`."""
        return queue if self._virtual_host == "/" else f"{self._virtual_host}/{queue}"

    @property
    def connected(self) -> bool:
        return self.connection is not None

    def connect(
        self,
        client_properties: Mapping[str, Any],
        *,
        deadline: float | None = None,
        given_up: Callable[[], bool] = lambda: False,
    ) -> Any:
        """Try all addresses, round after round, until one serves; its new channel is returned.

        `deadline` is on the clock of `time.monotonic`. Raises ConnectFailed after it, or once `given_up()`
        says so, and amqp's own error for what will not heal, such as refused credentials.
        """
        if self.connection is not None:
            raise RuntimeError("connected already")

        def waiting(error: Exception, _interval: float) -> None:
            if given_up():
                raise ConnectFailed(f"given up while no broker served: {error}") from error
            if deadline is not None and time.monotonic() > deadline:
                raise ConnectFailed(f"none of {self.described} serves: {error}") from error

        while True:
            connection = _Connection(
                self._urls,
                ssl=False if self._tls is None else self._tls.for_amqp(self.addresses[0].host),
                connect_timeout=self._connect_timeout,
                heartbeat=self._heartbeat,
                transport_options={
                    "client_properties": dict(client_properties),
                    "read_timeout": READ_TIMEOUT,
                },
            )
            try:
                connection.ensure_connection(
                    errback=waiting, interval_start=self._retry, interval_step=0, interval_max=self._retry
                )
                channel = connection.channel()
            except _NOT_YET as error:
                connection.collect()
                waiting(error, 0)
                continue
            except BaseException:
                connection.collect()
                raise
            self.connection = connection
            self.connects += 1
            return channel

    @property
    def described(self) -> str:
        return ", ".join(str(address) for address in self.addresses)

    @property
    def address(self) -> str:
        """Of the broker we are connected to, or the empty string."""
        return "" if self.connection is None else str(self.connection.host)

    def drain(self, timeout: float) -> bool:
        """Handle one frame, waiting up to `timeout` seconds for it; False if none came, or not all of it.

        The wait is a `poll` of ours: py-amqp with a timeout of 0 spins when half a frame has arrived. What
        TLS has read and not given out yet is no input to poll for.
        """
        connection = self.connection.connection
        try:
            if not (self._tls is not None and connection.sock.pending()):
                waiting = poll()
                waiting.register(connection.sock, POLLIN)
                if not waiting.poll(timeout * 1000):
                    return False
            connection.drain_events(timeout=_FRAME_TIMEOUT)
        except TimeoutError:
            return False
        return True

    def drain_all(self, timeout: float, limit: int = 1000) -> bool:
        """`drain`, then whatever else is there already, at most `limit` frames. Was there any?"""
        left = limit
        while left > 0 and self.drain(timeout):
            timeout = 0
            left -= 1
        return left < limit

    def wait(self, timeout: float, pulse: Pulse, limit: int = 1000) -> None:
        """`drain_all`, with heartbeats, to the broker and in the books, however long the wait is."""
        while True:
            step = min(timeout, pulse.left)
            some = self.drain_all(step, limit)
            self.beat()
            pulse.beat()
            timeout -= step
            if some or timeout <= 0:
                return

    def beat(self) -> None:
        """Send and check heartbeats; cheap, to be called often."""
        now = time.monotonic()
        if now - self._heartbeat_at >= 1 and self.connection is not None:
            self._heartbeat_at = now
            self.connection.heartbeat_check()

    def serving(self) -> None:
        """The caller saw a sign of service (a confirm, a delivery): ends an outage, if there is one."""
        now = time.time()
        if self._lost_at:
            self.outages.append(Outage(self._last_service or self._lost_at, self._lost_at, now))
            self._lost_at = 0.0
        self._last_service = now

    def drop(self, *, outage: bool = True) -> None:
        """Forget the connection without a word to the broker: it is gone, or not to be trusted."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if outage and not self._lost_at:
            self._lost_at = time.time()
        try:
            connection.collect()
        except _GOODBYE:
            pass

    def close(self) -> None:
        """Say goodbye, then close; never raises for what the network does."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        try:
            connection.release()
        except _GOODBYE:
            pass


class Pulse:
    """Heartbeats of a client's ledger, at least every `every` seconds while the kit is called; there is no
    thread, so an application that stands still is silent in the books, too."""

    __slots__ = ("_at", "_every", "_ledger")

    def __init__(self, ledger: LedgerWriter | None, every: float = LEDGER_HEARTBEAT) -> None:
        self._ledger = ledger
        self._every = every / 3
        self._at = time.monotonic()

    @property
    def left(self) -> float:
        """Seconds until `beat` is to be called again, at most a second: the broker wants heartbeats, too."""
        return 1.0 if self._ledger is None else min(1.0, max(self._at + self._every - time.monotonic(), 0.01))

    def beat(self) -> None:
        """Cheap, to be called often."""
        if self._ledger is not None and (now := time.monotonic()) - self._at >= self._every:
            self._at = now
            self._ledger.beat()


def open_ledger(ledger_dir: Any, name: str, role: str, incarnation: int) -> LedgerWriter | None:
    """The client's own ledger, or None when it keeps none. Raises LedgerError."""
    if ledger_dir is None:
        return None
    return LedgerWriter(str(ledger_dir), name, role, incarnation=incarnation)


def new_incarnation() -> int:
    """A number that no earlier life of this client had: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def declare_all(entities: Iterable[Any], channel: Any) -> None:
    """Declare kombu queues and exchanges on `channel`, in order."""
    for entity in entities:
        entity(channel).declare()
