"""EffectRunner: carries out the core's effects, strictly in order. Owner: Node.

A save is durable before the next effect begins: that makes "recorded, then released" true.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from broker.errors import FrameError
from ha.adapter.announcements import Announcer, announce, show
from ha.adapter.authority_port import request_of
from ha.adapter.peering import wire
from ha.core.effects import (
    AdoptCluster,
    Announce,
    Answer,
    ClosePeer,
    Effect,
    ExpelPeer,
    FenceOutput,
    Log,
    Note,
    PauseInput,
    Publish,
    ReadRegister,
    Redial,
    ResumeInput,
    ResumeOutput,
    SaveRecord,
    SendMethod,
    SendStream,
    StartServing,
    StopServing,
    SwapRegister,
    TakeNumber,
)  # fmt: skip
from ha.core.errors import LinkError
from ha.core.record.authority import FORCED
from ha.core.wire.link import Method
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.engine import Broker
    from broker.hooks import ExtensionPeer
    from ha.adapter.authority_port import AuthorityDesk
    from ha.adapter.ha_hooks import HaHooks
    from ha.adapter.ledger_port import LedgerPort
    from ha.adapter.peering.peerings import Peerings
    from ha.core.record.in_sync_record import InSyncRecord

RECENT = 100
"""Changes of membership that the status tells one by one."""


class ActingNode(Announcer, Protocol):
    """The node, as far as effects concern it. The methods are those of `Node`."""

    authority: AuthorityDesk
    broker: Broker
    peerings: Peerings
    hooks: HaHooks
    ledger: LedgerPort

    @property
    def log(self) -> Callable[[Coded], None]: ...
    @property
    def warn(self) -> Callable[[Coded], None]: ...
    def adopt_cluster(self, cluster_id: str) -> None: ...
    def take_number(self, number: int) -> None: ...
    def answer(self, token: int, ok: bool, reason: str, code: str) -> None: ...
    def save_record(self, record: InSyncRecord, incomplete: bool) -> None: ...
    def start_serving(self, epoch: int, now: float) -> None: ...
    def stop_serving(self, reason: str, now: float) -> None: ...


class EffectRunner:
    def __init__(self, node: ActingNode) -> None:
        self._node = node
        self.events: Counter[str] = Counter()
        """Changes of membership since the start."""
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT)
        """The newest of them first: `event`, `node`, `reason`, `epoch`, `at_ms`."""

    def run(self, now: float) -> None:
        """Carry out effects until none is left: one may cause more."""
        while effects := self._node.core.take_effects():
            for effect in effects:
                self._one(effect, now)

    def _one(self, effect: Effect, now: float) -> None:
        node = self._node
        match effect:
            case SendStream() | SendMethod() | ClosePeer() | ExpelPeer():
                self._to_peer(effect)
            case FenceOutput() | ResumeOutput() | PauseInput() | ResumeInput():
                self._gate(effect)
            case StartServing() | StopServing() | Announce() | Publish():
                self._role(effect, now)
            case Note(kind=kind, fields=fields):
                self._note(kind, dict(fields))
            case Log(said=said, warns=False):
                node.log(said)
            case Log(said=said):
                node.warn(said)
            case SaveRecord(record=record, incomplete=incomplete):
                node.save_record(record, incomplete)
            case ReadRegister() | SwapRegister():
                node.authority.ask(request_of(effect))
            case Redial():
                node.peerings.due(now, at_once=True)
            case AdoptCluster(cluster_id=cluster_id):
                node.adopt_cluster(cluster_id)
            case TakeNumber(number=number):
                node.take_number(number)
            case Answer(token=token, ok=ok, reason=reason, code=code):
                node.answer(token, ok, reason, code)
            case _:
                assert_never(effect)

    def _to_peer(self, effect: SendStream | SendMethod | ClosePeer | ExpelPeer) -> None:
        match effect:
            case SendStream(peer=peer, parts=parts):
                wire.send_pieces(self._node, peer, Method.DATA, parts)
            case SendMethod(peer=peer, method=method, payload=payload):
                # HAVE is put together again whole, wherever it is cut; the others fit the smallest frame.
                wire.send_pieces(self._node, peer, method, [payload])
            case ClosePeer(peer=peer, code=code, text=text):
                wire.close(self._node, peer, code, text)
            case ExpelPeer(peer=peer, text=text):
                wire.expel(self._node, peer, LinkError.code, text)
            case _:
                assert_never(effect)

    def _gate(self, effect: FenceOutput | ResumeOutput | PauseInput | ResumeInput) -> None:
        """Fence or release the clients' output, pause or resume their input."""
        broker = self._node.broker
        match effect:
            case FenceOutput():
                broker.fence_output()
            case ResumeOutput():
                broker.resume_output()
            case PauseInput():
                broker.pause_input()
            case ResumeInput():
                broker.resume_input()
            case _:
                assert_never(effect)

    def _role(self, effect: StartServing | StopServing | Announce | Publish, now: float) -> None:
        node = self._node
        match effect:
            case StartServing(epoch=epoch):
                node.start_serving(epoch, now)
            case StopServing(reason=reason):
                self._note_event("demoted", node.me.name, reason)
                node.broker.resume_input()
                node.stop_serving(reason, now)
            case Publish():
                show(node, effect)
            case Announce():
                self._note_event(effect.event, effect.name, effect.reason)
                if effect.reason == FORCED:
                    self.events["promoted-lossy"] += 1
                announce(node, effect)
            case _:
                assert_never(effect)

    def _note_event(self, event: str, name: str, reason: str) -> None:
        node = self._node
        self.events[event] += 1
        found = {"event": event, "node": name, "reason": reason, "epoch": node.core.epoch}
        self.recent.appendleft(found | {"at_ms": node.vhosts.wall_ms})

    def _note(self, kind: str, fields: dict[str, Any]) -> None:
        """`view` is the writer's, not the record's."""
        view = fields.pop("view", None)
        if view is not None:
            self._node.ledger.view = view
        self._node.ledger.record(kind, **fields)

    def witness_ok(self, asker: ExtensionPeer, answer: dict[str, Any]) -> None:
        """Answer a node of a pair that has this one for its witness. The record of a pair fits into the
        smallest frame: another one must not end this broker."""
        payload = json.dumps(answer).encode()
        if len(payload) <= asker.extension_room:
            asker.send_extension(wire.CHANNEL, Method.WITNESS_OK, payload)
        else:
            asker.expel(FrameError.code, "FRAME_ERROR - the answer of the witness does not fit a frame")

    def manage_ok(self, peer: int, answer: dict[str, Any]) -> None:
        """Answer an operator, in as many frames as it takes; the end of the JSON text is the end of the
        answer."""
        wire.send_pieces(self._node, peer, Method.MANAGE_OK, [json.dumps(answer).encode()])
