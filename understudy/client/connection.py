"""One connection to a broker as the kit uses it: py-amqp's, over a socket that reads while it writes.

Role: joins the transport, the reading of content, the broker's word that it takes no more, and heartbeats.
Owner: a `Failover`, on its thread. py-amqp's part is the handshake, and the methods of channels.
"""

from __future__ import annotations

from time import monotonic
from typing import Any, ClassVar

from amqp import spec
from kombu.transport import pyamqp

from understudy.client.content import frame_handler
from understudy.client.transport import Lost, PlainTransport, SecureTransport

READ_TIMEOUT = 10.0
"""Seconds that one answer (to a declare, say) may take before the connection counts as lost."""
_Base: Any = pyamqp.Connection
_Channel: Any = pyamqp.Channel
_Transport: Any = pyamqp.Transport
_method: Any = getattr(spec, "method")  # noqa: B009 (half typed)


class Channel(_Channel):  # type: ignore[misc]
    """One that the broker has closed stays closed: py-amqp would wait until it has opened it again."""

    def _do_revive(self) -> None:
        self.is_open = False


class Connection(_Base):  # type: ignore[misc]
    """`blocked`: why the broker takes nothing from publishers now; empty if it does. `patience`: seconds
    that one answer may take."""

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
        """Is there something that the network does not take now?"""
        return bool(self._transport.unsent)

    @property
    def held_up(self) -> bool:
        """Is there, or does the broker say that it takes nothing?"""
        return bool(self._transport.unsent) or bool(self.blocked)

    def blocking_read(self, timeout: float | None = None) -> Any:
        """One frame, for an answer that is waited for. Raises Lost after `timeout` seconds."""
        frame = self._transport.read_frame_within(self.patience if timeout is None else timeout)
        return self._on_inbound_frame(frame)

    def serve(self, timeout: float, limit: int) -> bool:
        """Send what is unsent, and handle what is there, at most `limit` methods; waits up to `timeout`
        seconds for one method, or until nothing is unsent. Was there either? Raises Lost, and what the broker
        says."""
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
        """Say that we live, if nothing else was said since the last call, and look whether the broker does.
        Called a few times in each interval. Raises Lost after two intervals without a sign of it."""
        if not self.heartbeat:
            return
        transport = self._transport
        if self.bytes_sent == self._sent_before and not transport.unsent:
            self.send_heartbeat()
        self._sent_before = self.bytes_sent
        silence = 2 * self.heartbeat
        if monotonic() - transport.read_at > silence and not transport.fill():
            raise Lost(f"nothing was heard of the broker for {silence:g} s")

    def _on_blocked(self, reason: str) -> None:
        self.blocked = reason or "no reason given"

    def _on_unblocked(self) -> None:
        self.blocked = ""


class Transport(_Transport):  # type: ignore[misc]
    """What kombu asks for connections."""

    Connection = Connection
