"""LinkGiver: an exchange here gives its messages to the exchange of that name upstream.

Owner: the adapter, one for each agent that forwards. Makes calls on GiverModel and LinkWire. What the broker
upstream has not taken yet waits in a link queue here, as downstream's does there (`LinkFeeders`).
"""

from __future__ import annotations

from ha.core.errors import LinkError
from ha.core.federation.agent import LinkAgent, Opener
from ha.core.federation.heeding import SLICE, Heeding, InterestRefused
from ha.core.federation.offers import frames_of, parse_withheld
from ha.core.federation.ports import GiverModel, LinkWire
from ha.core.federation.wire import (
    LARGEST_INTEREST,
    FeederFrame,
    LinkMethod,
    Offer,
    TakerFrame,
    encode_serial,
    parse_accepted,
    parse_id,
)
from ha.core.wire.link import StreamDecoder, frame


class LinkGiver(LinkAgent):
    """See the module. `echo`: the messages are to come back from there. `given`: messages that the broker
    upstream has."""

    def __init__(
        self, stream: int, exchange: str, model: GiverModel, wire: LinkWire, me: Opener, *, echo: bool
    ) -> None:
        super().__init__(stream, exchange, wire, me)
        self._model = model
        self._echo = echo
        self._decoder = StreamDecoder(TakerFrame, LARGEST_INTEREST)
        self._heeding = Heeding(model.apply)

    def type(self) -> str:
        return self._model.type()

    def _question(self) -> tuple[LinkMethod, bytes]:
        me, model = self._me, self._model
        offered = Offer(
            me.node, me.owner, me.name, me.epoch, self.exchange, model.type(), me.agent, model.uuid().hex(),
            self._echo, self._model.digest(), me.addresses,
        )  # fmt: skip
        return LinkMethod.OFFER, offered.encode()

    def _answered(self, method: int, payload: bytes) -> tuple[str, str]:
        if method != LinkMethod.ACCEPTED:
            raise LinkError("a link is opened that was only offered")
        answer = parse_accepted(payload)
        return answer.node, answer.name

    def _begin(self, method: int, payload: bytes) -> None:
        answer = parse_accepted(payload)
        self._decoder = StreamDecoder(TakerFrame, LARGEST_INTEREST)
        self._heeding = Heeding(self._model.apply)
        self._model.attach(answer.node)
        self._model.took((answer.taken_epoch, answer.taken))

    def _data(self, payload: bytes) -> None:
        for kind, body in self._decoder.feed(payload):
            if kind is TakerFrame.TOOK:
                self._model.took(parse_id(body))
            elif kind is TakerFrame.WITHHOLD:
                self._model.withhold(parse_withheld(body))
            elif self._model.asked:
                self._heeding.told(body)
            else:
                raise LinkError("an interest of who is only given to")

    @property
    def hungry(self) -> bool:
        return self._heeding.waits

    def timers(self, now: float) -> None:
        super().timers(now)
        if self._peer is None or not self._heeding.waits or self._model.ended():
            return
        try:
            _, whole = self._heeding.go_on(SLICE)
        except InterestRefused as error:
            self.stop(str(error), now)
        except LinkError as error:
            self._wire.close(self._peer, error.code, f"FRAME_ERROR - {error}")
            self.lost(self._peer, now)
        else:
            self._confirm(whole)

    def _confirm(self, whole: int) -> None:
        if whole:
            self._send(frame(FeederFrame.INTEREST_OK, [encode_serial(whole)]))

    def _left(self) -> None:
        self._model.detach()

    def end_tick(self, now: float) -> None:
        """After the flush: what its queue has handed out goes."""
        if self._peer is None:
            return
        if why := self._model.ended():
            self.stop(why, now)
        elif frames := frames_of(self._model.read(), self._model.wall_ms()):
            self._send(frames)
