"""LinkReceivers: the other end of all LinkGivers: who gives to which exchange here.

Owner: the adapter. Makes calls on ReceiverModel and LinkWire. Nothing is configured here: a broker downstream
gives, as a user who may write to the exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ha.core.errors import LinkError
from ha.core.federation.feeder import Place, outdone, unfit
from ha.core.federation.intake import Intake
from ha.core.federation.ports import LinkWire, ReceiverModel, TakerModel
from ha.core.federation.telling import Telling
from ha.core.federation.wire import (
    Accepted,
    FeederFrame,
    LinkMethod,
    Offer,
    Refusal,
    parse_offer,
    parse_refusal,
)
from ha.core.wire.link import StreamDecoder


@dataclass(slots=True)
class Receiving:
    """One link by which messages come. `telling`: what this end wants, if the other end asks for that."""

    offered: Offer
    model: TakerModel
    intake: Intake
    telling: Telling | None
    decoder: StreamDecoder[FeederFrame] = field(default_factory=lambda: StreamDecoder(FeederFrame))


class LinkReceivers:
    """Call `hear` as peers send, and `end_tick` after each flush."""

    def __init__(self, model: ReceiverModel, wire: LinkWire) -> None:
        self._model = model
        self._wire = wire
        self.links: dict[Place, Receiving] = {}

    def has(self, peer: int, stream: int) -> bool:
        return (peer, stream) in self.links

    def hear(self, peer: int, method: int, stream: int, payload: bytes) -> None:
        """One method of a giver. LinkError if it cannot be right."""
        place = (peer, stream)
        link = self.links.get(place)
        if method == LinkMethod.OFFER:
            if link is not None:
                raise LinkError(f"stream {stream} is open already")
            self._offered(place, parse_offer(payload))
        elif link is None:
            return  # it was stopped, and the giver does not know yet
        elif method == LinkMethod.DATA:
            for kind, body in link.decoder.feed(payload):
                if kind is FeederFrame.RUNS:
                    link.intake.runs(body)
                elif link.telling is not None:
                    link.telling.confirmed(body)
                else:
                    raise LinkError("an interest is confirmed, and none was told")
        elif method == LinkMethod.STOP:
            self._drop(place)
            if parse_refusal(payload).delete:
                link.intake.forget()
        else:
            raise LinkError(f"method {method} from a broker downstream")

    def lost(self, peer: int) -> None:
        """A connection is gone, whatever it was for."""
        for place in [place for place in self.links if place[0] == peer]:
            self._drop(place)

    def stop(self) -> None:
        """This broker does not serve any more."""
        why = Refusal(self._model.standing().refusal or "it stops serving")
        for place in list(self.links):
            self._drop(place)
            self._wire.send(*place, LinkMethod.STOP, why.encode())

    def end_tick(self, *, full: str = "") -> None:
        """After the flush. `full`: why this broker can take no more for now."""
        if not self.links:
            return
        refusal = self._model.standing().refusal
        for place, link in list(self.links.items()):
            why = refusal or ("" if link.intake.fits else "its exchange was deleted")
            if why:
                self._drop(place)
                self._wire.send(*place, LinkMethod.STOP, Refusal(why).encode())
                continue
            if not full and (word := link.intake.word()):
                self._wire.send_pieces(*place, LinkMethod.DATA, word)
            if link.telling is not None:
                link.telling.end_tick(link.offered.node)

    def _drop(self, place: Place) -> None:
        self.links.pop(place).model.close()

    def _offered(self, place: Place, offered: Offer) -> None:
        me = self._model.standing()
        refusal = Refusal(me.refusal) if me.refusal else unfit(offered.node, offered.owner, me)
        model: TakerModel | None = None
        if not refusal.reason:
            found = self._model.receive(place[0], offered)
            if isinstance(found, Refusal):
                refusal = found
            else:
                refusal, model = self._displace(offered), found
        if refusal.reason or model is None:
            self._wire.send(*place, LinkMethod.REFUSED, refusal.encode())
            return
        uuid, intake = bytes.fromhex(offered.uuid), Intake(model)
        intake.begin(uuid, offered.node, echo=offered.echo)
        telling = Telling(model, partial(self._send, place)) if offered.digest else None
        self.links[place] = Receiving(offered, model, intake, telling)
        accepted = Accepted(me.node, me.name, *model.settled(uuid))
        self._wire.send(*place, LinkMethod.ACCEPTED, accepted.encode())
        if telling is not None:
            telling.begin(offered.node, offered.digest)

    def _send(self, place: Place, parts: list[bytes]) -> None:
        self._wire.send_pieces(*place, LinkMethod.DATA, parts)

    def _displace(self, offered: Offer) -> Refusal:
        """The newest primary of a node gives; an older one that still runs gives way."""
        for place, link in list(self.links.items()):
            other = link.offered
            if (other.node, other.exchange) != (offered.node, offered.exchange):
                continue
            if other.owner != offered.owner:
                why = f"another broker, {other.name}, is the node '{other.node}' there"
                return Refusal(why, patient=True)
            if refusal := outdone(offered, other):
                return refusal
            self._drop(place)
            said = Refusal(f"{offered.name} gives now")
            self._wire.send(*place, LinkMethod.STOP, said.encode())
        return Refusal("")
