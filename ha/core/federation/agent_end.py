"""AgentEnd: what an operator and the connections see of one way of an agent, whatever the upstream speaks.

Base of LinkAgent (an Understudy upstream) and PlainAgent (any broker of AMQP 0-9-1).
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass

ASK_EVERY = 0.5
"""Seconds between two questions to brokers that do not serve the exchange."""
ASK_SELDOM = 5.0
"""The same where only an administrator can change the answer."""
RESUME = "an operator has paused it; next: understudy federate resume"


class AgentState(enum.Enum):
    """The state that an operator sees."""

    CONNECTING = "connecting"
    REFUSED = "refused"
    """The broker upstream says why."""
    STARTING = "starting"
    """It does not know yet all that is wanted."""
    RUNNING = "running"
    PAUSED = "paused"
    NO_EXCHANGE = "no exchange"
    """There is none of that name here."""


@dataclass(slots=True, eq=False)
class Told:
    """What was wanted at some time. `number`: it has been told by then, in that life of the link; None: not
    all of it yet."""

    life: int
    number: int | None


class AgentEnd(ABC):
    """See the module. Time is passed in, in seconds. `stream`: its number."""

    def __init__(self, stream: int, exchange: str, *, paused: bool) -> None:
        self.stream = stream
        self.exchange = exchange
        self.paused = paused
        self.upstream = ""
        """The node at the other end; "" while there is none."""
        self.source = ""
        """Name and address of that broker."""
        self._heard: dict[str, str] = {}
        """The last thing that each address had against it."""
        self._refused_at: frozenset[str] = frozenset()
        """Addresses at which the login is refused."""
        self.life = 0
        """Links that have ended."""
        self._watched: Told | None = None
        """What has not been told yet, and somebody waits for."""
        self._open: dict[int, str] = {}
        self._patient = False
        self._peer: int | None = None
        self._next_ask = 0.0

    @abstractmethod
    def type(self) -> str:
        """Of the exchange here; "" if there is none."""

    @abstractmethod
    def _left(self) -> None:
        """The link is not open any more."""

    @abstractmethod
    def stop(self, reason: str, now: float, *, delete: bool = False) -> None:
        """End the link. `delete`: for good, with what waits for it."""

    @abstractmethod
    def timers(self, now: float) -> None: ...

    @abstractmethod
    def next_deadline(self) -> float | None: ...

    @property
    def hungry(self) -> bool:
        """There is more to do at once: another tick is wanted."""
        return False

    @property
    def whole(self) -> bool:
        """Nothing is still to be told before messages go by all that is wanted."""
        return True

    def watch(self) -> Told:
        """What is wanted now."""
        if self._watched is not None:
            return self._watched
        told = Told(self.life, self._all_told())
        if told.number is None:
            self._watched = told
        return told

    def note_told(self) -> None:
        """Call it after something was told."""
        if self._watched is not None and (number := self._all_told()) is not None:
            self._watched.number, self._watched = number, None

    def knows(self, told: Told) -> bool:
        """Messages come by all of that. `told`: of this life."""
        return told.number is not None and self._knows(told.number)

    def _all_told(self) -> int | None:
        """A number that grows, if all that is wanted now has been told; else None."""
        return None

    def _knows(self, number: int) -> bool:
        """Messages come by all that was told up to there."""
        return False

    # -- what an operator is told

    @property
    def state(self) -> AgentState:
        if self.paused:
            return AgentState.PAUSED
        if self._peer is not None:
            return AgentState.RUNNING if self.whole else AgentState.STARTING
        if not self.type():
            return AgentState.NO_EXCHANGE
        refused = self._refused_at or (self._heard and self._open)
        return AgentState.REFUSED if refused else AgentState.CONNECTING

    @property
    def reason(self) -> str:
        """Why it does not run, in a sentence; "" if it does."""
        state = self.state
        if state is AgentState.PAUSED:
            return RESUME
        if state is AgentState.NO_EXCHANGE:
            return f"there is no exchange '{self.exchange}' here"
        if self._peer is not None:
            return ""
        said: dict[str, list[str]] = {}
        for where, what in sorted(self._heard.items()):
            said.setdefault(what, []).append(where)
        return "; ".join(f"{', '.join(where)}: {what}" for what, where in said.items())

    # -- connections

    def opened(self, peer: int, address: str, now: float) -> None:
        """The login at that address succeeded."""
        self._open[peer] = address
        self._refused_at -= {address}
        self._heard.pop(address, None)
        self._next_ask = min(self._next_ask, now)

    def failed(self, address: str, reason: str, *, refused: bool = False) -> None:
        """The login at that address failed. `refused`: somebody there said no."""
        self._heard[address] = reason
        self._refused_at = self._refused_at | {address} if refused else self._refused_at - {address}

    def lost(self, peer: int, now: float, refusal: str = "") -> None:
        """A connection is gone. `refusal`: what the broker there had against it, if it said so."""
        address = self._open.pop(peer, "")
        if peer == self._peer:
            self._leave(now)
        if address:
            self._heard[address] = "the connection is lost"

    def _leave(self, now: float) -> None:
        self._peer, self.upstream, self.source = None, "", ""
        self._next_ask = now + ASK_EVERY
        self.life += 1
        self._watched = None
        self._left()
