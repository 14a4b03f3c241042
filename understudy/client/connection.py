"""One connection to a broker: py-amqp's connection over a socket that reads while it writes.

Role: joins the transport, the content reader, `connection.blocked` and heartbeats. Owner: a `Failover`, on
its thread. py-amqp itself does the handshake and the channel methods.
"""

from __future__ import annotations

from time import monotonic
from typing import Any, ClassVar

from amqp import spec
from kombu.transport import pyamqp

from understudy.client.content import frame_handler
from understudy.client.transport import Lost, PlainTransport, SecureTransport

READ_TIMEOUT = 10.0
"""Seconds to wait for one answer (for example to a declare) before the connection counts as lost."""
_Base: Any = pyamqp.Connection
_Channel: Any = pyamqp.Channel
_Transport: Any = pyamqp.Transport
_method: Any = getattr(spec, "method")  # noqa: B009 (half typed)


class Channel(_Channel):  # type: ignore[misc]
    """A channel that stays closed once the broker closed it. py-amqp would reopen it, and wait for that."""

    def _do_revive(self) -> None:
        self.is_open = False


class Connection(_Base):  # type: ignore[misc]
    """`blocked`: why the broker accepts no messages from publishers now; empty if it accepts them.
    `patience`: seconds to wait for one answer."""

    _METHODS: ClassVar[dict[Any, Any]] = {
        **_Base._METHODS,
        spec.Connection.Blocked: _method(spec.Connection.Blocked, "s"),
    }
    Channel = Channel
    blocked = ""
    patience = READ_TIMEOUT
    _sent_before = -1

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, frame_handler=frame_handler)

    def Transport(self, host: str, connect_timeout: float, ssl: Any = False, *_: Any, **__: Any) -> Any:
        made = SecureTransport if ssl else PlainTransport
        return made(host, connect_timeout=connect_timeout, **({"ssl": ssl} if ssl else {}))

    @property
    def unsent(self) -> bool:
        """Whether some output is waiting for the network."""
        return bool(self._transport.unsent)

    @property
    def held_up(self) -> bool:
        """Whether some output is waiting for the network, or the broker blocks publishers."""
        return bool(self._transport.unsent) or bool(self.blocked)

    def blocking_read(self, timeout: float | None = None) -> Any:
        """Read one frame while an answer is awaited. Raises Lost after `timeout` seconds."""
        frame = self._transport.read_frame_within(self.patience if timeout is None else timeout)
        return self._on_inbound_frame(frame)

    def serve(self, timeout: float, limit: int) -> bool:
        """Send pending output, and handle at most `limit` methods that have arrived.

        Waits up to `timeout` seconds for one method, or until all output is sent. Returns whether either
        happened. Raises Lost, and the broker's errors."""
        transport, until, left = self._transport, monotonic() + timeout, limit
        had = len(transport.unsent)
        while left > 0:
            frame = transport.next_frame()
            if frame is not None:
                left -= self._on_inbound_frame(frame)
                continue
            wait = 0.0 if left < limit else max(0.0, until - monotonic())
            if not transport.move(wait):
                break
        return left < limit or (had > 0 and not transport.unsent)

    def beat(self) -> None:
        """Send a heartbeat if nothing was sent since the last call, and check that the broker is alive.

        To be called a few times in each interval. Raises Lost after two intervals of silence."""
        if not self.heartbeat:
            return
        transport = self._transport
        if self.bytes_sent == self._sent_before and not transport.unsent:
            self.send_heartbeat()
        self._sent_before = self.bytes_sent
        silence = 2 * self.heartbeat
        if monotonic() - transport.read_at > silence and not transport.fill():
            raise Lost(f"no input from the broker for {silence:g} s")

    def _on_blocked(self, reason: str) -> None:
        self.blocked = reason or "no reason given"

    def _on_unblocked(self) -> None:
        self.blocked = ""


class Transport(_Transport):  # type: ignore[misc]
    """The class that kombu asks for connections."""

    Connection = Connection
