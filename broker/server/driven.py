"""Protocols of what the shell drives: a standalone broker, or a node with outbound dials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from broker.peer import Peer


class DrivenConnection(Protocol):
    """The state machine of an inbound connection, such as `broker.connection.Connection`."""

    wants_close: bool
    paused_reading: bool
    only_acked: bool
    """The last input was a few acks, and nothing else."""

    @property
    def let_in(self) -> bool:
        """Whether it has logged in and been accepted."""

    @property
    def sends_much(self) -> bool:
        """Whether the peer sends large messages, so that larger reads cost less."""

    @property
    def unsent(self) -> int:
        """Octets that are still to be written."""

    @property
    def successor(self) -> DrivenConnection | None:
        """The machine to drive from now on, if another one takes over. Read after each `receive`."""

    def receive(self, data: bytes, now: float) -> None: ...
    def eof(self, now: float) -> None: ...
    def lost(self, now: float) -> None: ...
    def take_output(self) -> list[bytes]: ...
    def written(self, buffered: int) -> None: ...
    def writable(self, writable: bool) -> None: ...


class Driven(Protocol):
    """A machine with inbound connections and ticks, such as `Broker`. `now`: monotonic seconds."""

    def accept(self, peer: Peer, now: float) -> DrivenConnection: ...
    def end_tick(self, now: float, wall_ms: int) -> None: ...
    def timers(self, now: float) -> None: ...
    def next_deadline(self) -> float | None: ...
    def acks_wait(self, now: float) -> float | None:
        """After input of nothing but acks: until when they may wait for `end_tick`; inf: it is not needed;
        None: it is due."""

    def take_dirty(self) -> Sequence[DrivenConnection]: ...


class DialWanted(Protocol):
    """An outbound TCP connection to open."""

    @property
    def dial_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def timeout(self) -> float:
        """Seconds that it may take, and TLS as many again."""

    @property
    def tls(self) -> bool: ...
    @property
    def peering(self) -> str:
        """The name of the login for which it is; which TLS context it needs."""


@runtime_checkable
class Dialing(Protocol):
    """The part of a node that opens outbound connections. A standalone broker does not have it."""

    stopped: str | None

    def before_output(self, now: float) -> None: ...
    def wants_dials(self) -> Sequence[DialWanted]: ...
    def dialed(self, dial_id: int, now: float) -> None: ...
    def dial_failed(
        self, dial_id: int, error: str, now: float, *, refused: bool = False, distrusted: bool = False,
        unresolved: bool = False,
    ) -> None: ...  # fmt: skip
    def dial_received(self, dial_id: int, data: bytes, now: float) -> None: ...
    def dial_closed(self, dial_id: int, clean: bool, now: float, distrust: str = "") -> None: ...
    def take_dial_output(self, dial_id: int) -> list[bytes]: ...
    def dial_wants_close(self, dial_id: int) -> bool: ...
