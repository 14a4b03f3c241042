"""Finds the broker that serves: one kombu connection over a list of addresses, tried in turn.

Role: shared by publisher and consumer. Owner: each of them has its own `Failover`, on its own thread. It uses
kombu's failover list with 50 ms between rounds. Kombu's default waits 2 s, then 4 s; but a backup refuses at
once (AMQP 320), and may be promoted soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

import amqp
import kombu.connection
from amqp.exceptions import AMQPError
from kombu.exceptions import OperationalError

from understudy.client.brokers import Brokers
from understudy.client.connection import Connection, Transport
from understudy.client.ledgers import Pulse
from understudy.client.transport import Lost
from understudy.shared.addresses import HostPort

_KombuConnection: Any = kombu.connection.Connection  # kombu's own annotations are partial


class _Connection(_KombuConnection):  # type: ignore[misc]
    """Checks each broker's certificate against its own host name; kombu would keep the first one's."""

    ssl: Any

    def get_transport_cls(self) -> Any:
        return Transport

    def _establish_connection(self) -> Any:
        if isinstance(self.ssl, dict):
            self.ssl = {**self.ssl, "server_hostname": self.hostname}
        return super()._establish_connection()


LOST: tuple[type[Exception], ...] = (
    Lost,
    amqp.exceptions.RecoverableConnectionError,
    amqp.exceptions.FrameError,
    amqp.exceptions.ChannelNotOpen,
    amqp.exceptions.UnexpectedFrame,
    amqp.exceptions.InternalError,
)
"""Exceptions that mean a lost connection.

Not included: errors that no retry can cure, such as 530 for a missing or forbidden virtual host, and any
OSError of the application.
"""
_NOT_YET: tuple[type[Exception], ...] = (*LOST, OSError, OperationalError)
GOODBYE_TIMEOUT = 2.0
"""Seconds to wait for the answer to a close. A broker that blocks publishers does not read the close."""
_GOODBYE: tuple[type[Exception], ...] = (*LOST, OSError, AMQPError, AttributeError)
"""Exceptions that closing a dead connection may raise.

py-amqp raises AttributeError if its transport is already gone, or a channel was never completely opened.
"""


class Failover(Brokers):
    """Addresses, credentials, and at most one open connection."""

    connection: Any = None
    """Kombu's connection."""
    _inner: Connection | None = None
    """The connection inside kombu's, of this package's own class."""
    _beat_every = 1.0
    _beat_at = 0.0

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
        """Try all addresses, round after round, until one serves; return a new channel.

        `deadline` is a time of `time.monotonic`. Raises TimeUp after the deadline, and ConnectFailed once
        `given_up()` returns True. Raises FileFault for unusable TLS files, and amqp's own error if no retry
        can succeed, for example after refused credentials or with a wrong virtual host.
        """
        if self.connection is not None:
            raise RuntimeError("connected already")
        if self._tls is not None:
            self._tls.context()  # py-amqp would report a missing file as an unreachable broker

        def waiting(error: Exception, _interval: float) -> None:
            self._check_patience(error, deadline, given_up)

        while True:
            connection = _Connection(
                self._urls(),
                ssl=False if self._tls is None else self._tls.for_amqp(self.addresses[0].host),
                connect_timeout=self._connect_timeout,
                heartbeat=self._heartbeat,
                transport_options={"client_properties": dict(client_properties)},
            )
            try:
                connection.ensure_connection(
                    errback=waiting, interval_start=self._retry, interval_step=0, interval_max=self._retry
                )
                inner: Connection = connection.connection
                # Otherwise py-amqp reads a frame within each publish, and could run a callback there.
                inner.client_properties["capabilities"]["connection.blocked"] = False
                channel = connection.channel()
            except _NOT_YET as error:
                _let_go(connection)
                waiting(error, 0)
                time.sleep(self._retry)
                continue
            except BaseException:
                _let_go(connection)
                raise
            self.connection, self._inner = connection, inner
            self._beat_every = inner.heartbeat / 3 or 1.0
            self.connects += 1
            self._failed = 0
            return channel

    def _urls(self) -> list[str]:
        login = f"{quote(self.user, safe='')}:{quote(self._password, safe='')}"
        path = quote(self._virtual_host, safe="")
        return [f"amqp://{login}@{HostPort(*address)}/{path}" for address in self._in_turn()]

    @property
    def address(self) -> str:
        """Address of the connected broker, or the empty string."""
        return "" if self.connection is None else str(self.connection.host)

    @property
    def server_properties(self) -> dict[str, Any]:
        """What the connected broker says of itself."""
        told = None if self._inner is None else self._inner.server_properties
        return told if isinstance(told, dict) else {}

    @property
    def frame_max(self) -> int:
        """Largest frame, in octets, on this connection."""
        return 0 if self._inner is None else int(self._inner.frame_max)

    @property
    def held_up(self) -> bool:
        """Whether the broker or the network accepts nothing more from a publisher now."""
        inner = self._inner
        return inner is not None and inner.held_up

    @property
    def unsent(self) -> bool:
        """Whether some output is waiting for the network."""
        inner = self._inner
        return inner is not None and inner.unsent

    @property
    def blocked(self) -> str:
        """Why the broker accepts nothing from publishers now (`low on memory`); empty if it accepts
        messages."""
        return "" if self._inner is None else self._inner.blocked

    def wait(self, timeout: float, pulse: Pulse, limit: int = 1000) -> None:
        """Send pending output, and handle at most `limit` methods; wait up to `timeout` seconds for the
        first.

        Keeps up heartbeats to the broker and in the ledger meanwhile. Raises LOST, and the broker's
        errors."""
        until = time.monotonic() + timeout
        while self._inner is not None:
            some = self._inner.serve(min(timeout, pulse.left, self._beat_every), limit)
            self.beat()
            pulse.beat()
            timeout = until - time.monotonic()
            if some or timeout <= 0:
                return

    def beat(self) -> None:
        """Send and check heartbeats. Cheap: call it often. Raises LOST."""
        now = time.monotonic()
        if now - self._beat_at >= self._beat_every and self._inner is not None:
            self._beat_at = now
            self._inner.beat()

    def drop(self, *, outage: bool = True) -> None:
        connection, self.connection, self._inner = self.connection, None, None
        if connection is None:
            return
        if outage:
            self._note_lost()
        _let_go(connection)

    def abandon(self) -> None:
        connection, self.connection, self._inner = self.connection, None, None
        transport = (
            None if connection is None else getattr(connection._connection, "_transport", None)
        )  # the property would connect
        if transport is not None and transport.sock is not None:
            transport.sock.close()  # the transport's own `close` would also shut down the parent's connection
            transport.sock = None

    def close(self) -> None:
        inner, self._inner = self._inner, None
        connection, self.connection = self.connection, None
        if connection is None:
            return
        try:
            if inner is not None:
                inner.patience = GOODBYE_TIMEOUT
            connection.release()
        except _GOODBYE:
            pass


def _let_go(connection: _Connection) -> None:
    """Close the socket without an AMQP close. `collect` does this first, so it works even if an interrupt
    left the connection incomplete."""
    try:
        connection.collect()
    except _GOODBYE:
        pass


def declare_all(entities: Iterable[Any], channel: Any) -> None:
    """Declare kombu queues and exchanges on `channel`, in order."""
    for entity in entities:
        entity(channel).declare()
