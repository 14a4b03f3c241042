"""LinkFeeders: the upstream end of all federation links: who takes from which exchange here.

Owner: the adapter. Makes calls on FeederModel and LinkWire. What a broker downstream wants are the bindings
of its link queue. What it has not taken yet waits there. So a failover here, or a line that is down, loses
nothing: a link is fed from its queue, and the queue lets go of what was taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ha.core.errors import LinkError
from ha.core.federation.ports import FeederModel, FeederStanding, LinkWire
from ha.core.federation.wire import (
    LARGEST_INTEREST,
    MOST_STREAMS,
    FeederFrame,
    LinkMethod,
    Offer,
    Open,
    Opened,
    Refusal,
    TakerFrame,
    encode_serial,
    parse_id,
    parse_interest,
    parse_open,
    parse_refusal,
)
from ha.core.wire.link import StreamDecoder, frame

Place = tuple[int, int]
"""Peer and stream."""


@dataclass(slots=True)
class LinkFeed:
    """One link that is fed. `fed`: messages sent."""

    asked: Open
    uuid: bytes
    decoder: StreamDecoder[TakerFrame] = field(
        default_factory=lambda: StreamDecoder(TakerFrame, LARGEST_INTEREST)
    )


class LinkFeeders:
    """Call `hear` as peers send, and `end_tick` after each flush."""

    def __init__(self, model: FeederModel, wire: LinkWire) -> None:
        self._model = model
        self._wire = wire
        self.feeds: dict[Place, LinkFeed] = {}

    def hear(self, peer: int, method: int, stream: int, payload: bytes) -> None:
        """One method of a taker. LinkError if it cannot be right."""
        place = (peer, stream)
        feed = self.feeds.get(place)
        if method == LinkMethod.OPEN:
            if feed is not None:
                raise LinkError(f"stream {stream} is open already")
            self._open(place, parse_open(payload))
        elif feed is None:
            return  # it was stopped, and the taker does not know yet
        elif method == LinkMethod.DATA:
            for kind, body in feed.decoder.feed(payload):
                if self.feeds.get(place) is feed:
                    self._frame(place, feed, kind, body)
        elif method == LinkMethod.STOP:
            del self.feeds[place]
            self._model.detach(feed.uuid, delete=parse_refusal(payload).delete)
        else:
            raise LinkError(f"method {method} from a broker downstream")

    def lost(self, peer: int) -> None:
        """A connection is gone, whatever it was for."""
        for place in [place for place in self.feeds if place[0] == peer]:
            feed = self.feeds.pop(place)
            self._model.detach(feed.uuid, drop=feed.asked.drops)

    def stop(self) -> None:
        """This broker does not serve any more."""
        why = Refusal(self._model.standing().refusal or "it stops serving")
        for place in list(self.feeds):
            self._stop(place, why)

    def end_tick(self) -> None:
        """After the flush: each link gets what its queue has handed out."""
        if not self.feeds:
            return
        standing = self._model.standing()
        for place, feed in list(self.feeds.items()):
            why = standing.refusal or self._model.ended(feed.uuid)
            if why:
                self._stop(place, Refusal(why))
                continue
            records = self._model.read(feed.uuid)
            if records:
                self._send(place, frame(FeederFrame.RUNS, [encode_serial(standing.wall_ms), *records]))

    # -- inside

    def _open(self, place: Place, asked: Open) -> None:
        me = self._model.standing()
        refusal = Refusal(me.refusal)
        if not me.refusal:
            refusal = unfit(asked.node, asked.owner, me)
            if sum(peer == place[0] for peer, _ in self.feeds) >= MOST_STREAMS:
                refusal = Refusal(f"{MOST_STREAMS} links of one connection are the most", patient=True)
        if not refusal.reason:
            found = self._model.find(place[0], asked)
            if isinstance(found, Refusal):
                refusal = found
            else:
                refusal = self._displace(found.uuid, asked)
        if refusal.reason:
            self._wire.send(*place, LinkMethod.REFUSED, refusal.encode())
            return
        assert not isinstance(found, Refusal)
        self.feeds[place] = LinkFeed(asked, found.uuid)
        taken = (asked.taken_epoch, asked.taken) if asked.uuid == found.told.hex() else (0, 0)
        self._model.attach(found.uuid, taken)
        answer = Opened(me.node, me.name, me.epoch, found.told.hex(), found.digest)
        self._wire.send(*place, LinkMethod.OPENED, answer.encode())

    def _displace(self, uuid: bytes, asked: Open) -> Refusal:
        """The newest primary of a node takes; an older one that still runs gives way."""
        for place, feed in list(self.feeds.items()):
            if feed.uuid == uuid:
                if refusal := outdone(asked, feed.asked):
                    return refusal
                self._stop(place, Refusal(f"{asked.name} takes from it now"))
        return Refusal("")

    def _frame(self, place: Place, feed: LinkFeed, kind: TakerFrame, body: bytes) -> None:
        if kind is TakerFrame.TOOK:
            self._model.took(feed.uuid, parse_id(body))
            return
        serial, flags, records = parse_interest(body)
        why = self._model.interest(feed.uuid, flags, records)
        if why:
            self._stop(place, Refusal(why, patient=True))
        else:
            self._send(place, frame(FeederFrame.INTEREST_OK, [encode_serial(serial)]))

    def _send(self, place: Place, parts: list[bytes]) -> None:
        self._wire.send_pieces(*place, LinkMethod.DATA, parts)

    def _stop(self, place: Place, why: Refusal) -> None:
        feed = self.feeds.pop(place)
        self._model.detach(feed.uuid)
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
