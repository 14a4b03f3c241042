"""LinkTaker: an exchange here takes from the exchange of that name upstream what it is bound for.

Owner: the adapter, one for each agent. Makes calls on TakerModel and LinkWire. It says what is wanted, as
differences, and how far it has taken (`Intake`).
"""

from __future__ import annotations

from broker.model.history.records import Bind, Unbind
from ha.core.errors import LinkError
from ha.core.federation.agent import LinkAgent
from ha.core.federation.intake import Intake
from ha.core.federation.ports import LinkWire, TakerModel, Wish
from ha.core.federation.wire import (
    LARGEST_INTEREST,
    FeederFrame,
    InterestFlag,
    LinkMethod,
    Open,
    TakerFrame,
    digest_of,
    interest_head,
    parse_opened,
    parse_serial,
)
from ha.core.wire.link import StreamDecoder, frame

PART = LARGEST_INTEREST // 4
"""About how many octets of interest go into one frame."""


class LinkTaker(LinkAgent):
    """See the module. `limits`: arguments of the link queue there; `members`: ids of the brokers of
    this node; `drops`: nothing is kept there while this broker is not connected."""

    def __init__(
        self, stream: int, exchange: str, model: TakerModel, wire: LinkWire, *, agent: str,
        node: str, owner: str, name: str, epoch: int, members: tuple[str, ...], limits: dict[str, int],
        drops: bool, paused: bool,
    ) -> None:  # fmt: skip
        super().__init__(
            stream, exchange, wire, agent=agent, node=node, owner=owner, name=name, epoch=epoch,
            paused=paused,
        )  # fmt: skip
        self._model = model
        self._intake = Intake(model)
        self._members = members
        self._limits = limits
        self._drops = drops
        self._decoder = StreamDecoder(FeederFrame)
        self._known: dict[Wish, Bind] = {}
        """What the broker upstream was told."""
        self._marks = 0
        """The sum of its marks."""
        self._serial = self._confirmed = 0

    def type(self) -> str:
        return self._model.type()

    @property
    def whole(self) -> bool:
        return self._confirmed == self._serial

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
        node, owner, name, epoch = self._me
        uuid = self._model.source_queue()
        taken = self._model.settled(uuid)
        asked = Open(
            node, owner, name, epoch, self.exchange, self._model.type(), self.agent, self._members,
            self._limits, self._drops, uuid.hex(), *taken,
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
        self._intake.begin(bytes.fromhex(answer.uuid), answer.node)
        wanted = self._model.wanted(answer.node)
        marks = sum(self._model.mark(wish, bind) for wish, bind in wanted.items())
        if digest_of(marks) == answer.digest:
            self._confirmed = self._serial
        elif digest_of(self._marks) == answer.digest:
            known = self._known
            gone = [bind for wish, bind in known.items() if wanted.get(wish) != bind]
            self._tell_difference(
                [bind for wish, bind in wanted.items() if known.get(wish) != bind], gone
            )  # fmt: skip
        else:
            self._tell([*wanted.values()], InterestFlag.FIRST | InterestFlag.LAST)
        self._known, self._marks = dict(wanted), marks

    def _data(self, payload: bytes) -> None:
        for kind, body in self._decoder.feed(payload):
            if kind is FeederFrame.RUNS:
                self._intake.runs(body)
                continue
            serial, rest = parse_serial(body)
            if rest or not self._confirmed <= serial <= self._serial:
                raise LinkError(f"interest {serial} is confirmed, and {self._serial} was told")
            self._confirmed = serial

    def _left(self) -> None:
        """What was told counts when the broker upstream has the digest of it."""

    # -- what it says

    def end_tick(self, *, full: str = "") -> None:
        """After the flush. `full`: why this broker can take no more for now: it says nothing of what it has
        taken, so that no more than a window comes."""
        if self._peer is None:
            return
        if not full and (word := self._intake.word()):
            self._send(word)
        changes = self._model.changes(self.upstream)
        if not changes:
            return
        new: list[Bind] = []
        gone: list[Bind] = []
        for wish, bind in changes.items():
            known = self._known.get(wish)
            if known == bind:
                continue
            if known is not None:
                gone.append(known)
                self._marks -= self._model.mark(wish, known)
                del self._known[wish]
            if bind is not None:
                new.append(bind)
                self._marks += self._model.mark(wish, bind)
                self._known[wish] = bind
        if new or gone:
            self._tell_difference(new, gone)

    @property
    def interest(self) -> int:
        """Bindings that the broker upstream knows of."""
        return len(self._known)

    def _tell_difference(self, new: list[Bind], gone: list[Bind]) -> None:
        """What is new comes before what ends, so that a wish that comes by another path is never without."""
        self._tell([*new, *map(_unbind, gone)], InterestFlag(0))

    def _tell(self, records: list[Bind | Unbind], flags: InterestFlag) -> None:
        """In as many frames as it takes."""
        parts: list[list[bytes]] = [[]]
        size = 0
        for record in self._model.encode(records):
            if parts[-1] and size + len(record) > PART:
                parts.append([])
                size = 0
            parts[-1].append(record)
            size += len(record)
        for at, part in enumerate(parts):
            first = flags & InterestFlag.FIRST if at == 0 else 0
            last = flags & InterestFlag.LAST if at == len(parts) - 1 else 0
            self._serial += 1
            head = interest_head(self._serial, InterestFlag(first | last))
            self._send(frame(TakerFrame.INTEREST, [head, *part]))


def _unbind(bind: Bind) -> Unbind:
    return Unbind(bind.source, bind.queue, bind.target, bind.routing_key, bind.arguments, vhost=bind.vhost)
