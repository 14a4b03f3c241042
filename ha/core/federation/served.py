"""ServedLinks: the links that brokers downstream have opened here. Base of LinkFeeders and LinkReceivers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from ha.core.errors import LinkError
from ha.core.federation.ports import FeederStanding, LinkWire
from ha.core.federation.wire import LinkMethod, Offer, Open, Refusal, parse_refusal

Place = tuple[int, int]
"""Peer and stream."""
Link = TypeVar("Link")
STOPS = "it stops serving"


class ServedLinks(ABC, Generic[Link]):
    """Call `hear` as peers send, and `end_tick` after each flush. `opens`: the method by which one begins."""

    def __init__(self, wire: LinkWire, opens: LinkMethod) -> None:
        self._wire = wire
        self._opens = opens
        self.links: dict[Place, Link] = {}

    # -- what the two differ in

    @abstractmethod
    def _open(self, place: Place, payload: bytes) -> None:
        """Answer a broker that asks for a link. LinkError if the payload cannot be right."""

    @abstractmethod
    def _data(self, place: Place, link: Link, payload: bytes) -> None:
        """A piece of the other end's stream. LinkError if it cannot be right."""

    @abstractmethod
    def _left(self, link: Link, *, delete: bool = False, lost: bool = False) -> None:
        """The link is not open any more. `delete`: for good; `lost`: its connection is gone."""

    @abstractmethod
    def _standing(self) -> FeederStanding: ...

    # -- for both

    def has(self, peer: int, stream: int) -> bool:
        return (peer, stream) in self.links

    def hear(self, peer: int, method: int, stream: int, payload: bytes) -> None:
        """One method of the other end. LinkError if it cannot be right."""
        place = (peer, stream)
        link = self.links.get(place)
        if method == self._opens:
            if link is not None:
                raise LinkError(f"stream {stream} is open already")
            self._open(place, payload)
        elif link is None:
            return  # it was stopped, and the other end does not know yet
        elif method == LinkMethod.DATA:
            self._data(place, link, payload)
        elif method == LinkMethod.STOP:
            del self.links[place]
            self._left(link, delete=parse_refusal(payload).delete)
        else:
            raise LinkError(f"method {method} from a broker downstream")

    def lost(self, peer: int) -> None:
        """A connection is gone, whatever it was for."""
        for place in [place for place in self.links if place[0] == peer]:
            self._left(self.links.pop(place), lost=True)

    def stop(self) -> None:
        """This broker does not serve any more."""
        why = Refusal(self._standing().refusal or STOPS)
        for place in list(self.links):
            self._stop(place, why)

    def _stop(self, place: Place, why: Refusal) -> None:
        self._left(self.links.pop(place), delete=why.delete)
        self._wire.send(*place, LinkMethod.STOP, why.encode())


def unfit(node: str, owner: str, me: FeederStanding) -> Refusal:
    """Why that node, of that cluster, has no link with this one."""
    if not me.node:
        return Refusal("it is no federation node (federation.node is not set)", patient=True)
    if (node, owner) == (me.node, me.owner):
        return Refusal("it is this very node", patient=True)
    if node == me.node:
        why = f"its own federation.node is '{node}', too: each node needs a name of its own"
        return Refusal(why, patient=True)
    return Refusal("")


def outdone(asks: Open | Offer, has: Open | Offer) -> Refusal | None:
    """Why the other one keeps the link; None: it gives way. One that has connected anew gets it."""
    if has.epoch > asks.epoch:
        return Refusal(f"{has.name} has it already, in a later epoch of its node")
    if has.epoch == asks.epoch and has.agent != asks.agent:
        return Refusal(
            f"agent '{has.agent}' of {has.name} has it already: remove one of the two", patient=True
        )
    return None
