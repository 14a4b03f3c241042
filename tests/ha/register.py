"""The authority of tests: one JSON document behind compare-and-set, on the other side of a bad network.

Owner: `Pair`, which hands it each node's requests and moves it along.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ha.adapter.authority_port import AuthorityOutcome, AuthorityRequest
from ha.adapter.node import Node

if TYPE_CHECKING:
    from tests.ha.pair import Host

PATIENCE = 0.5
"""Seconds until a driver says `unknown` of a request that was not answered."""


@dataclass(slots=True)
class _Trip:
    """A request on its way there, then its answer on the way back."""

    host: Host
    node: Node
    request: AuthorityRequest
    at: float
    answer: tuple[AuthorityOutcome, dict[str, Any] | None] | None = None
    owner_gone: bool = False


@dataclass
class Register:
    """`held`: the document, None at first. The rest is what the network does, by names of hosts."""

    held: dict[str, Any] | None = None
    alive_until: dict[str, float] = field(default_factory=dict)
    """Until when the lease of each owner holds, by id of its node."""
    lease: float = 5.0
    delay: float = 0.0
    """Seconds each way."""
    cut: set[str] = field(default_factory=set)
    """No request of these arrives."""
    mute: set[str] = field(default_factory=set)
    """Theirs arrive and are carried out, but no answer comes back."""
    early: set[str] = field(default_factory=set)
    """Hosts whose node has not joined: `not yet` to a record that would have one of them come in."""
    answer_once: tuple[AuthorityOutcome, dict[str, Any] | None] | None = None
    """To the next swap, whatever is held."""
    says: str = ""
    """The sentence of any other answer."""
    silent: set[str] = field(default_factory=set)
    """Swaps of these are carried out, and not even the driver says anything, once."""
    late: dict[str, float] = field(default_factory=dict)
    """Answers to these that are on their way take so many seconds more."""
    swaps: list[str] = field(default_factory=list)
    """Who has replaced the document, in order."""
    _trips: list[_Trip] = field(default_factory=list)

    def ask(self, host: Host, requests: list[AuthorityRequest], now: float) -> None:
        for request in requests:
            self._trips.append(_Trip(host, host.running, request, now + self.delay))

    def run(self, now: float) -> None:
        for trip in self._trips:
            if trip.answer is not None:
                trip.at += self.late.get(trip.host.name, 0.0)
        self.late = {}
        for trip in [t for t in self._trips if t.at <= now]:
            if trip.answer is None:
                self._arrive(trip, now)
            elif not trip.host.frozen:
                self._trips.remove(trip)
                if trip.host.node is trip.node:
                    said = "it is on its way" if trip.answer[0] == "not yet" else self.says
                    trip.node.authority_answered(
                        trip.request.request_id, *trip.answer, now, said, trip.owner_gone
                    )

    def _arrive(self, trip: _Trip, now: float) -> None:
        name = trip.host.name
        trip.at = now + self.delay
        if name not in self.cut:
            trip.answer = self._carry_out(name, trip.request)
            trip.owner_gone = self._heed_lease(trip, now)
        if name in self.silent and trip.request.kind == "swap":
            self.silent.remove(name)
            self._trips.remove(trip)
        elif name in self.cut or name in self.mute:
            trip.at, trip.answer = now + PATIENCE, ("unknown", None)

    def _heed_lease(self, trip: _Trip, now: float) -> bool:
        """Whether the owner's lease has run out; the owner renews it with each of its requests."""
        if self.held is None or "owner" not in self.held:
            return False
        owner = self.held["owner"][0]
        ours = owner == trip.node.me.node_id and trip.answer is not None and trip.answer[0] == "done"
        if ours and (trip.request.renews or trip.request.kind == "swap"):
            self.alive_until[owner] = now + self.lease
        return now >= self.alive_until.get(owner, now)

    def _carry_out(
        self, name: str, request: AuthorityRequest
    ) -> tuple[AuthorityOutcome, dict[str, Any] | None]:
        if request.kind == "read":
            return "done", self.held
        if self.answer_once is not None:
            answer, self.answer_once = self.answer_once, None
            return answer
        held = (self.held["epoch"], self.held["revision"]) if self.held is not None else None
        if request.expected != held:
            return "conflict", self.held
        names = request.record["names"] if request.record is not None else {}
        if {names.get(node) for node in in_sync_of(request.record) - in_sync_of(self.held)} & self.early:
            return "not yet", None
        self.held = request.record
        self.swaps.append(name)
        return "done", None


def in_sync_of(record: dict[str, Any] | None) -> set[str]:
    """Ids of its nodes in sync."""
    return {node for node, _ in record["in_sync"]} if record is not None else set()
