"""PlainGiver: an exchange here gives its messages to the exchange of that name at a plain AMQP 0-9-1 broker.

Owner: the adapter, one for each agent that forwards. Makes calls on PlainGiverModel and PlainWire. It
publishes with confirms, and lets go of what is confirmed. What the broker there refuses is counted, and never
sent again.
"""

from __future__ import annotations

from collections import deque

from broker.model.history.records import MessageId
from ha.core.errors import LinkError
from ha.core.federation.plain.agent import ACCESS_REFUSED, NOT_FOUND, PlainAgent
from ha.core.federation.plain.ports import Given, PlainGiverModel, PlainWire

WINDOW = 4000
"""Messages that are published and not confirmed."""
NO_CONFIRMS = "it has no publisher confirms, which an agent that gives needs"
CONNECTION_FORCED = 320


class PlainGiver(PlainAgent):
    """`given`: messages that the broker there has confirmed; `refused`: those that it refused; `spoilt`:
    those that cost the channel, or of which nothing could be made."""

    def __init__(
        self, stream: int, exchange: str, model: PlainGiverModel, wire: PlainWire, *, node: str,
        paused: bool,
    ) -> None:  # fmt: skip
        super().__init__(stream, exchange, wire, node=node, paused=paused)
        self._model = model
        self._waiting: deque[Given] = deque()
        self._out: deque[tuple[int, MessageId]] = deque()
        """Delivery tags that are not confirmed."""
        self._confirmed: set[int] = set()
        """Tags in `_out` after one that is not."""
        self._tag = 0
        self._careful = 0
        """So many messages go one by one: one of them has cost the channel."""
        self.given = self.refused = self.spoilt = 0

    def type(self) -> str:
        return self._model.type()

    # -- the link

    def _unfit(self) -> str:
        return "" if self._server.confirms else NO_CONFIRMS

    def _ready(self) -> None:
        self._call("confirm.select")

    def _step(self, name: str, arguments: dict[str, object]) -> None:
        self._tag = 0
        self._runs()
        self._model.attach(self.upstream)

    def _told(self, name: str, arguments: dict[str, object]) -> str:
        tag = arguments.get("delivery_tag")
        if name in ("basic.ack", "basic.nack") and isinstance(tag, int):
            self._settle(tag, arguments.get("multiple") is True, name == "basic.nack")
        return ""

    def _faulted(self, code: int, text: str, failed: tuple[int, int]) -> str:
        if self._peer is not None and code != NOT_FOUND and code != ACCESS_REFUSED:
            self._suspect()
        return text

    def lost(self, peer: int, now: float, refusal: str = "") -> None:
        if peer == self._peer and refusal and not refusal.startswith(str(CONNECTION_FORCED)):
            self._suspect()
        super().lost(peer, now, refusal)

    def _suspect(self) -> None:
        """One of those that are not confirmed costs the channel. They go one by one from now on, so that it
        is found; that one is let go of."""
        if self._careful and len(self._out) == 1:
            self.spoilt += 1
            self._careful -= 1
            self._model.took(self._out[0][1])
        else:
            self._careful = max(self._careful, len(self._out))

    def _left(self) -> None:
        self._waiting.clear()
        self._out.clear()
        self._confirmed.clear()
        self._model.detach()

    def _forget(self) -> None:
        """Its queue is here."""

    # -- messages

    def end_tick(self, now: float) -> None:
        """After the flush: what the link queue has handed out goes."""
        if self._peer is None:
            return
        if why := self._model.ended():
            self.stop(why, now)
            return
        self._waiting += self._model.next()
        while self._waiting and len(self._out) < (1 if self._careful else WINDOW):
            self._give(self._peer, self._waiting.popleft())

    def _give(self, peer: int, message: Given) -> None:
        self._tag += 1
        self._out.append((self._tag, message.id))
        if message.raw:
            self._wire.publish(peer, self.stream, self.exchange, message)
            return
        self._tag -= 1
        self.spoilt += 1
        self._out[-1] = (0, message.id)
        self._let_go()

    def _settle(self, tag: int, multiple: bool, refused: bool) -> None:
        if not 0 <= tag <= self._tag:
            raise LinkError(f"message {tag} is confirmed, and {self._tag} were published")
        new = 0
        last: MessageId | None = None
        if multiple:
            while self._out and self._out[0][0] <= (tag or self._tag):
                number, last = self._out.popleft()
                new += number > 0 and number not in self._confirmed
                self._confirmed.discard(number)
        elif self._out and tag >= self._out[0][0] and tag not in self._confirmed:
            self._confirmed.add(tag)
            new = 1
        self._careful = max(0, self._careful - new)
        if refused:
            self.refused += new
        else:
            self.given += new
        self._let_go(last)

    def _let_go(self, upto: MessageId | None = None) -> None:
        """Of the oldest ones, up to the first that is not confirmed."""
        while self._out and (self._out[0][0] == 0 or self._out[0][0] in self._confirmed):
            tag, upto = self._out.popleft()
            self._confirmed.discard(tag)
        if upto is not None:
            self._model.took(upto)
