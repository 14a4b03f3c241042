"""Finding the broker that serves: one kombu connection over a list of addresses, tried round and round.

Role: what publisher and consumer have in common. Owner: each of them has its own `Failover`, on its own
thread. Kombu's failover list is used as it is, only with 50 ms between rounds where its default waits 2 s,
then 4 s: a backup that is about to be promoted refuses at once (AMQP 320) and is asked again soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from select import POLLIN, poll
from typing import Any
from urllib.parse import quote

import amqp
import kombu.connection
from amqp.exceptions import AMQPError
from kombu.exceptions import OperationalError

from understudy.client.books import Pulse
from understudy.client.brokers import Brokers
from understudy.config_types import HostPort

READ_TIMEOUT = 10.0
"""Seconds that one blocking read (the answer to a declare, say) may take before the connection counts as
lost.
"""
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

LOST: tuple[type[Exception], ...] = (
    OSError,
    amqp.exceptions.RecoverableConnectionError,
    amqp.exceptions.FrameError,
    amqp.exceptions.ChannelNotOpen,
    amqp.exceptions.UnexpectedFrame,
    amqp.exceptions.InternalError,
)
"""What py-amqp raises when a connection is gone. `TimeoutError` is among them: catch it first. Not among them
is what no other try heals, such as 530 for a virtual host that is not there, or not for us.
"""
_NOT_YET: tuple[type[Exception], ...] = (*LOST, OperationalError)
_GOODBYE: tuple[type[Exception], ...] = (*LOST, AMQPError, AttributeError)
"""What taking leave of a dead connection may raise; py-amqp's AttributeError when its transport is gone
already.
"""


class Failover(Brokers):
    """Addresses, credentials, and at most one open connection."""

    connection: Any = None
    _heartbeat_at = 0.0

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

        `deadline` is on the clock of `time.monotonic`. Raises TimeUp after it, ConnectFailed once
        `given_up()` says so, and amqp's own error for what will not heal, such as refused credentials or a
        wrong virtual host.
        """
        if self.connection is not None:
            raise RuntimeError("connected already")

        def waiting(error: Exception, _interval: float) -> None:
            self._check_patience(error, deadline, given_up)

        while True:
            connection = _Connection(
                self._urls(),
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
                # With it py-amqp reads a frame within each publish, and a callback might come between.
                connection.connection.client_properties["capabilities"]["connection.blocked"] = False
                channel = connection.channel()
            except _NOT_YET as error:
                connection.collect()
                waiting(error, 0)
                time.sleep(self._retry)
                continue
            except BaseException:
                connection.collect()
                raise
            self.connection = connection
            self.connects += 1
            self._failed = 0
            return channel

    def _urls(self) -> list[str]:
        login = f"{quote(self.user, safe='')}:{quote(self._password, safe='')}"
        path = quote(self._virtual_host, safe="")
        return [f"amqp://{login}@{HostPort(*address)}/{path}" for address in self._in_turn()]

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

    def drop(self, *, outage: bool = True) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if outage:
            self._note_lost()
        try:
            transport = getattr(connection._connection, "_transport", None)  # the properties would connect
            if transport is not None and transport.sock is not None:
                transport.sock.settimeout(0)  # else TLS waits for the farewell of a broker that may hang
            connection.collect()
        except _GOODBYE:
            pass

    def abandon(self) -> None:
        connection, self.connection = self.connection, None
        transport = None if connection is None else getattr(connection._connection, "_transport", None)
        if transport is not None and transport.sock is not None:
            transport.sock.close()  # its own `close` would shut the parent's down, too
            transport.sock = None

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        try:
            connection.release()
        except _GOODBYE:
            pass


def declare_all(entities: Iterable[Any], channel: Any) -> None:
    """Declare kombu queues and exchanges on `channel`, in order."""
    for entity in entities:
        entity(channel).declare()
