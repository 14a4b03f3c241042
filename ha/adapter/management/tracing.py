"""Shows an operator messages as they pass: what queues of a virtual host get, and what leaves them.

Role: a sink of history, which is registered only while somebody traces. So it costs nothing when it is off,
and the paths of messages do not know of it. Owner: Questions. All is bounded: tracers, events kept for each,
messages decoded in one tick, octets of a body. What does not fit is counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from broker.errors import AccessRefused
from broker.model.history.records import Dequeue, EnqueueRun
from broker.security.identity import ADMINISTRATOR
from ha.adapter import codes
from ha.adapter.management.operations.arguments import Arguments, Fault
from ha.adapter.management.operations.asker import tags_of
from ha.adapter.management.operations.messages import shown_message
from ha.adapter.management.serving import not_serving

if TYPE_CHECKING:
    from broker.engine import Broker
    from broker.model.history.batch import Batch
    from broker.model.queue.queue import Queue

KEPT = 1000
"""Events that wait for their tracer."""
DECODED = 50
"""Messages shown of one tick: some 20 us each."""
MOST = 4
"""Tracers at a time."""
PATIENCE = 10.0
"""Seconds after which a tracer that does not ask is gone."""
OCTETS = 256
"""Of a body, unless the tracer asks for another number."""
_MOST_OCTETS = 4096


class TracedNode(Protocol):
    """The node, as tracing uses it."""

    broker: Broker
    now: float

    @property
    def random_bytes(self) -> Callable[[int], bytes]: ...
    def status(self) -> dict[str, Any]: ...


class Tracing:
    """Implements `BatchSink` while there is a tracer."""

    def __init__(self, node: TracedNode) -> None:
        self._node = node
        self._tracers: dict[str, _Tracer] = {}
        self._wanted_before = False

    def ask(self, args: Mapping[str, Any], by: str | None) -> dict[str, Any]:
        """`vhost`, `octets`: begin. `session`: what has passed since the last question. `session` and `stop`:
        end. Answers with `session`, `events` and how many were `dropped`. For administrators."""
        broker = self._node.broker
        if (refusal := not_serving(broker.vhosts, self._node.status())) is not None:
            return refusal.answer()
        if not self._may(by):
            said = codes.OPERATION_REFUSED.say(fault=f"ACCESS_REFUSED - tracing refused for user '{by}'")
            return said.answer() | {"amqp": AccessRefused.code}
        asked = Arguments(args)
        try:
            session, stop = asked.text("session", ""), asked.flag("stop")
            vhost, octets = asked.vhost(), asked.number("octets", 0, _MOST_OCTETS, OCTETS)
            asked.end()
            if broker.vhosts.get(vhost) is None:
                raise Fault(f"no vhost '{vhost}'")
            found = self._tracers.get(session) if session else self._begin(vhost, octets)
            if found is None:
                raise Fault("no such session: it was not asked about for some time")
        except Fault as fault:
            return codes.BAD_ARGUMENTS.say(fault=fault).answer()
        found.asked_at = self._node.now
        if stop:
            self._end(found.session)
        return {"ok": True, "reason": "", "session": found.session, **found.take()}

    def _may(self, by: str | None) -> bool:
        try:
            return ADMINISTRATOR in tags_of(self._node.broker, by)
        except AccessRefused:
            return False

    def batch(self, batch: Batch) -> None:
        """Note what is in this tick's history."""
        for tracer in self._tracers.values():
            tracer.note(batch, self._node.broker.vhosts.queues_by_uuid)

    def end_tick(self) -> None:
        """Forget tracers that have not asked for some time. Not while history goes through its sinks."""
        for tracer in list(self._tracers.values()):
            if self._node.now - tracer.asked_at > PATIENCE:
                self._end(tracer.session)

    def _begin(self, vhost: str, octets: int) -> _Tracer:
        """Raises Fault."""
        if len(self._tracers) >= MOST:
            raise Fault(f"{MOST} others trace already")
        history = self._node.broker.history
        if not self._tracers:
            # History then has records of all queues, also of those that neither store nor backup sees.
            self._wanted_before, history.ledger_wanted = history.ledger_wanted, True
            history.sinks.append(self)
        session = self._node.random_bytes(16).hex()
        self._tracers[session] = _Tracer(session, vhost, octets, self._node.now)
        return self._tracers[session]

    def _end(self, session: str) -> None:
        del self._tracers[session]
        if not self._tracers:
            history = self._node.broker.history
            history.ledger_wanted = self._wanted_before
            history.sinks.remove(self)


class _Tracer:
    """One operator who looks on. `asked_at`: when he asked last."""

    def __init__(self, session: str, vhost: str, octets: int, now: float) -> None:
        self.session = session
        self.asked_at = now
        self._vhost = vhost
        self._octets = octets
        self._events: deque[dict[str, Any]] = deque()
        self._dropped = 0

    def take(self) -> dict[str, Any]:
        events, dropped = list(self._events), self._dropped
        self._events.clear()
        self._dropped = 0
        return {"events": events, "dropped": dropped}

    def note(self, batch: Batch, queues: Mapping[bytes, Queue]) -> None:
        room = DECODED
        for record in batch.records:
            if isinstance(record, EnqueueRun):
                names = [queue.name for uuid in record.queues if (queue := self._meant(queues.get(uuid)))]
                room -= self._enqueued(record, names, room) if names else 0
            elif isinstance(record, Dequeue) and (queue := self._meant(queues.get(record.queue))) is not None:
                count = sum(last - first + 1 for first, last in record.ranges)
                self._add({"event": "left", "at": batch.wall_ms, "queue": queue.name,
                           "reason": record.reason.ledger_name, "count": count})  # fmt: skip

    def _meant(self, queue: Queue | None) -> Queue | None:
        return queue if queue is not None and queue.vhost == self._vhost else None

    def _enqueued(self, record: EnqueueRun, names: list[str], room: int) -> int:
        """Note messages that queues got, at most `room`. Returns how many."""
        raws = record.raws if isinstance(record.raws, list) else []
        shown = min(len(raws), max(0, room), max(0, KEPT - len(self._events)))
        for raw in raws[:shown]:
            message = shown_message((0, record.envelope, raw), "auto", self._octets)
            del message["redelivered"]
            self._add({"event": "enqueued", "at": record.envelope.wall_ms, "queues": names, **message})
        self._dropped += len(raws) - shown
        return shown

    def _add(self, event: dict[str, Any]) -> None:
        if len(self._events) < KEPT:
            self._events.append(event)
        else:
            self._dropped += 1
