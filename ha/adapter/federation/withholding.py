"""Withholding: messages of a link queue that are only offered, because they come to the taker by another way.

Owner: Feeding. They stay handed out, until the taker says that it has them, or wants them after all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from broker.model.history.records import Entry, MessageId, id_of
from ha.core.federation.intake import origin_epoch
from ha.core.federation.offers import MOST_IN_RANGE, MOST_OFFERED, Offered

if TYPE_CHECKING:
    from broker.model.history.records import Envelope
    from ha.adapter.federation.ports import FederationNode


class Publisher(NamedTuple):
    """The node here, and the id of its cluster."""

    node: str
    owner: str


def publisher(node: FederationNode) -> Publisher:
    return Publisher(node.settings.federated.node, node.core.cluster_id or node.me.node_id)


class Withholding:
    """`me`: whose messages have no path."""

    def __init__(self, me: Publisher) -> None:
        self._me = me
        self._nodes: frozenset[str] = frozenset()
        self._held: deque[tuple[str, Entry]] = deque()
        """What was offered, and of which node, by ascending id."""
        self._wanted: list[Entry] = []
        """What is to be sent after all."""
        self._ends: deque[MessageId] = deque()
        """The last id of each range that was offered, and is not taken."""

    def begin(self, nodes: frozenset[str]) -> None:
        """From now on for these nodes, and for no others."""
        self._nodes = nodes
        self._wanted += [entry for node, entry in self._held if node not in nodes]
        self._held = deque(held for held in self._held if held[0] in nodes)

    def taken(self, upto: MessageId) -> None:
        while self._ends and self._ends[0] <= upto:
            self._ends.popleft()
        while self._held and id_of(self._held[0][1]) <= upto:
            self._held.popleft()
        if self._wanted:
            self._wanted = [entry for entry in self._wanted if id_of(entry) > upto]

    def divide(self, fresh: list[Entry]) -> tuple[list[Entry], list[Offered], list[Offered]]:
        """What goes of what is handed out, and of what was held back; and what is offered: before the last of
        the former, and behind it."""
        wanted, self._wanted = self._wanted, []
        if not self._nodes:
            return (wanted + fresh if wanted else fresh), [], []
        sent: list[Entry] = []
        offers: list[Offered] = []
        for entry in fresh:
            offered = self._offer(entry)
            if offered is None or not self._add(offers, offered):
                sent.append(entry)
            else:
                self._held.append((offered.node, entry))
        last = id_of(sent[-1]) if sent else (0, 0)
        ahead = [offered for offered in offers if (offered.epoch, offered.first) < last]
        return wanted + sent, ahead, offers[len(ahead) :]

    def _offer(self, entry: Entry) -> Offered | None:
        """None: it is not withheld, or nobody could know it."""
        number, envelope, _ = entry
        node = envelope.path[0] if envelope.path else self._me.node
        if node not in self._nodes:
            return None
        origin = self._origin(envelope, number)
        return None if origin is None else Offered(envelope.epoch, number, 1, node, *origin)

    def _origin(self, envelope: Envelope, number: int) -> MessageId | None:
        if not envelope.path:
            return origin_epoch(self._me.owner, envelope.epoch), number
        return None if envelope.origin is None else (envelope.origin[0], envelope.origin[1] + number)

    def _add(self, offers: list[Offered], new: Offered) -> bool:
        """Join it to the last one, or begin another. Returns False if there are too many."""
        if offers:
            last = offers[-1]
            joined = last.part(0, last.messages + 1)
            if last.messages < MOST_IN_RANGE and (joined.epoch, joined.last) == (new.epoch, new.first) and (
                last.node, last.origin_epoch, last.origin_first + last.messages
            ) == (new.node, new.origin_epoch, new.origin_first):  # fmt: skip
                offers[-1] = joined
                self._ends[-1] = new.epoch, new.last
                return True
        if len(self._ends) >= MOST_OFFERED:
            return False
        offers.append(new)
        self._ends.append((new.epoch, new.last))
        return True
