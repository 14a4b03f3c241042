"""The AMQP 1.0 connection as its handshake and links see it. `Amqp10Connection` implements it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from proton import Connection as Engine

from broker.amqp10.steps import Amqp10Step
from broker.connection import Connection
from broker.model.statistics import AMQP10, Shares

if TYPE_CHECKING:
    from collections.abc import Callable


class Amqp10Host(Connection):
    """An AMQP 1.0 connection.

    - `engine`: Proton's connection.
    - `claimed`: the user name that the client gave.
    - `retry_reason`: why it should try again, here or elsewhere; sent after its open.
    - `went`: its messages by exchange (`counts.publish`).
    """

    __slots__ = ("claimed", "engine", "retry_reason", "step", "went")
    __deletable__ = ("engine",)

    engine: Engine
    step: Amqp10Step
    claimed: str
    retry_reason: str
    went: Shares

    @property
    def protocol(self) -> str:
        return AMQP10

    # -- for the handshake

    @abstractmethod
    def admitted(self, now: float) -> None:
        """The client is accepted and its open answered: the connection is open."""

    @abstractmethod
    def hold(self, now: float) -> None:
        """The hooks will be asked again soon."""

    # -- for links

    @abstractmethod
    def later(self, what: Callable[[], None]) -> None:
        """Run `what` in the middle of a tick. An error closes this connection, in the next tick."""

    @abstractmethod
    def pull(self) -> None:
        """Take the engine's output."""

    @abstractmethod
    def buffers(self, octets: int) -> None:
        """The engine's buffers for incomplete deliveries changed by `octets`."""
