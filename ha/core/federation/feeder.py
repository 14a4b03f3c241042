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
from ha.core.federation.ports import FeederModel, FeederStanding, LinkWire
from ha.core.federation.served import Place, ServedLinks, outdone, unfit
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
        self._turn = 0
        """Where the next tick begins, so that each link has its turn."""

    @property
    def hungry(self) -> bool:
        """Some of what was told is not applied yet: another tick is wanted at once."""
        return any(feed.heeding.waits for feed in self.links.values())

    def tick(self) -> list[tuple[int, LinkError]]:
        """Before the flush: apply a share of what was told. Returns the peers that told what cannot be
        right."""
        waiting = [(place, feed) for place, feed in self.links.items() if feed.heeding.waits]
        if not waiting:
            return []
        self._turn = (self._turn + 1) % len(waiting)
        share = max(SLICE // len(waiting), LEAST_SHARE)
        left, wrong = SLICE, list[tuple[int, LinkError]]()
        for place, feed in waiting[self._turn :] + waiting[: self._turn]:
            if left <= 0:
                break
            if not self._model.ended(feed.uuid):
                try:
                    left -= self._apply(place, feed, min(share, left))
                except LinkError as error:
                    wrong.append((place[0], error))
        return wrong

    def end_tick(self) -> None:
        """After the flush: each link gets what its queue has handed out."""
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
            records = self._model.read(feed.uuid)
            if records:
                self._send(place, frame(FeederFrame.RUNS, [encode_serial(standing.wall_ms), *records]))

    # -- inside

    def _standing(self) -> FeederStanding:
        return self._model.standing()

    def _left(self, link: LinkFeed, *, delete: bool = False, lost: bool = False) -> None:
        self._model.detach(link.uuid, delete=delete, drop=lost and link.asked.drops)

    def _open(self, place: Place, payload: bytes) -> None:
        asked = parse_open(payload)
        me = self._model.standing()
        refusal = Refusal(me.refusal)
        if not me.refusal:
            refusal = unfit(asked.node, asked.owner, me)
            if sum(peer == place[0] for peer, _ in self.links) >= MOST_STREAMS:
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
            return
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
