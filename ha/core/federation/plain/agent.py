"""PlainAgent: one way of an agent at a broker of AMQP 0-9-1 that knows nothing of nodes.

Base of PlainTaker and PlainGiver. Each has a channel of its own on the connections to the upstream, on one of
them at a time. What the broker there refuses costs it that channel, and it tries again later, at the next
address.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque

from ha.core.errors import LinkError
from ha.core.federation.agent_end import ASK_EVERY, ASK_SELDOM, AgentEnd
from ha.core.federation.plain.ports import PlainWire, Server

ANSWER_WITHIN = 60.0
"""Seconds until the link has to run once it is begun: a broker makes thousands of bindings in that time."""
NOT_FOUND, ACCESS_REFUSED = 404, 403
_NO = frozenset((NOT_FOUND, ACCESS_REFUSED))
NOBODY = Server("", "", "", confirms=False, joins=False)


class PlainAgent(AgentEnd):
    """See the module. `node`: this node's name."""

    def __init__(self, stream: int, exchange: str, wire: PlainWire, *, node: str, paused: bool) -> None:
        super().__init__(stream, exchange, paused=paused)
        self.node = node
        self._wire = wire
        self._server = NOBODY
        self._at: int | None = None
        """The peer with its channel, also while the link does not run yet."""
        self._until = self._not_before = 0.0
        self._tried: set[int] = set()
        self._found = False
        """The exchange is there."""
        self._calls = 0
        """Methods with an answer, ever."""
        self._due: deque[str] = deque()
        """Answers that are still to come, in order."""

    # -- what the two differ in

    @abstractmethod
    def _unfit(self) -> str:
        """What the broker there lacks, as a sentence; "" if nothing."""

    @abstractmethod
    def _ready(self) -> None:
        """The exchange is there: go on to what `_runs` ends."""

    @abstractmethod
    def _step(self, name: str, arguments: dict[str, object]) -> None:
        """An answer that was due."""

    @abstractmethod
    def _told(self, name: str, arguments: dict[str, object]) -> str:
        """A method that no request asked for. Returns why the link ends by it, as a sentence; "" if it does
        not. LinkError if it cannot be right."""

    def _faulted(self, code: int, text: str, failed: tuple[int, int]) -> str:
        """The broker closed the channel. Returns why, as a sentence; "": try again at once."""
        return text

    @abstractmethod
    def _forget(self) -> None:
        """For good: what waits there is to end with it, while the channel is still open."""

    # -- connections

    def opened(self, peer: int, address: str, now: float) -> None:
        super().opened(peer, address, now)
        self._next_ask = max(self._next_ask, self._not_before)

    def misled(self, address: str, why: str, now: float) -> None:
        """What came from that address cannot be right, and cost it the connection."""
        self.failed(address, f"the connection was closed: it sent {why}", refused=True)
        self._not_before = now + ASK_SELDOM

    def lost(self, peer: int, now: float, refusal: str = "") -> None:
        if peer == self._at:
            self._end(now)
        self._tried.discard(peer)
        super().lost(peer, now, refusal)

    def stop(self, reason: str, now: float, *, delete: bool = False) -> None:
        if self._at is not None:
            if delete and self._peer is not None:
                self._forget()
            self._wire.release(self._at, self.stream)
            self._end(now)

    def timers(self, now: float) -> None:
        if self.paused or not self.type():
            self.stop("the agent is paused" if self.paused else "the exchange is gone", now)
        elif self._at is None:
            if self._open and now >= self._next_ask:
                self._try(now)
        elif self._peer is None and now >= self._until:
            self._refused(f"it did not answer within {ANSWER_WITHIN:.0f} s", now, patient=False)

    def next_deadline(self) -> float | None:
        if self.paused or self._peer is not None or not self._open or not self.type():
            return None
        return self._next_ask if self._at is None else self._until

    def _try(self, now: float) -> None:
        """At the next address."""
        self._next_ask = now + ASK_SELDOM
        peers = sorted(self._open)
        peer = next((peer for peer in peers if peer not in self._tried), peers[0])
        if peer in self._tried:
            self._tried.clear()
        self._tried.add(peer)
        self._server = self._wire.server(peer)
        fault = self._unfit()
        if not fault and self._server.node == self.node:
            fault = f"it is node '{self.node}' itself, or has its name"
        if not fault and not self._wire.open(peer, self.stream):
            fault = "it allows no more channels on one connection"
        if fault:
            self._heard[self._open[peer]] = fault
            return
        self._at, self._until = peer, now + ANSWER_WITHIN
        self._due = deque(["channel.open-ok"])

    # -- what the other broker says

    def answered(self, peer: int, name: str, arguments: dict[str, object], now: float) -> None:
        """A method on its channel. LinkError if it cannot be right."""
        if peer != self._at:
            return
        if not self._due or name != self._due[0]:
            if name.endswith("-ok"):
                raise LinkError(f"{name} is an answer to nothing")
            if why := self._told(name, arguments):
                self._refused(why, now, patient=False)
            return
        self._due.popleft()
        if name == "channel.open-ok":
            self._call("exchange.declare", exchange=self.exchange, passive=True, type=self.type())
        elif not self._found:
            self._found = True
            self._ready()
        else:
            self._step(name, arguments)

    def closed(self, peer: int, code: int, text: str, failed: tuple[int, int], now: float) -> None:
        """The broker closed its channel."""
        if peer != self._at:
            return
        if self._found or code != NOT_FOUND:
            why = self._faulted(code, text, failed)
        else:
            why = f"it has no exchange '{self.exchange}' to federate; declare it there"
        told_no = self._peer is None or code in _NO
        if not why:
            self._end(now)
            self._next_ask = now
            self._tried.discard(peer)
        else:
            self._refused(why, now, patient=told_no, released=True)

    def _refused(self, why: str, now: float, *, patient: bool, released: bool = False) -> None:
        """It goes on at another address, or here later."""
        peer = self._at
        assert peer is not None
        if not released:
            self._wire.release(peer, self.stream)
        self._end(now)
        self._heard[self._open[peer]] = why
        self._next_ask = now + (ASK_SELDOM if patient else ASK_EVERY)

    # -- for the two

    def _call(self, name: str, **arguments: object) -> None:
        """A method with an answer."""
        self._send(name, **arguments)
        self._due.append(f"{name}-ok")
        self._calls += 1

    def _send(self, name: str, **arguments: object) -> None:
        if self._at is not None:
            self._wire.call(self._at, self.stream, name, **arguments)

    def _runs(self) -> None:
        assert self._at is not None
        address = self._open[self._at]
        self._peer, self.upstream = self._at, self._server.node
        self.source = f"{self._server.name} at {address}"
        self._heard.clear()

    def _end(self, now: float) -> None:
        self._at = None
        self._found = False
        self._due.clear()
        self._leave(now)
