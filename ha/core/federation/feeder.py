"""LinkFeeders: the upstream end of all federation links: who takes from which exchange here.

Owner: the adapter. Makes calls on FeederModel and LinkWire. What a broker downstream wants are the bindings
of its link queue. What it has not taken yet waits there. So a failover here, or a line that is down, loses
nothing: a link is fed from its queue, and the queue lets go of what was taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ha.core.errors import LinkError
from ha.core.federation.heeding import SLICE, Heeding, InterestRefused
from ha.core.federation.offers import frames_of, parse_withheld
from ha.core.federation.ports import FeederModel, FeederStanding, Found, LinkWire
from ha.core.federation.served import STOPS, Place, ServedLinks, outdone, unfit
from ha.core.federation.wire import (
    LARGEST_INTEREST,
    MOST_STREAMS,
    FeederFrame,
    LinkMethod,
    Open,
    Opened,
    Refusal,
    TakerFrame,
    encode_serial,
    parse_id,
    parse_open,
)
from ha.core.wire.link import StreamDecoder, frame

DRAINED = "all that waited is taken"
LEAST_SHARE = 50
"""Bindings that a tick applies of one link, if there are many."""


@dataclass(slots=True)
class LinkFeed:
    """One link that is fed."""

    asked: Open
    uuid: bytes
    heeding: Heeding
    decoder: StreamDecoder[TakerFrame] = field(
        default_factory=lambda: StreamDecoder(TakerFrame, LARGEST_INTEREST)
    )


class LinkFeeders(ServedLinks[LinkFeed]):
    """See the module."""

    def __init__(self, model: FeederModel, wire: LinkWire) -> None:
        super().__init__(wire, LinkMethod.OPEN)
        self._model = model
        self._opening: dict[Place, Open] = {}
        """Who has asked for a link, and has no answer yet."""
        self._share = SLICE
        """Bindings that this tick may still look at or change."""
        self._wrong: list[tuple[int, LinkError]] = []
        self._turn = 0
        """Where the next tick begins, so that each link has its turn."""

    @property
    def hungry(self) -> bool:
        """Something was asked for or told, and not all of it is done: another tick is wanted at once."""
        if not (self._opening or self.links):
            return False
        return bool(self._opening) or any(feed.heeding.waits for feed in self.links.values())

    def tick(self) -> list[tuple[int, LinkError]]:
        """Before the flush: a share of what was asked for and told. Returns the peers that said what cannot
        be right."""
        self._wrong = []
        for place in list(self._opening):
            try:
                self._go_on(place)
            except LinkError as error:
                self._wrong.append((place[0], error))
        waiting = [(place, feed) for place, feed in self.links.items() if feed.heeding.waits]
        if waiting:
            self._apply_some(waiting)
        return self._wrong

    def _apply_some(self, waiting: list[tuple[Place, LinkFeed]]) -> None:
        self._turn = (self._turn + 1) % len(waiting)
        most = max(SLICE // len(waiting), LEAST_SHARE)
        for place, feed in waiting[self._turn :] + waiting[: self._turn]:
            if self._share <= 0:
                return
            if not self._model.ended(feed.uuid):
                try:
                    self._share -= self._apply(place, feed, min(most, self._share))
                except LinkError as error:
                    self._wrong.append((place[0], error))

    def lost(self, peer: int) -> None:
        for place in [place for place in self._opening if place[0] == peer]:
            del self._opening[place]
        super().lost(peer)

    def stop(self) -> None:
        why = Refusal(self._standing().refusal or STOPS)
        for place in self._opening:
            self._wire.send(*place, LinkMethod.REFUSED, why.encode())
        self._opening.clear()
        super().stop()

    def end_tick(self) -> None:
        """After the flush: each link gets what its queue has handed out."""
        self._share = SLICE
        if not self.links:
            return
        standing = self._model.standing()
        for place, feed in list(self.links.items()):
            why = standing.refusal or self._model.ended(feed.uuid)
            if why:
                self._stop(place, Refusal(why))
                continue
            if feed.asked.ends and not feed.heeding.waits and self._model.drained(feed.uuid):
                self._stop(place, Refusal(DRAINED, delete=True))
                continue
            if frames := frames_of(self._model.read(feed.uuid), standing.wall_ms):
                self._send(place, frames)

    # -- inside

    def _standing(self) -> FeederStanding:
        return self._model.standing()

    def _left(self, link: LinkFeed, *, delete: bool = False, lost: bool = False) -> None:
        self._model.detach(link.uuid, delete=delete, drop=lost and link.asked.drops)

    def _open(self, place: Place, payload: bytes) -> None:
        self._opening[place] = parse_open(payload)
        self._go_on(place)

    def _go_on(self, place: Place) -> None:
        """Answer who asks for a link, if the share of this tick is enough to know the answer."""
        if self._share <= 0:
            return
        asked = self._opening[place]
        found = self._find(place, asked)
        if isinstance(found, int):
            self._share -= found
            return
        del self._opening[place]
        if isinstance(found, Refusal):
            self._wire.send(*place, LinkMethod.REFUSED, found.encode())
        else:
            self._share -= found.looked
            self._begin(place, asked, found)

    def _find(self, place: Place, asked: Open) -> Found | Refusal | int:
        me = self._model.standing()
        refusal = Refusal(me.refusal) if me.refusal else unfit(asked.node, asked.owner, me)
        if refusal.reason:
            return refusal
        if sum(peer == place[0] for peer, _ in (*self.links, *self._opening)) > MOST_STREAMS:
            return Refusal(f"{MOST_STREAMS} links of one connection are the most", patient=True)
        found = self._model.find(place[0], asked, self._share)
        if isinstance(found, Found) and (refusal := self._displace(found.uuid, asked)).reason:
            return refusal
        return found

    def _begin(self, place: Place, asked: Open, found: Found) -> None:
        me = self._model.standing()
        self.links[place] = LinkFeed(asked, found.uuid, Heeding(partial(self._model.apply, found.uuid)))
        taken = (asked.taken_epoch, asked.taken) if asked.uuid == found.told.hex() else (0, 0)
        self._model.attach(found.uuid, taken, asked.limits)
        answer = Opened(me.node, me.owner, me.name, me.epoch, found.told.hex(), found.digest)
        self._wire.send(*place, LinkMethod.OPENED, answer.encode())

    def _displace(self, uuid: bytes, asked: Open) -> Refusal:
        """The newest primary of a node takes; an older one that still runs gives way."""
        for place, feed in list(self.links.items()):
            if feed.uuid == uuid:
                if refusal := outdone(asked, feed.asked):
                    return refusal
                self._stop(place, Refusal(f"{asked.name} takes from it now"))
        return Refusal("")

    def _data(self, place: Place, link: LinkFeed, payload: bytes) -> None:
        for kind, body in link.decoder.feed(payload):
            if self.links.get(place) is link:
                self._frame(place, link, kind, body)

    def _frame(self, place: Place, feed: LinkFeed, kind: TakerFrame, body: bytes) -> None:
        if kind is TakerFrame.TOOK:
            self._model.took(feed.uuid, parse_id(body))
        elif kind is TakerFrame.WITHHOLD:
            self._model.withhold(feed.uuid, parse_withheld(body))
        else:
            feed.heeding.told(body)

    def _apply(self, place: Place, feed: LinkFeed, most: int) -> int:
        try:
            applied, whole = feed.heeding.go_on(most)
        except InterestRefused as error:
            self._stop(place, Refusal(str(error), patient=True))
            return 0
        if whole:
            self._send(place, frame(FeederFrame.INTEREST_OK, [encode_serial(whole)]))
        return applied

    def _send(self, place: Place, parts: list[bytes]) -> None:
        self._wire.send_pieces(*place, LinkMethod.DATA, parts)
