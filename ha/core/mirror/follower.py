"""MirrorFollower: the follower's end of a queue mirror: one queue that follows a queue of another broker.

Owner: the adapter. Makes calls on MirrorModel and MirrorWire. After Qpid's QueueReplicator between standalone
brokers, but the source may be a pair: it connects to all its addresses, and asks each until one of them
serves the queue. It compares what it holds with what the source holds, by replication id. These ids are the
same before and after a failover of the source. So nothing comes twice, only missing messages are fetched, and
messages that have left meanwhile are dropped.
"""

from __future__ import annotations

import enum

from ha.core.backup.queue_replicator import BEYOND_ALL, NOTHING
from ha.core.errors import LinkError
from ha.core.mirror.ports import MirrorModel, MirrorWire
from ha.core.mirror.wire import (
    MirrorFrame,
    MirrorMethod,
    Question,
    SourceAnswer,
    encode_number,
    parse_answer,
    parse_end,
    parse_number,
)
from ha.core.wire.link import StreamDecoder
from ha.core.wire.queue_snapshot import decode_piece, encode_ids
from ha.core.wire.replicating_subscription import BEFORE_ALL

ASK_EVERY = 0.5
"""Seconds between two questions to one that does not serve the queue."""


class MirrorState(enum.Enum):
    """The state that an operator sees."""

    CONNECTING = "connecting"
    GONE = "source gone"
    """The source serves, and has no such queue any more. The mirror stays; should that very queue be there
    again, it is followed again."""
    CATCHING_UP = "catching up"
    FOLLOWING = "following"


