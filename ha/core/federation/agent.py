"""LinkAgent: the end of a federation link that has opened the connection, whichever way messages go.

Base of LinkTaker and LinkGiver. The upstream may be a pair: it asks at all addresses until one of them
serves, and again when that one goes.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass

from ha.core.errors import LinkError
from ha.core.federation.ports import LinkWire
from ha.core.federation.wire import LinkMethod, Refusal, parse_refusal

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


@dataclass(slots=True, frozen=True)
class Opener:
    """Who opens a link: see `ha.core.federation.wire.Open`. `paused`: an operator has paused the agent."""

    node: str
    owner: str
    name: str
    epoch: int
    agent: str
    paused: bool


class LinkAgent(ABC):
    """See the module. Time is passed in, in seconds. `stream`: its number on every connection."""

    def __init__(self, stream: int, exchange: str, wire: LinkWire, me: Opener) -> None:
        self.stream = stream
        self.exchange = exchange
        self.paused = me.paused
        self.upstream = ""
        """The node at the other end; "" while there is none."""
        self.source = ""
        """Name and address of that broker."""
        self._wire = wire
        self._me = me
        self._heard: dict[str, str] = {}
        """The last thing that each address had against it."""
        self._refused_at: frozenset[str] = frozenset()
        """Addresses at which the login is refused."""
        self._open: dict[int, str] = {}
        self._asked: set[int] = set()
        self._patient = False
        self._peer: int | None = None
        self._next_ask = 0.0

    # -- what the two differ in

    @abstractmethod
    def type(self) -> str:
        """Of the exchange here; "" if there is none."""

    @abstractmethod
    def _question(self) -> tuple[LinkMethod, bytes]:
        """What it asks the other broker."""

    @abstractmethod
    def _answered(self, method: int, payload: bytes) -> tuple[str, str]:
        """The other broker agrees. Returns its node and its name. LinkError if the answer cannot be right."""

    @abstractmethod
    def _begin(self, method: int, payload: bytes) -> None:
        """The link is open, by that answer."""

    @abstractmethod
    def _data(self, payload: bytes) -> None:
        """A piece of the other end's stream. LinkError if it cannot be right."""

    @abstractmethod
    def _left(self) -> None:
        """The link is not open any more."""

    @property
    def hungry(self) -> bool:
        """There is more to do at once: another tick is wanted."""
        return False

    @property
    def whole(self) -> bool:
        """Nothing is still to be told before messages go by all that is wanted."""
        return True

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
        return "; ".join(f"{where}: {what}" for where, what in sorted(self._heard.items()))

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

    def lost(self, peer: int, now: float) -> None:
        """A connection is gone."""
        address = self._open.pop(peer, "")
        self._asked.discard(peer)
        if peer == self._peer:
            self._leave(now)
        if address:
            self._heard[address] = "the connection is lost"

    def stop(self, reason: str, now: float, *, delete: bool = False) -> None:
        """End the link. `delete`: for good, with what waits for it."""
        if self._peer is not None:
            said = Refusal(reason, delete=delete)
            self._wire.send(self._peer, self.stream, LinkMethod.STOP, said.encode())
            self._leave(now)

    def timers(self, now: float) -> None:
        if self.paused or not self.type():
            self.stop("the agent is paused" if self.paused else "the exchange is gone", now)
            return
        if self._peer is None and self._open and now >= self._next_ask:
            self._next_ask = now + (ASK_SELDOM if self._patient else ASK_EVERY)
            method, question = self._question()
            for peer in self._open:
                self._asked.add(peer)
                self._wire.send(peer, self.stream, method, question)

    def next_deadline(self) -> float | None:
        if self.paused or self._peer is not None or not self._open or not self.type():
            return None
        return self._next_ask

    # -- what the other broker says

    def method(self, peer: int, method: int, payload: bytes, now: float) -> None:
        """One method. LinkError if it cannot be right."""
        if method in (LinkMethod.OPENED, LinkMethod.ACCEPTED):
            self._agreed(peer, method, payload)
        elif method == LinkMethod.REFUSED:
            self._refused(peer, parse_refusal(payload))
        elif peer != self._peer:
            return  # late
        elif method == LinkMethod.DATA:
            self._data(payload)
        elif method == LinkMethod.STOP:
            self._stopped(peer, parse_refusal(payload), now)
        else:
            raise LinkError(f"method {method} from a broker upstream")

    def _stopped(self, peer: int, said: Refusal, now: float) -> None:
        """The other end has ended the link."""
        self._leave(now)
        self._patient = said.patient
        self._next_ask = now + (ASK_SELDOM if said.patient else ASK_EVERY)
        self._heard[self._open.get(peer, "")] = said.reason

    def _agreed(self, peer: int, method: int, payload: bytes) -> None:
        address = self._open.get(peer)
        if address is None or peer not in self._asked:
            raise LinkError("a link that nobody asked for")
        node, name = self._answered(method, payload)
        if self._peer is not None or self.paused:
            why = "another broker answered first" if self._peer is not None else "the agent is paused"
            self._wire.send(peer, self.stream, LinkMethod.STOP, Refusal(why).encode())
            return
        self._peer, self.upstream, self.source = peer, node, f"{name} at {address}"
        self._patient = False
        self._heard.clear()
        self._begin(method, payload)

    def _refused(self, peer: int, said: Refusal) -> None:
        address = self._open.get(peer)
        if address is None or self._peer is not None:
            return
        self._heard[address] = said.reason
        self._patient = all(address in self._heard for address in self._open.values()) and said.patient

    # -- for the two

    def _send(self, parts: list[bytes]) -> None:
        if self._peer is not None:
            self._wire.send_pieces(self._peer, self.stream, LinkMethod.DATA, parts)

    def _leave(self, now: float) -> None:
        self._peer, self.upstream, self.source = None, "", ""
        self._next_ask = now + ASK_EVERY
        self._left()
