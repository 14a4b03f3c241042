"""An AMQP 1.0 connection, as its way in and its links see it. `Amqp10Connection` is one."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from proton import Connection as Engine

from broker.amqp10.steps import Amqp10Step
from broker.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable


class Amqp10Host(Connection):
    """`engine`: Proton's connection. `claimed`: the name that the client has given. `stranger`: why it is to
    try again, here or elsewhere; told once it has opened."""

    __slots__ = ("claimed", "engine", "step", "stranger")

    engine: Engine
    step: Amqp10Step
    claimed: str
    stranger: str

    # -- for the way in

    @abstractmethod
    def admitted(self, now: float) -> None:
        """The client is let in, and its open answered: ordinary life begins."""

    @abstractmethod
    def hold(self, now: float) -> None:
        """The hooks are asked again soon."""

    # -- for links

    @abstractmethod
    def later(self, what: Callable[[], None]) -> None:
        """Do it in the middle of a tick: whatever goes wrong costs this connection, at the next one."""

    @abstractmethod
    def pull(self) -> None:
        """What the engine has to say goes out."""

    @abstractmethod
    def buffers(self, octets: int) -> None:
        """Those that the engine has for deliveries which are not whole take so many octets more, or fewer."""
