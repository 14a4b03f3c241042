"""Counts what happens inside the nodes of a run, from outside: the hand that fills the ledger of coverage.

`watching` wraps a few calls of the product for as long as it lasts. All that is counted happens once a tick,
a link method or a run of messages, so that a seed costs next to nothing more. Before each run: `begin`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, get_args

from broker.amqp091.codec.frames import REJECT
from broker.amqp091.server.channel import Channel
from broker.model.history.records import Dequeue, Record
from broker.model.vhost.vhost import VirtualHost
from ha.adapter.effect_runner import EffectRunner
from ha.adapter.inbox import Arrived, Inbox
from ha.adapter.replica import bad_events
from ha.adapter.sinks import StoreSink
from ha.core import ha_broker
from ha.core.backup import backup
from ha.core.backup.backup import Backup
from ha.core.effects import Answer, Effect, Note, SendMethod, SendStream
from ha.core.election import attempt, manual, peer_methods, register, switchover
from ha.core.election import plan as plans
from ha.core.election.pair import authority as pair_authority
from ha.core.election.promotion import Promotion
from ha.core.election.switchover import Switchover
from ha.core.ha_broker import HaBroker
from ha.core.membership import Membership
from ha.core.primary import primary, remote_backup
from ha.core.primary.primary import Primary
from ha.core.primary.remote_backup import Phase, RemoteBackup
from ha.core.record import record_keeper
from ha.core.record.record_keeper import Outcome, RecordKeeper
from ha.core.refusal import NEXT
from ha.core.wire import hello
from ha.core.wire.hello import JoinRequest
from ha.core.wire.link import Frame, Method, StreamDecoder
from ha.pacemaker import codes as pacemaker_codes
from ha.pacemaker import procedure, standing
from tests.simulation.harness.coverage.replacing import replaced, told
from tests.simulation.harness.coverage.sentences import arguments_of, codes_of, returns_of
from tests.simulation.pacemaker.authority import HELPERS, PacemakerAuthority
from understudy.shared.codes import Coded

Entry = tuple[str, str]
"""A theme of the ledger, and what was reached in it."""
Ledger = Counter[Entry]

STATUS = "status of a node"
PHASE = "phase of a backup"
EFFECT = "effect of the core"
METHOD_SENT, METHOD_HEARD = "link method sent", "link method heard"
FRAME_SENT, FRAME_HEARD = "stream frame sent", "stream frame heard"
RECORD = "record of history"
ENDED = "messages ended"
GRANTED, REFUSED = "promotion granted", "promotion refused"
ALONE = "standalone"
"""The witness, which is in no pair."""
JOIN_REFUSED = "join refused"
GIVEN_UP = "backup given up"
FETCHED_AGAIN = "queue fetched again"
STEPPED_DOWN = "stopped serving"
HANDED_OVER = "switchover"
HINDERED = "switchover taken back"
NOT_PROMOTED = "not promoted: "
LOSS = "loss of a backup"
EXCLUDED, UNCOUNTED = "excluded from the in-sync set", "gone before it was in sync"
STEP = "promotion waits in step"
REGISTER = "answer of the register"
CIB = "answer of the CIB"
OPERATION = "operation of a client"
"""Publishes, acks and rejects by runs, as they come in; the rest one by one."""

REFUSALS = (
    arguments_of([manual, register], frozenset({"_no"}), 0)
    + returns_of(manual, "_doubt")
    + arguments_of([attempt], frozenset({"_refused", "Refuse", "Reply"}), 1)
    + arguments_of([ha_broker], frozenset({"give_up"}), 0)
    + arguments_of([ha_broker], frozenset({"refused"}), 1)
    + returns_of(attempt, "waits_for")
    + returns_of(record_keeper, "authority_trouble")
    + arguments_of([switchover, plans], frozenset({"_reply", "_over", "Reply", "End"}), 1, coded=True)
    + arguments_of([ha_broker, switchover, plans], frozenset({"with_next"}), 0)
)
GRANTS = arguments_of([manual, register, pair_authority], frozenset({"Verdict"}), 2)
JOIN_REFUSALS = returns_of(hello, "refusal") + returns_of(hello, "_clash")
HINDRANCES = arguments_of([plans], frozenset({"_taken_back"}), 1) + returns_of(switchover, "_missing")
LOSSES = (
    arguments_of([primary], frozenset({"_lose"}), 1)
    + arguments_of([peer_methods], frozenset({"drop_peer"}), 1)
    + returns_of(remote_backup, "verdict")
)
BAD_EVENTS = arguments_of([backup, bad_events], frozenset({"BadEvent"}), 1)
CIB_CODES = codes_of([standing, procedure], pacemaker_codes)
STEPS_DOWN = arguments_of([ha_broker, peer_methods, switchover], frozenset({"step_down", "_step_down"}), 0)

SENTENCES = {
    GRANTED: GRANTS,
    REFUSED: REFUSALS,
    JOIN_REFUSED: JOIN_REFUSALS,
    GIVEN_UP: LOSSES,
    FETCHED_AGAIN: BAD_EVENTS,
    STEPPED_DOWN: STEPS_DOWN,
    HINDERED: HINDRANCES,
}
"""What can be said, by theme."""

EFFECTS = {kind: (EFFECT, kind.__name__) for kind in get_args(Effect)}
RECORDS = {kind: (RECORD, kind.__name__) for kind in get_args(Record)}
SENT = {method.value: (METHOD_SENT, method.name) for method in Method}
HEARD = {method.value: (METHOD_HEARD, method.name) for method in Method}
FRAMES_SENT = {frame.value: (FRAME_SENT, frame.name) for frame in Frame}
FRAMES_HEARD = {frame: (FRAME_HEARD, frame.name) for frame in Frame}


class _Current:
    """Where the wrappers count. One run at a time in a process."""

    ledger: ClassVar[Ledger] = Counter()


def begin() -> Ledger:
    """A fresh ledger, for the run that begins now."""
    _Current.ledger = Counter()
    return _Current.ledger


@contextmanager
def watching() -> Iterator[None]:
    """Count, until the end of the `with`."""
    with ExitStack() as stack:
        for owner, attribute, wrap in WRAPPERS:
            stack.enter_context(replaced(owner, attribute, wrap))
        stack.enter_context(told(RemoteBackup, "phase", _phase))
        yield


def phase_step(before: Phase | None, after: Phase) -> Entry:
    """How the ledger names a step from one phase to another; from none: the phase that it begins in."""
    return PHASE, f"{before.value} -> {after.value}" if before else f"begins as {after.value}"


def register_answer(read: bool, outcome: Outcome) -> Entry:
    return REGISTER, f"{'read' if read else 'swap'}: {outcome.value}"


def _count(theme: str, what: str, many: int = 1) -> None:
    _Current.ledger[theme, what] += many


def _phase(before: Phase | None, after: Phase) -> None:
    if before is not after:
        _Current.ledger[phase_step(before, after)] += 1


# -- the wrappers: each takes the original and gives what stands in its place


def _answered(original: Callable[..., None]) -> Callable[..., None]:
    def answered(self: RecordKeeper, request_id: int, outcome: Outcome, *rest: Any) -> None:
        _Current.ledger[register_answer(request_id in self._reads, outcome)] += 1
        original(self, request_id, outcome, *rest)

    return answered


def _cib_answer(original: Callable[..., None]) -> Callable[..., None]:
    def settled(self: PacemakerAuthority, asked: Any, answer: Any) -> None:
        if asked.open and answer.said not in HELPERS:
            _count(CIB, answer.said.code)
        original(self, asked, answer)

    return settled


def _settle(original: Callable[..., None]) -> Callable[..., None]:
    def settle(self: Promotion, now: float) -> None:
        original(self, now)
        if self.attempt is not None:
            _count(STEP, self.attempt.step.value)

    return settle


def _become(original: Callable[..., None]) -> Callable[..., None]:
    def become(self: Membership, status: Any) -> None:
        before = self.status
        original(self, status)
        if status is not before:
            _count(STATUS, f"{before.value} -> {status.value}")

    return become


def _take_effects(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def take_effects(self: HaBroker) -> list[Any]:
        effects = original(self)
        ledger = _Current.ledger
        for effect in effects:
            kind = type(effect)
            ledger[EFFECTS[kind]] += 1
            if kind is SendMethod:
                ledger[SENT[effect.method]] += 1
            elif kind is Answer and not effect.ok:
                reason = effect.reason.removeprefix(NOT_PROMOTED).partition(NEXT)[0]
                ledger[REFUSED, REFUSALS.kind_of(reason)] += 1
            elif kind is Note and effect.kind == "promote" and effect.fields["reason"] != ALONE:
                ledger[GRANTED, effect.fields["reason"]] += 1
            elif kind is SendStream:
                ledger[SENT[Method.DATA]] += 1
                for number in _frames(effect.parts):
                    ledger[FRAMES_SENT[number]] += 1
        return effects

    return take_effects


def _frames(parts: list[bytes]) -> Iterator[int]:
    """Types of the frames in `parts`; each frame begins with a part."""
    left = 0
    for part in parts:
        if not left:
            left = 5 + int.from_bytes(part[:4], "big")
            yield part[4]
        left -= len(part)


def _take_inbox(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def take(self: Inbox) -> list[Any]:
        items = original(self)
        for item in items:
            if type(item) is Arrived:
                _Current.ledger[HEARD[item.method]] += 1
        return items

    return take


def _feed(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def feed(self: StreamDecoder, data: bytes) -> list[Any]:
        frames = original(self, data)
        for kind, _ in frames:
            _Current.ledger[FRAMES_HEARD[kind]] += 1
        return frames

    return feed


def _manage_ok(original: Callable[..., None]) -> Callable[..., None]:
    def manage_ok(self: EffectRunner, peer: int, answer: dict[str, Any]) -> None:
        _count(METHOD_SENT, Method.MANAGE_OK.name)
        original(self, peer, answer)

    return manage_ok


def _batch(original: Callable[..., None]) -> Callable[..., None]:
    def batch(self: StoreSink, batch: Any) -> None:
        for record in batch.records:
            _Current.ledger[RECORDS[type(record)]] += 1
            if type(record) is Dequeue:
                many = sum(last - first + 1 for first, last in record.ranges)
                _count(ENDED, record.reason.ledger_name, many)
        original(self, batch)

    return batch


def _refusal(original: Callable[..., Coded | None]) -> Callable[..., Coded | None]:
    def refusal(self: JoinRequest, *arguments: Any, **named: Any) -> Coded | None:
        said = original(self, *arguments, **named)
        if said is not None:
            _count(JOIN_REFUSED, JOIN_REFUSALS.kind_of(said.sentence))
        return said

    return refusal


def _lose(original: Callable[..., None]) -> Callable[..., None]:
    def lose(self: Primary, backup: RemoteBackup, why: str, now: float) -> None:
        _count(GIVEN_UP, LOSSES.kind_of(why))
        _count(LOSS, EXCLUDED if backup.counted else UNCOUNTED)
        original(self, backup, why, now)

    return lose


def _reset(original: Callable[..., None]) -> Callable[..., None]:
    def reset(self: Backup, replicator: Any) -> None:
        for event in replicator.bad:
            _count(FETCHED_AGAIN, BAD_EVENTS.kind_of(event.sentence))
        original(self, replicator)

    return reset


def _step_down(original: Callable[..., None]) -> Callable[..., None]:
    def step_down(self: HaBroker, reason: str, *rest: Any) -> None:
        _count(STEPPED_DOWN, STEPS_DOWN.kind_of(reason))
        original(self, reason, *rest)

    return step_down


def _serve_on(original: Callable[..., None]) -> Callable[..., None]:
    def serve_on(self: Switchover, primary: Primary, plan: Any, why: str) -> None:
        _count(HINDERED, HINDRANCES.kind_of(why))
        original(self, primary, plan, why)

    return serve_on


def _end(original: Callable[..., None]) -> Callable[..., None]:
    def end(self: Switchover, plan: Any, said: Coded | str) -> None:
        _count(HANDED_OVER, f"{plan.step.value}, then {'not done' if isinstance(said, Coded) else 'done'}")
        original(self, plan, said)

    return end


def _method(original: Callable[..., None]) -> Callable[..., None]:
    def method(self: Channel, method: Any, arguments: dict[str, Any]) -> None:
        _count(OPERATION, method.name)
        original(self, method, arguments)

    return method


def _acks(original: Callable[..., int]) -> Callable[..., int]:
    def acks(self: Channel, buf: bytes, pos: int, end: int) -> int:
        _Current.ledger[OPERATION, "basic.ack"] += 1
        return original(self, buf, pos, end)

    return acks


def _nacks(original: Callable[..., int]) -> Callable[..., int]:
    def nacks(self: Channel, buf: bytes, pos: int, end: int) -> int:
        rest = original(self, buf, pos, end)
        if rest:
            _Current.ledger[OPERATION, "basic.reject" if buf[pos + 10] == REJECT[3] else "basic.nack"] += 1
        return rest

    return nacks


def _publish(original: Callable[..., Any]) -> Callable[..., Any]:
    def publish(*arguments: Any, **named: Any) -> Any:
        _Current.ledger[OPERATION, "basic.publish"] += 1
        return original(*arguments, **named)

    return publish


WRAPPERS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (Membership, "become", _become),
    (HaBroker, "take_effects", _take_effects),
    (HaBroker, "step_down", _step_down),
    (Switchover, "_serve_on", _serve_on),
    (Switchover, "_end", _end),
    (RecordKeeper, "answered", _answered),
    (PacemakerAuthority, "_settle", _cib_answer),
    (Promotion, "settle", _settle),
    (Inbox, "take", _take_inbox),
    (StreamDecoder, "feed", _feed),
    (EffectRunner, "manage_ok", _manage_ok),
    (StoreSink, "batch", _batch),
    (JoinRequest, "refusal", _refusal),
    (Primary, "_lose", _lose),
    (Backup, "_reset", _reset),
    (Channel, "method", _method),
    (Channel, "acks", _acks),
    (Channel, "nacks", _nacks),
    (VirtualHost, "publish", _publish),
)
