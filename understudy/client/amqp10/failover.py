"""Finds the broker that serves: one AMQP 1.0 connection over a list of addresses, tried in turn.

Role: shared by publisher and consumer. Owner: each of them has its own `Failover`, on its own thread. A
backup ends the connection at once; the next round tries it again, because it may have been promoted.
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
"""Exceptions that mean a lost connection: `Lost`, or an error of the socket."""


class Failover(Brokers):
    """Addresses, credentials, and at most one open connection, the wire."""

    wire: Wire | None = None
    _at: HostPort | None = None

    @property
    def connected(self) -> bool:
        return self.wire is not None

    @property
    def address(self) -> str:
        """Address of the connected broker, or the empty string."""
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

        `deadline` is a time of `time.monotonic`. Raises TimeUp after the deadline, and ConnectFailed once
        `given_up()` returns True. Raises Refused if no retry can succeed, for example with a wrong password,
        and ValueError for unusable TLS files.
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
        """Note that the connected broker does not serve. Raises as `connect` does after the last attempt;
        otherwise waits until the next one is due."""
        self._check_patience(error, deadline, given_up)
        time.sleep(self._retry)

    def wait(self, timeout: float, pulse: Pulse) -> None:
        """Handle input that arrives within `timeout` seconds. Keep up heartbeats to the broker and in the
        ledger."""
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
