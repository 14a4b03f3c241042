"""Telling: what an exchange here wants of the node at the other end of a link, told as differences.

Owner: LinkTaker, or LinkReceivers. Makes calls on TakerModel.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.model.history.records import Bind, Unbind
from ha.core.errors import LinkError
from ha.core.federation.ports import TakerModel, Wish
from ha.core.federation.wire import (
    LARGEST_INTEREST,
    InterestFlag,
    TakerFrame,
    digest_of,
    interest_head,
    parse_serial,
)
from ha.core.wire.link import frame

PART = LARGEST_INTEREST // 4
"""About how many octets of interest go into one frame."""


class Telling:
    """`send`: sends pieces of the stream. `known`: what the other node was told."""

    def __init__(self, model: TakerModel, send: Callable[[list[bytes]], None]) -> None:
        self._model = model
        self._send = send
        self.known: dict[Wish, Bind] = {}
        self._marks = 0
        """The sum of its marks."""
        self._serial = self._confirmed = 0

    @property
    def whole(self) -> bool:
        """Messages come by all that was told."""
        return self._confirmed == self._serial

    def begin(self, node: str, digest: str) -> None:
        """A link is open to that node, which has the interest with that digest."""
        wanted = self._model.wanted(node)
        marks = sum(self._model.mark(wish, bind) for wish, bind in wanted.items())
        if digest_of(marks) == digest:
            self._confirmed = self._serial
        elif digest_of(self._marks) == digest:
            known = self.known
            gone = [bind for wish, bind in known.items() if wanted.get(wish) != bind]
            self._tell_difference(
                [bind for wish, bind in wanted.items() if known.get(wish) != bind], gone
            )  # fmt: skip
        else:
            self._tell([*wanted.values()], InterestFlag.FIRST | InterestFlag.LAST)
        self.known, self._marks = dict(wanted), marks

    def confirmed(self, body: bytes) -> None:
        """The frame that says that messages are routed by what was told. LinkError if it cannot be right."""
        serial, rest = parse_serial(body)
        if rest or not self._confirmed <= serial <= self._serial:
            raise LinkError(f"interest {serial} is confirmed, and {self._serial} was told")
        self._confirmed = serial

    def end_tick(self, node: str) -> None:
        """Tell that node what has changed."""
        changes = self._model.changes(node)
        if not changes:
            return
        new: list[Bind] = []
        gone: list[Bind] = []
        for wish, bind in changes.items():
            known = self.known.get(wish)
            if known == bind:
                continue
            if known is not None:
                gone.append(known)
                self._marks -= self._model.mark(wish, known)
                del self.known[wish]
            if bind is not None:
                new.append(bind)
                self._marks += self._model.mark(wish, bind)
                self.known[wish] = bind
        if new or gone:
            self._tell_difference(new, gone)

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
