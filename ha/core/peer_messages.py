"""PeerMessages: internal messaging between the nodes of a pair, as the exchange `amq.peer` shows it.

Owner: HaBroker. An entity of a node publishes an event, which every node puts on its `amq.peer`; or it asks
the same entity of the other nodes, and gets their answers. A message goes to each node once, over the
connection that this node has dialed there, and never to a node of another cluster. Nothing is kept for a node
that is away: entities publish how things stand, and ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ha.core.deadlines import earliest
from ha.core.effects import Publish, SendMethod
from ha.core.election.peers import Peers
from ha.core.outbox import Outbox
from ha.core.record.lineage import Lineage
from ha.core.wire.link import Method
from ha.core.wire.peer_message import LARGEST, PeerMessage, parse_peer_message

PATIENCE = 1.0
"""Seconds until a node that has not answered a request counts as silent."""
MOST_REQUESTS = 64
"""Requests under way. One more replaces the oldest, which ends with the answers that it has."""
Answers = dict[str, dict[str, Any]]
"""By the name of the node."""


@dataclass(slots=True)
class _Request:
    then: Callable[[Answers], None]
    until: float
    asked: set[int]
    """Peers that have not answered yet."""
    answers: Answers = field(default_factory=dict)


class PeerMessages:
    """See the module."""

    def __init__(self, name: str, peers: Peers, lineage: Lineage, outbox: Outbox) -> None:
        self._name = name
        self._peers = peers
        self._lineage = lineage
        self._out = outbox
        self._entities: dict[str, Callable[[], dict[str, Any]]] = {}
        self._requests: dict[int, _Request] = {}
        self._numbers = 0

    # -- entities

    def serve(self, key: str, answer: Callable[[], dict[str, Any]]) -> None:
        """Requests of other nodes under that key get this answer."""
        self._entities[key] = answer

    def publish(self, key: str, body: dict[str, Any]) -> None:
        """Tell all nodes. `body` as JSON is at most some 2,800 octets."""
        self._send(PeerMessage(key, self._name, self._cluster, body))

    def request(self, key: str, then: Callable[[Answers], None], now: float) -> None:
        """Ask the other nodes; `then` gets the answers that came in time."""
        self._numbers += 1
        asked = self._send(PeerMessage(key, self._name, self._cluster, asks=self._numbers))
        if not asked:
            then({})
            return
        if len(self._requests) >= MOST_REQUESTS:
            self._end(next(iter(self._requests)))
        self._requests[self._numbers] = _Request(then, now + PATIENCE, set(asked))

    # -- what comes

    def heard(self, peer: int, payload: bytes) -> None:
        """A message of a peer. LinkError if it is none."""
        message = parse_peer_message(payload)
        if not self._cluster or message.cluster_id != self._cluster:
            return  # of another pair, which has this node's address
        self._show(message)
        if message.asks is not None:
            answer = self._entities.get(message.key)
            body = answer() if answer is not None else {}
            told = PeerMessage(message.key, self._name, self._cluster, body, answers=message.asks)
            payload = told.encode()
            if len(payload) <= LARGEST:
                self._out.do(SendMethod(peer, Method.PEER_MESSAGE, payload))
                self._show(told)
        elif message.answers is not None:
            self._answered(peer, message.answers, message)

    def lost(self, peer: int) -> None:
        """A connection is gone: no answer comes over it."""
        for number, request in list(self._requests.items()):
            request.asked.discard(peer)
            if not request.asked:
                self._end(number)

    def timers(self, now: float) -> None:
        for number, request in list(self._requests.items()):
            if now >= request.until:
                self._end(number)

    def next_deadline(self) -> float | None:
        return earliest(*(request.until for request in self._requests.values()))

    # -- inside

    @property
    def _cluster(self) -> str:
        return self._lineage.cluster_id or ""

    def _send(self, message: PeerMessage) -> list[int]:
        """To which peers it went."""
        self._show(message)
        payload = message.encode()
        targets = self._targets() if len(payload) <= LARGEST else []
        for peer in targets:
            self._out.do(SendMethod(peer, Method.PEER_MESSAGE, payload))
        return targets

    def _targets(self) -> list[int]:
        """One connection to each other node of this cluster that takes messages: where it was heard last."""
        found: dict[str, int] = {}
        for entry in sorted(self._peers.by_address.values(), key=lambda entry: -entry.heard_at):
            if entry.peer is None or entry.is_self or entry.counts_not or entry.node_id is None:
                continue
            answer = self._peers.answers.get(entry.node_id)
            if answer is not None and answer.takes_messages and answer.cluster_id == self._cluster:
                found.setdefault(entry.node_id, entry.peer)
        return list(found.values()) if self._cluster else []

    def _answered(self, peer: int, number: int, message: PeerMessage) -> None:
        request = self._requests.get(number)
        if request is None or peer not in request.asked:
            return  # late
        request.asked.discard(peer)
        request.answers[message.sender] = message.body
        if not request.asked:
            self._end(number)

    def _end(self, number: int) -> None:
        request = self._requests.pop(number)
        request.then(request.answers)

    def _show(self, message: PeerMessage) -> None:
        self._out.do(Publish(message.kind, message.key, message.sender, message.body))
