"""LinkAgent: the end of a federation link that has opened the connection, whichever way messages go.

Base of LinkTaker and LinkGiver. The upstream may be a pair: it asks at all addresses until one of them
serves, and again when that one goes.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from ha.core.errors import LinkError
from ha.core.federation.agent_end import ASK_EVERY, ASK_SELDOM, AgentEnd
from ha.core.federation.ports import LinkWire
from ha.core.federation.wire import LinkMethod, Refusal, parse_refusal


@dataclass(slots=True, frozen=True)
class Opener:
    """Who opens a link: see `ha.core.federation.wire.Open`. `paused`: an operator has paused the agent."""

    node: str
    owner: str
    name: str
    epoch: int
    agent: str
    paused: bool
    addresses: tuple[str, ...] = ()


class LinkAgent(AgentEnd):
    """See the module."""

    def __init__(self, stream: int, exchange: str, wire: LinkWire, me: Opener) -> None:
        super().__init__(stream, exchange, paused=me.paused)
        self._wire = wire
        self._me = me
        self._asked: set[int] = set()
        self._awaited: dict[int, float] = {}
        """Brokers that have not answered yet, and when to ask again all the same: they may have forgotten."""

    # -- what the two differ in

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

    # -- connections

    def lost(self, peer: int, now: float, refusal: str = "") -> None:
        self._asked.discard(peer)
        self._awaited.pop(peer, None)
        super().lost(peer, now, refusal)

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
                if now < self._awaited.get(peer, now):
                    continue  # a line may be longer than the pause between two questions
                self._awaited[peer] = now + ASK_SELDOM
                self._asked.add(peer)
                self._wire.send(peer, self.stream, method, question)

    def next_deadline(self) -> float | None:
        if self.paused or self._peer is not None or not self._open or not self.type():
            return None
        return self._next_ask

    # -- what the other broker says

    def method(self, peer: int, method: int, payload: bytes, now: float) -> None:
        """One method. LinkError if it cannot be right."""
        if method in (LinkMethod.OPENED, LinkMethod.ACCEPTED, LinkMethod.REFUSED):
            self._awaited.pop(peer, None)
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
