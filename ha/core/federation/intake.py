"""Intake: the messages of one link as they come, each once.

Owner: LinkTaker, or LinkReceivers. Makes calls on IntakeModel. The ids of a link queue ascend, also over a
failover of its broker. So one id, the cursor, says what was taken. It is history here, in the batch of the
messages themselves: a failover at either end neither loses nor doubles any.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from broker.model.history.records import EnqueueRun, MessageId
from ha.core.errors import LinkError
from ha.core.federation.ports import IntakeModel
from ha.core.federation.wire import TakerFrame, encode_id, parse_serial
from ha.core.wire.link import frame

BEFORE_ALL: MessageId = (0, 0)


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

    @property
    def fits(self) -> bool:
        """Its exchange is there."""
        return bool(self._model.type())

    def begin(self, uuid: bytes, upstream: str, owner: str, *, echo: bool = False) -> None:
        """A link is open. `upstream`, `owner`: the node that feeds, and the id of its cluster; with `echo`
        messages may go back there."""
        self._uuid, self._path, self._owner = uuid, () if echo else (upstream,), owner
        self.at, self._told = self._model.taken(uuid), BEFORE_ALL
        self._model.begun(upstream)

    def runs(self, body: bytes) -> None:
        """A frame of messages. LinkError if it cannot be right."""
        if not self._model.type():
            return  # the exchange is gone, and so is the link soon: what was not taken comes again
        wall_ms, records = parse_serial(body)
        before = self.at
        for run in self._model.runs(records):
            self._take(run, wall_ms)
        if self.at > before:
            self._model.took(self._uuid, self.at)

    def _take(self, run: EnqueueRun, wall_ms: int) -> None:
        if len(run.firsts) != 1 or not run.count:
            raise LinkError("messages of no link queue")
        epoch, first = run.envelope.epoch, run.firsts[0]
        last = first + run.count - 1
        if (epoch, last) <= self.at:
            self.doubles += run.count
            return
        skip = self.at[1] - first + 1 if self.at >= (epoch, first) else 0
        self.doubles += skip
        self.taken += run.count - skip
        path, origin = (*run.envelope.path, *self._path), self._origin(run, first + skip)
        self._model.take(path, run, skip, origin, wall_ms)
        self.at = epoch, last

    def _origin(self, run: EnqueueRun, sequence: int) -> MessageId | None:
        """The id of that message at the node at which it was published."""
        envelope = run.envelope
        if not envelope.path:
            return origin_epoch(self._owner, envelope.epoch), sequence
        return (envelope.origin[0], envelope.origin[1] + sequence) if envelope.origin is not None else None

    def forget(self) -> None:
        """The link is gone for good, and its cursor with it."""
        self._model.forget()

    def word(self) -> list[bytes]:
        """The frame that says up to where messages are taken for good; empty if there is nothing new."""
        settled = self._model.settled(self._uuid)
        if settled <= self._told:
            return []
        self._told = settled
        return frame(TakerFrame.TOOK, [encode_id(settled)])
