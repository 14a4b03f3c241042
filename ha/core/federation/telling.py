"""Telling: what an exchange here wants of the node at the other end of a link, told as differences.

Owner: LinkTaker, or LinkReceivers. Makes calls on TakerModel. Each tick tells a share, so that 40,000
bindings keep no tick long. What the other node has not confirmed is bounded, too: it applies a share each
tick, as `Heeding` says.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

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

SLICE = 500
"""Wishes that one tick looks at."""
PART = LARGEST_INTEREST // 4
"""About how many octets of interest go into one frame."""
WINDOW = LARGEST_INTEREST
"""Octets told and not yet confirmed, above which nothing more is told."""


class Stage(enum.Enum):
    """What a tick does."""

    NONE = "none"
    """There is no link."""
    LEARN = "learn"
    """Look at all that is wanted, to compare it with what the other node has."""
    WHOLE = "whole"
    """Tell all of it."""
    CHANGES = "changes"
    """Tell what has changed since."""


class Telling:
    """`send`: sends pieces of the stream. `known`: what the other node was told, or is to be."""

    def __init__(self, model: TakerModel, send: Callable[[list[bytes]], None]) -> None:
        self._model = model
        self._send = send
        self.known: dict[Wish, list[Bind]] = {}
        self._marks = 0
        """The sum of its marks."""
        self._node = ""
        """Whom `known` is for; "" if it is not all that is wanted."""
        self._digest = ""
        """What the other node had when the link was opened."""
        self._stage = Stage.NONE
        self._wanted: Iterator[tuple[Wish, list[Bind]]] = iter(())
        """LEARN: what was not looked at yet."""
        self._rest: Iterator[Bind] = iter(())
        """WHOLE: what was not told yet."""
        self._serial = self._confirmed = 0
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """Serial and octets of each frame."""
        self._octets = 0

    @property
    def whole(self) -> bool:
        """Messages come by all that was told."""
        return self._stage is Stage.CHANGES and self._confirmed == self._serial

    def told(self) -> int | None:
        """The serial of the last frame, if all that is wanted now was told with it."""
        return self._serial if self._stage is Stage.CHANGES and not self._model.changed else None

    def knows(self, serial: int) -> bool:
        """Messages come by what was told up to there, by this link."""
        return self._stage is Stage.CHANGES and self._confirmed >= serial

    @property
    def hungry(self) -> bool:
        """There is more to tell, and room for it: another tick is wanted at once."""
        if self._stage is Stage.CHANGES:
            return self._has_room and self._model.changed
        return self._stage is Stage.LEARN or (self._stage is Stage.WHOLE and self._has_room)

    @property
    def _has_room(self) -> bool:
        return self._octets < WINDOW

    def begin(self, node: str, digest: str) -> None:
        """A link is open to that node, which has the interest with that digest."""
        self._confirmed, self._octets = self._serial, 0
        self._unconfirmed.clear()
        self._digest = digest
        if self._node == node and digest_of(self._marks) == digest:
            self._stage = Stage.CHANGES
        else:
            self._learn(node)

    def end(self) -> None:
        """The link is not open any more. What was told counts when the other node has the digest of it."""
        self._stage = Stage.NONE

    def confirmed(self, body: bytes) -> None:
        """The frame that says that messages are routed by what was told. LinkError if it cannot be right."""
        serial, rest = parse_serial(body)
        if rest or not self._confirmed <= serial <= self._serial:
            raise LinkError(f"interest {serial} is confirmed, and {self._serial} was told")
        self._confirmed = serial
        while self._unconfirmed and self._unconfirmed[0][0] <= serial:
            self._octets -= self._unconfirmed.popleft()[1]

    def end_tick(self, node: str) -> None:
        """Tell that node a share of what it does not know yet."""
        if self._stage is Stage.LEARN:
            self._look(node)
        elif self._stage is Stage.WHOLE and self._has_room:
            self._tell_whole(InterestFlag(0))
        elif self._stage is Stage.CHANGES and self._has_room and self._model.changed:
            self._tell_changes(node)

    # -- all of it

    def _learn(self, node: str) -> None:
        self._stage, self._node = Stage.LEARN, ""
        self.known, self._marks = {}, 0
        self._wanted = self._model.wanted(node)

    def _look(self, node: str) -> None:
        for looked, (wish, binds) in enumerate(self._wanted, start=1):
            if binds:
                self.known[wish] = binds
                for bind in binds:
                    self._marks += self._model.mark(wish, bind)
            if looked >= SLICE:
                return
        self._node = node
        if digest_of(self._marks) == self._digest:
            self._stage = Stage.CHANGES
            return
        self._stage, self._rest = Stage.WHOLE, chain.from_iterable(list(self.known.values()))
        self._tell_whole(InterestFlag.FIRST)

    def _tell_whole(self, flags: InterestFlag) -> None:
        told: list[bytes] = []
        size = 0
        for bind in self._rest:
            record = self._model.encode(bind)
            told.append(record)
            size += len(record)
            if len(told) >= SLICE or size >= PART:
                self._tell(told, flags)
                return
        self._stage = Stage.CHANGES
        self._tell(told, flags | InterestFlag.LAST)

    # -- differences

    def _tell_changes(self, node: str) -> None:
        """What is new comes before what ends, so that a wish that comes by another path is never without."""
        if self._model.overrun:
            self._digest = digest_of(self._marks)
            self._learn(node)
            return
        new: list[bytes] = []
        gone: list[bytes] = []
        size = looked = 0
        while self._model.changed and looked < SLICE and size < PART:
            looked += 1
            wish, wanted = self._model.next_change(node)
            known = self.known.pop(wish, [])
            if wanted:
                self.known[wish] = wanted
            for bind in known:
                if bind not in wanted:
                    gone.append(self._model.encode(_unbind(bind)))
                    size += len(gone[-1])
                    self._marks -= self._model.mark(wish, bind)
            for bind in wanted:
                if bind not in known:
                    new.append(self._model.encode(bind))
                    size += len(new[-1])
                    self._marks += self._model.mark(wish, bind)
        if new or gone:
            self._tell(new + gone, InterestFlag(0))

    def _tell(self, records: list[bytes], flags: InterestFlag) -> None:
        self._serial += 1
        parts = [interest_head(self._serial, flags), *records]
        size = sum(map(len, parts))
        self._unconfirmed.append((self._serial, size))
        self._octets += size
        self._send(frame(TakerFrame.INTEREST, parts))


def _unbind(bind: Bind) -> Unbind:
    return Unbind(bind.source, bind.queue, bind.target, bind.routing_key, bind.arguments, vhost=bind.vhost)
