"""LinkTaker: an exchange here takes from the exchange of that name upstream what it is bound for.

Owner: the adapter, one for each agent. Makes calls on TakerModel and LinkWire. It says what is wanted, as
differences, and how far it has taken (`Intake`).
"""

from __future__ import annotations

from ha.core.deadlines import earliest
from ha.core.errors import LinkError
from ha.core.federation.agent import LinkAgent, Opener
from ha.core.federation.intake import Intake
from ha.core.federation.ports import LinkWire, TakerModel
from ha.core.federation.telling import Telling
from ha.core.federation.wire import FeederFrame, LinkMethod, Open, Refusal, parse_opened
from ha.core.wire.link import StreamDecoder


class LinkTaker(LinkAgent):
    """See the module. `limits`: arguments of the link queue there; `members`: ids of the brokers of
    this node; `drops`: nothing is kept there while this broker is not connected; `ends`: nothing is wanted
    but what waits there already."""

    def __init__(
        self, stream: int, exchange: str, model: TakerModel, wire: LinkWire, me: Opener, *,
        members: tuple[str, ...], limits: dict[str, int], drops: bool, ends: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(stream, exchange, wire, me)
        self._model = model
        self._intake = Intake(model)
        self._members = members
        self._limits = limits
        self._drops = drops
        self._ends = ends
        self.drained = False
        """It was to end, and nothing is left."""
        self._decoder = StreamDecoder(FeederFrame)
        self._telling = Telling(model, self._send)

    def type(self) -> str:
        return self._model.type()

    @property
    def whole(self) -> bool:
        return self._telling.whole

    def _all_told(self) -> int | None:
        return self._telling.told() if self._peer is not None else None

    def _knows(self, number: int) -> bool:
        return self._telling.knows(number)

    @property
    def taken(self) -> int:
        """Messages."""
        return self._intake.taken

    @property
    def doubles(self) -> int:
        """Messages that came again, and were left out."""
        return self._intake.doubles

    # -- the link

    def _question(self) -> tuple[LinkMethod, bytes]:
        me = self._me
        uuid = self._model.source_queue()
        taken = self._model.settled(uuid)
        asked = Open(
            me.node, me.owner, me.name, me.epoch, self.exchange, self._model.type(), me.agent, self._members,
            self._limits, self._drops, self._ends, uuid.hex(), *taken, me.addresses,
        )  # fmt: skip
        return LinkMethod.OPEN, asked.encode()

    def _answered(self, method: int, payload: bytes) -> tuple[str, str]:
        if method != LinkMethod.OPENED:
            raise LinkError("an offer is accepted, and nothing was offered")
        answer = parse_opened(payload)
        return answer.node, answer.name

    def _begin(self, method: int, payload: bytes) -> None:
        answer = parse_opened(payload)
        self._decoder = StreamDecoder(FeederFrame)
        uuid = bytes.fromhex(answer.uuid)
        self._model.noted(uuid)
        self._intake.begin(uuid, answer.node, answer.owner, offers=answer.offers)
        self._telling.begin(answer.node, answer.digest)

    def _data(self, payload: bytes) -> None:
        for kind, body in self._decoder.feed(payload):
            if not self._intake.frame(kind, body):
                self._telling.confirmed(body)

    def timers(self, now: float) -> None:
        super().timers(now)
        self._intake.tick(now)

    def next_deadline(self) -> float | None:
        return earliest(super().next_deadline(), self._intake.next_deadline())

    @property
    def stands_by(self) -> frozenset[str]:
        """The nodes whose messages come by another way."""
        return self._intake.stands_by

    def _stopped(self, peer: int, said: Refusal, now: float) -> None:
        super()._stopped(peer, said, now)
        if said.delete and self._ends:
            self._intake.forget()
            self.drained = True

    def _left(self) -> None:
        self._intake.end()
        self._telling.end()

    @property
    def hungry(self) -> bool:
        return self._peer is not None and self._telling.hungry

    # -- what it says

    def end_tick(self, *, full: str = "") -> None:
        """After the flush. `full`: why this broker can take no more for now: it says nothing of what it has
        taken, so that no more than a window comes."""
        if self._peer is None:
            return
        if not full and (word := self._intake.word()):
            self._send(word)
        if word := self._intake.withheld():
            self._send(word)
        self._telling.end_tick(self.upstream)

    @property
    def interest(self) -> int:
        """Bindings that the broker upstream knows of."""
        return len(self._telling.known)
