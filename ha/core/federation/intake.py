"""Intake: the messages of one link as they come, each once.

Owner: LinkTaker, or LinkReceivers. Makes calls on IntakeModel. The ids of a link queue ascend, also over a
failover of its broker. So one id, the cursor, says what was taken, with holes for what was only
offered (`offers`). It is history here, in the batch of the messages themselves: a failover at either end
neither loses nor doubles any.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from broker.model.history.records import EnqueueRun, MessageId
from ha.core.errors import LinkError
from ha.core.federation.holes import MOST_HOLES, Hole, Holes
from ha.core.federation.offers import Offered, encode_withheld, parse_offers
from ha.core.federation.ports import IntakeModel
from ha.core.federation.ways import GRACE
from ha.core.federation.wire import FeederFrame, TakerFrame, encode_id, parse_serial
from ha.core.wire.link import frame

BEFORE_ALL: MessageId = (0, 0)


class RunRefused(Exception):
    """The other end may not publish a message: `str` says why. It waits there, and the link ends."""


@lru_cache(64)
def origin_epoch(owner: str, epoch: int) -> int:
    """A number for an epoch of that cluster, which no other cluster has: one that is made anew may have the
    same epochs, and the same name in the net."""
    return int.from_bytes(sha256(f"{owner} {epoch}".encode()).digest()[:7], "big")


class Intake:
    """`taken`: messages; `doubles`: those that came again, and were left out."""

    def __init__(self, model: IntakeModel) -> None:
        self._model = model
        self.taken = self.doubles = 0
        self._uuid = b""
        self._path: tuple[str, ...] = ()
        self._owner = ""
        self.at = self._told = BEFORE_ALL
        self._heard = BEFORE_ALL
        """The last id of this link, whether it came or was offered."""
        self._holes = Holes()
        self._offered: list[Offered] = []
        """Those of this link that have not come by any way, by ascending id."""
        self._arrivals = 0
        """Of the model, when these were looked at last."""
        self._since: dict[str, float] = {}
        """When the oldest of them was offered, by node."""
        self._noted: tuple[MessageId, tuple[Hole, ...]] = BEFORE_ALL, ()

    @property
    def fits(self) -> bool:
        """Its exchange is there."""
        return bool(self._model.type())

    def begin(self, uuid: bytes, upstream: str, owner: str, *, echo: bool = False, offers: bool) -> None:
        """A link is open. `upstream`, `owner`: the node that feeds, and the id of its cluster; with `echo`
        messages may go back there; `offers`: it can withhold messages."""
        self._uuid, self._path, self._owner = uuid, () if echo else (upstream,), owner
        self._noted = self._model.taken(uuid)
        self.at, holes = self._noted
        self._holes, self._offered = Holes(holes), []
        self._heard = self._told = BEFORE_ALL
        self._since.clear()
        self._model.begun(upstream)
        self._model.ways.opened(self._model.way, able=offers)

    def end(self) -> None:
        """The link is not open any more."""
        self._model.ways.closed(self._model.way)
        self._offered = []
        self._since.clear()

    # -- what comes

    def frame(self, kind: FeederFrame, body: bytes) -> bool:
        """A frame of the other end. Returns False if it is none of messages. LinkError if it cannot be
        right; RunRefused if what comes next may not be published."""
        if kind not in (FeederFrame.RUNS, FeederFrame.OFFERS):
            return False
        if not self._model.type():
            return True  # the exchange is gone, and so is the link soon: what was not taken comes again
        if kind is FeederFrame.RUNS:
            wall_ms, records = parse_serial(body)
            self._take_all(self._model.runs(records), wall_ms)
        else:
            offers, last = parse_offers(body)
            for offered in offers:
                self._hear(Hole(offered.epoch, offered.first, offered.last))
                self._offer(offered)
            if offers and last:
                self.at = max(self.at, self._heard)
        self._note()
        return True

    def _take_all(self, runs: list[EnqueueRun], wall_ms: int) -> None:
        try:
            for run in runs:
                self._model.check(run)
                self._take(run, wall_ms)
        except RunRefused:
            self._note()  # of those before it
            raise

    def _hear(self, ids: Hole) -> None:
        """They come, or are offered. Ids of one link ascend, but for what was offered: so what lies between
        is in its queue no more."""
        begin = ids.epoch, ids.first
        if begin > self._heard:
            if self._holes:
                self._holes.cut_between(self._heard, begin)
            self._heard = ids.epoch, ids.last

    def _offer(self, offered: Offered) -> None:
        ids = Hole(offered.epoch, offered.first, offered.last)
        cut = self._holes.cut(ids)
        if (ids.epoch, ids.last) > self.at:
            first = self.at[1] + 1 if self.at >= (ids.epoch, ids.first) else ids.first
            cut.append(Hole(ids.epoch, first, ids.last))
        for hole in cut:
            part = offered.part(hole.first - ids.first, hole.last - ids.first + 1)
            self._wait(part)
        if len(self._holes) > MOST_HOLES:
            raise LinkError(f"more than {MOST_HOLES} ranges are offered")

    def _wait(self, offered: Offered) -> None:
        """For what of it has not come by any way."""
        at = 0
        for begin, end in [*self._missing(offered), (offered.messages, offered.messages)]:
            if begin > at:
                self.doubles += begin - at
                self._model.leave_out(self._uuid, (offered.epoch, offered.first + at), begin - at)
            if end > begin:
                part = offered.part(begin, end)
                self._holes.add(Hole(part.epoch, part.first, part.last))
                self._offered.append(part)
            at = end

    def _missing(self, offered: Offered) -> list[tuple[int, int]]:
        epoch, first = offered.origin_epoch, offered.origin_first
        return self._model.missing(offered.node, (epoch, first), offered.messages)

    def _take(self, run: EnqueueRun, wall_ms: int) -> None:
        if len(run.firsts) != 1 or not run.count:
            raise LinkError("messages of no link queue")
        epoch, first = run.envelope.epoch, run.firsts[0]
        last = first + run.count - 1
        ids = Hole(epoch, first, last)
        self._hear(ids)
        if self._holes.cut(ids):
            skip = 0  # what has come of it is left out by its ids at its node
        elif (epoch, last) <= self.at:
            self.doubles += run.count
            return
        else:
            skip = self.at[1] - first + 1 if self.at >= (epoch, first) else 0
        self.doubles += skip
        self.taken += run.count - skip
        path, origin = (*run.envelope.path, *self._path), self._origin(run, first + skip)
        self._model.take(path, run, skip, origin, wall_ms)
        self.at = max(self.at, (epoch, last))

    def _origin(self, run: EnqueueRun, sequence: int) -> MessageId | None:
        """The id of that message at the node at which it was published."""
        envelope = run.envelope
        if not envelope.path:
            return origin_epoch(self._owner, envelope.epoch), sequence
        return (envelope.origin[0], envelope.origin[1] + sequence) if envelope.origin is not None else None

    def _note(self) -> None:
        """In the batch of what has come: it is taken."""
        at = self.at, self._holes.up_to(self.at)
        if at != self._noted:
            self._noted = at
            self._model.took(self._uuid, *at)

    def forget(self) -> None:
        """The link is gone for good, and its cursor with it."""
        self._model.forget()

    # -- offers

    def tick(self, now: float) -> None:
        """Before the flush: what was offered may have come by another way, or should have."""
        if not self._offered and not self._since:
            return
        if self._arrivals != self._model.arrivals:
            self._arrivals = self._model.arrivals
            self._look_again()
        nodes = {offered.node for offered in self._offered}
        self._since = {node: self._since.get(node, now) for node in nodes}
        ways, way = self._model.ways, self._model.way
        stands_by = ways.stands_by(way)
        for node, since in self._since.items():
            if node in stands_by and now >= since + GRACE:
                ways.late(way, node)

    def _look_again(self) -> None:
        waits, self._offered = self._offered, []
        for offered in waits:
            ids = Hole(offered.epoch, offered.first, offered.last)
            for hole in self._holes.cut(ids):
                self._wait(offered.part(hole.first - ids.first, hole.last - ids.first + 1))
        self._note()

    def next_deadline(self) -> float | None:
        stands_by = self._model.ways.stands_by(self._model.way) if self._since else frozenset()
        return min((since + GRACE for node, since in self._since.items() if node in stands_by), default=None)

    # -- what it says

    @property
    def stands_by(self) -> frozenset[str]:
        """The nodes whose messages come by another way."""
        return self._model.ways.stands_by(self._model.way)

    def word(self) -> list[bytes]:
        """The frame that says up to where messages are taken for good; empty if there is nothing new."""
        settled = self._model.settled(self._uuid)
        if settled <= self._told:
            return []
        self._told = settled
        return frame(TakerFrame.TOOK, [encode_id(settled)])

    def withheld(self) -> list[bytes]:
        """The frame that says for which nodes this way stands by; empty if there is nothing new."""
        nodes = self._model.ways.change(self._model.way)
        return [] if nodes is None else frame(TakerFrame.WITHHOLD, [encode_withheld(nodes)])
