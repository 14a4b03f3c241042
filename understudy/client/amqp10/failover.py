"""Finding the broker that serves: one AMQP 1.0 connection over a list of addresses, tried round and round.

Role: what publisher and consumer have in common. Owner: each of them has its own `Failover`, on its own
thread. A backup that is about to be promoted ends the connection at once, and is asked again soon.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping

from understudy.client.amqp10.wire import Lost, Refused, Serve, Wire, dial
from understudy.client.brokers import Brokers
from understudy.client.ledgers import Pulse
from understudy.shared.addresses import HostPort

__all__ = ["LOST", "Failover", "Lost", "Refused"]

LOST = OSError
"""What is raised when a connection is gone: `Lost`, or what the socket says."""


class Failover(Brokers):
    """Addresses, credentials, and at most one open connection, the wire."""

    wire: Wire | None = None
    _at: HostPort | None = None

    @property
    def connected(self) -> bool:
        return self.wire is not None

    @property
    def address(self) -> str:
        """Of the broker we are connected to, or the empty string."""
        return "" if self._at is None else str(self._at)

    def connect(
        self,
        properties: Mapping[str, str],
        serve: Serve,
        *,
        deadline: float | None = None,
        given_up: Callable[[], bool] = lambda: False,
    ) -> Wire:
        """Try all addresses, round after round, until one serves.

        `deadline` is on the clock of `time.monotonic`. Raises TimeUp after it, ConnectFailed once
        `given_up()` says so; Refused for what will not heal, such as a wrong password; ValueError for files
        of TLS that are no use.
        """
        if self.wire is not None:
            raise RuntimeError("connected already")
        context = None if self._tls is None else self._tls.context()
        while True:
            for address in self._in_turn():
                try:
                    wire = self._try(address, context, properties)
                except LOST as error:
                    self._check_patience(error, deadline, given_up)
                    continue
                wire.serve = serve
                self.wire, self._at = wire, address
                self.connects += 1
                self._failed = 0
                return wire
            time.sleep(self._retry)

    def _try(self, address: HostPort, context: ssl.SSLContext | None, properties: Mapping[str, str]) -> Wire:
        until = time.monotonic() + self._connect_timeout
        wire = Wire(dial(address, self.user, self._password, context, until), self._heartbeat)
        hostname = address.host if self._virtual_host == "/" else f"vhost:{self._virtual_host}"
        try:
            wire.open(properties["connection_name"], hostname, properties, until)
        except BaseException:
            wire.drop()
            raise
        return wire

    def unserved(self, error: Lost, deadline: float | None, given_up: Callable[[], bool]) -> None:
        """The broker that has let us in did not serve after all. Raises as `connect` does if that was
        the last try; else the next one is due."""
        self._check_patience(error, deadline, given_up)
        time.sleep(self._retry)

    def wait(self, timeout: float, pulse: Pulse) -> None:
        """Serve what comes within `timeout` seconds, with heartbeats, to the broker and in the ledger."""
        until = time.monotonic() + timeout
        while self.wire is not None:
            some = self.wire.pump(min(timeout, pulse.left))
            pulse.beat()
            timeout = until - time.monotonic()
            if some or timeout <= 0:
                return

    def drop(self) -> None:
        wire, self.wire, self._at = self.wire, None, None
        if wire is not None:
            self._note_lost()
            wire.drop()

    def abandon(self) -> None:
        wire, self.wire, self._at = self.wire, None, None
        if wire is not None:
            wire.abandon()

    def close(self) -> None:
        wire, self.wire, self._at = self.wire, None, None
        if wire is not None:
            wire.close()
