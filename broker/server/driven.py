"""What the shell drives: a broker on its own, or a whole node with outbound dials. Structural types only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from broker.peer import Peer


class DrivenConnection(Protocol):
    """An inbound connection's machine. `broker.connection.Connection` is one."""

    wants_close: bool
    paused_reading: bool

    @property
    def let_in(self) -> bool:
        """Has it logged in, and been let in?"""

    @property
    def unsent(self) -> int:
        """Octets that are to be written."""

    @property
    def successor(self) -> DrivenConnection | None:
        """Whom to drive instead from now on; asked after each `receive`."""

    def receive(self, data: bytes, now: float) -> None: ...
    def eof(self, now: float) -> None: ...
    def lost(self, now: float) -> None: ...
    def take_output(self) -> list[bytes]: ...
    def written(self, buffered: int) -> None: ...
    def writable(self, writable: bool) -> None: ...


class Driven(Protocol):
    """A machine with inbound connections and ticks. `Broker` is one. `now`: seconds that never go back."""

    def accept(self, peer: Peer, now: float) -> DrivenConnection: ...
    def end_tick(self, now: float, wall_ms: int) -> None: ...
    def timers(self, now: float) -> None: ...
    def next_deadline(self) -> float | None: ...
    def take_dirty(self) -> Sequence[DrivenConnection]: ...


class DialWanted(Protocol):
    """An outbound TCP connection to open."""

    @property
    def dial_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


@runtime_checkable
class Dialing(Protocol):
    """The part of a node that wants outbound connections; a broker on its own has none of this."""

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
