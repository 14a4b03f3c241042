"""The AMQP 0-9-1 connection as its handshake and channels see it. `ServerConnection` implements it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from broker.connection import Connection
from broker.model.statistics import AMQP091

if TYPE_CHECKING:
    from broker.amqp091.channel_state.assembly import Assembly
    from broker.errors import AmqpError


class Failing(Protocol):
    """A channel that an error ends."""

    assembly: Assembly | None

    @property
    def number(self) -> int: ...
    def close_for(self, error: AmqpError) -> None: ...


class Host(Connection):
    """An AMQP 0-9-1 connection.

    - `capabilities`: claimed by the client.
    - `frame_max`: as negotiated.
    - `payload_max`: `frame_max` without overhead.
    - `numbered`: one of its channels has, or had, the numbers of the client's messages.
    """

    __slots__ = ("capabilities", "frame_max", "numbered", "payload_max")

    capabilities: dict[str, Any]
    frame_max: int
    payload_max: int
    numbered: bool

    @property
    def protocol(self) -> str:
        return AMQP091

    # -- called by the handshake

    @abstractmethod
    def tuned(self, frame_max: int, channel_max: int, heartbeat: int) -> None:
        """Tune-Ok was accepted: the negotiated limits apply from the next frame on."""

    @abstractmethod
    def opened(self, now: float) -> None:
        """Open-Ok is queued: the connection is open."""

    # -- closing channels

    @abstractmethod
    def fail(self, channel: Failing, error: AmqpError) -> None:
        """An error occurred in `channel`: close the channel or the connection, as the kind of error
        demands."""

    @abstractmethod
    def forget_channel(self, channel: Failing) -> None:
        """The channel is closed on both sides."""
