"""LinkReceivers: the other end of all LinkGivers: who gives to which exchange here.

Owner: the adapter. Makes calls on ReceiverModel and LinkWire. Nothing is configured here: a broker downstream
gives, as a user who may write to the exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ha.core.deadlines import earliest
from ha.core.errors import LinkError
from ha.core.federation.intake import Intake, RunRefused
from ha.core.federation.ports import FeederStanding, LinkWire, ReceiverModel, TakerModel
from ha.core.federation.served import Place, ServedLinks, outdone, unfit
from ha.core.federation.telling import Telling
from ha.core.federation.wire import (
    Accepted,
    FeederFrame,
    LinkMethod,
    Offer,
    Refusal,
    parse_offer,
)
from ha.core.wire.link import StreamDecoder


@dataclass(slots=True)
class Receiving:
    """One link by which messages come, to an exchange of `vhost`. `telling`: what this end wants, if the
    other end asks for that."""

    offered: Offer
    vhost: str
    model: TakerModel
    intake: Intake
    telling: Telling | None
    decoder: StreamDecoder[FeederFrame] = field(default_factory=lambda: StreamDecoder(FeederFrame))


class LinkReceivers(ServedLinks[Receiving]):
    """See the module."""

    def __init__(self, model: ReceiverModel, wire: LinkWire) -> None:
        super().__init__(wire, LinkMethod.OFFER)
        self._model = model

    def end_tick(self, *, full: str = "") -> None:
        """After the flush. `full`: why this broker can take no more for now."""
        if not self.links:
            return
        refusal = self._model.standing().refusal
        for place, link in list(self.links.items()):
            why = refusal or ("" if link.intake.fits else "its exchange was deleted")
            if why:
                self._stop(place, Refusal(why))
                continue
            if not full and (word := link.intake.word()):
                self._send(place, word)
            if word := link.intake.withheld():
                self._send(place, word)
            if link.telling is not None:
                link.telling.end_tick(link.offered.node)

    def tick(self, now: float) -> None:
        """Before the flush."""
        for link in self.links.values():
            link.intake.tick(now)

    def next_deadline(self) -> float | None:
        return earliest(*(link.intake.next_deadline() for link in self.links.values()))

    @property
    def hungry(self) -> bool:
        """There is more to tell, and room for it."""
        return any(link.telling is not None and link.telling.hungry for link in self.links.values())

    # -- inside

    def _standing(self) -> FeederStanding:
        return self._model.standing()

    def _left(self, link: Receiving, *, delete: bool = False, lost: bool = False) -> None:
        link.intake.end()
        link.model.close()
        if delete:
            link.intake.forget()

    def _data(self, place: Place, link: Receiving, payload: bytes) -> None:
        for kind, body in link.decoder.feed(payload):
            try:
                if link.intake.frame(kind, body):
                    continue
            except RunRefused as error:
                self._stop(place, Refusal(str(error), patient=True))
                return
            if link.telling is not None:
                link.telling.confirmed(body)
            else:
                raise LinkError("an interest is confirmed, and none was told")

    def _open(self, place: Place, payload: bytes) -> None:
        offered = parse_offer(payload)
        me = self._model.standing()
        refusal = Refusal(me.refusal) if me.refusal else unfit(offered.node, offered.owner, me)
        model: TakerModel | None = None
        if not refusal.reason:
            found = self._model.receive(place[0], offered)
            if isinstance(found, Refusal):
                refusal = found
            else:
                refusal, model = self._displace(offered, self._model.vhost(place[0])), found
        if refusal.reason or model is None:
            if model is not None:
                model.close()
            self._wire.send(*place, LinkMethod.REFUSED, refusal.encode())
            return
        uuid, intake = bytes.fromhex(offered.uuid), Intake(model)
        intake.begin(uuid, offered.node, offered.owner, echo=offered.echo, offers=offered.offers)
        telling = Telling(model, partial(self._send, place)) if offered.digest else None
        self.links[place] = Receiving(offered, self._model.vhost(place[0]), model, intake, telling)
        accepted = Accepted(me.node, me.name, *model.settled(uuid))
        self._wire.send(*place, LinkMethod.ACCEPTED, accepted.encode())
        if telling is not None:
            telling.begin(offered.node, offered.digest)

    def _send(self, place: Place, parts: list[bytes]) -> None:
        self._wire.send_pieces(*place, LinkMethod.DATA, parts)

    def _displace(self, offered: Offer, vhost: str) -> Refusal:
        """The newest primary of a node gives; an older one that still runs gives way."""
        for place, link in list(self.links.items()):
            other = link.offered
            if (link.vhost, other.node, other.exchange) != (vhost, offered.node, offered.exchange):
                continue
            if other.owner != offered.owner:
                why = f"another broker, {other.name}, is the node '{other.node}' there"
                return Refusal(why, patient=True)
            if refusal := outdone(offered, other):
                return refusal
            self._stop(place, Refusal(f"{offered.name} gives now"))
        return Refusal("")