class MirrorFollower:
    """See the module. Time is passed in, in seconds."""

    def __init__(
        self, queue: str, model: MirrorModel, wire: MirrorWire, *, node_id: str, name: str, cluster_id: str
    ) -> None:
        """`queue`: its name at the source. All else concerns this broker."""
        self.queue = queue
        self._model = model
        self._wire = wire
        self._me = (node_id, name, cluster_id)
        self.state = MirrorState.CONNECTING
        self.error = ""
        """Why it does not follow, as last heard."""
        self.heard: dict[str, str] = {}
        """The last thing that each address had against it."""
        self._open: dict[int, str] = {}
        self._peer: int | None = None
        self.source = ""
        """Name and address of the broker that is followed."""
        self._next_ask = 0.0
        self._decoder = StreamDecoder(MirrorFrame)
        self._at = BEFORE_ALL
        self._acked = 0
        self._total: int | None = None
        self._uuid = b""
        self._newest = 0
        """The latest epoch in which a source was followed."""
        self._full = ""

    # -- what an operator is told

    @property
    def lag(self) -> int | None:
        """Messages that the source held beyond this broker, when it last said. None: it has not yet."""
        return None if self._total is None else max(0, self._total - self._model.count())

    # -- connections

    def opened(self, peer: int, address: str, now: float) -> None:
        """The login at that address succeeded."""
        self._open[peer] = address
        if self._peer is None:
            self._ask(peer)

    def failed(self, address: str, reason: str) -> None:
        """The login at that address failed."""
        self._against(address, reason)

    def lost(self, peer: int, now: float) -> None:
        """A connection is gone."""
        address = self._open.pop(peer, "")
        if peer == self._peer:
            self._leave(f"the connection to {address} is lost", now)
            self.heard[address] = "the connection is lost"

    def timers(self, now: float) -> None:
        if self._peer is None and self._open and now >= self._next_ask:
            self._next_ask = now + ASK_EVERY
            for peer in self._open:
                self._ask(peer)

    def next_deadline(self) -> float | None:
        return self._next_ask if self._peer is None and self._open else None

    def _ask(self, peer: int) -> None:
        if self._full:
            self.error = f"this broker takes no more for now: {self._full}"
            return
        uuid = self._model.uuid
        question = Question(self.queue, uuid.hex() if uuid is not None else "", *self._me)
        self._wire.send(peer, MirrorMethod.ASK, question.encode())

    # -- what they say

    def method(self, peer: int, method: int, payload: bytes, now: float) -> None:
        """One method of a source. One that cannot be right costs that connection."""
        try:
            if method == MirrorMethod.ANSWER:
                self._answered(peer, parse_answer(payload), now)
            elif peer != self._peer:
                return  # late
            elif method == MirrorMethod.DATA:
                for kind, body in self._decoder.feed(payload):
                    self._frame(kind, body)
            elif method == MirrorMethod.ENDED:
                self._leave(f"{self.source}: {parse_end(payload)}", now)
            else:
                raise LinkError(f"method {method} from a source")
        except LinkError as error:
            if peer == self._peer:
                self._leave(f"{self.source}: {error}", now)
            elif peer in self._open:
                self._against(self._open[peer], str(error))
            self._wire.close(peer, error.code, f"FRAME_ERROR - {error}")

    def _answered(self, peer: int, answer: SourceAnswer, now: float) -> None:
        address = self._open.get(peer)
        if self._peer is not None or address is None:
            return
        newest = self._newest = max(self._newest, self._model.newest_epoch)
        if answer.ok and answer.epoch < newest:
            reason = f"{answer.name} serves in epoch {answer.epoch}, but epoch {newest} was followed already"
            answer = SourceAnswer(False, reason, answer.name)
        if not answer.ok:
            self.state = MirrorState.GONE if answer.gone and self._model.uuid is not None else self.state
            self._against(address, f"{answer.name}: {answer.reason}")
            return
        self._peer, self.source = peer, f"{answer.name} at {address}"
        self.state, self.error = MirrorState.CATCHING_UP, ""
        self.heard.clear()
        self._decoder, self._at, self._acked, self._total = StreamDecoder(MirrorFrame), BEFORE_ALL, 0, None
        self._uuid, self._newest = bytes.fromhex(answer.uuid), answer.epoch
        if answer.wall_ms:
            self._model.dated_by(answer.wall_ms, now)
        self._wire.send_pieces(peer, MirrorMethod.HAVE, [encode_ids(self._model.held())])
        self._wire.send(peer, MirrorMethod.GO, self._uuid)

    def _frame(self, kind: MirrorFrame, body: bytes) -> None:
        if kind is MirrorFrame.DECLARED:
            self._model.declare(self._uuid, body)
        elif self._model.uuid is None:
            raise LinkError("messages of a queue that is not declared")
        elif kind is MirrorFrame.PIECE:
            upto, ids, records = decode_piece(body)
            lowest = min(((epoch, some.lowest) for epoch, some in ids.items()), default=upto)
            highest = max(((epoch, some.highest) for epoch, some in ids.items()), default=upto)
            if not self._at < lowest <= highest <= upto:
                raise LinkError(f"a piece up to {upto} after {self._at} with {lowest} to {highest}")
            self._model.take_piece(self._at, upto, ids, records)
            self._at = upto
        elif kind is MirrorFrame.LEFT:
            self._model.leave(body)
        elif kind is MirrorFrame.WHOLE:
            self._model.take_piece(self._at, BEYOND_ALL, NOTHING, b"")
            self.state = MirrorState.FOLLOWING
        else:
            self._total = parse_number(body)

    def end_tick(self, *, full: str = "") -> None:
        """Tell the source how much was taken. `full`: why this broker can take no more for now. The source
        then sends a window at most, and is not asked again: each connection has a window of its own."""
        self._full = full
        if self._peer is not None and not full and self._decoder.received != self._acked:
            self._acked = self._decoder.received
            self._wire.send(self._peer, MirrorMethod.ACK, encode_number(self._acked))

    def _against(self, address: str, reason: str) -> None:
        self.heard[address] = reason
        if self._peer is None:
            self.error = "; ".join(f"{where}: {what}" for where, what in sorted(self.heard.items()))

    def _leave(self, reason: str, now: float) -> None:
        self._peer, self.source, self._total = None, "", None
        self.state, self.error = MirrorState.CONNECTING, reason
        self._next_ask = now + ASK_EVERY
