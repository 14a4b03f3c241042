"""HaBroker: the main container of the core. Holds a Role, Membership, the record; decides promotion and
demotion.

Owner: the adapter's Node. Inputs are the methods below, each with `now`; outputs are `take_effects()`, to
be carried out in order. Peers are numbered by the node: inbound connections and dials alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.model.values import FOREVER, ORIGIN, Position
from ha.core.authority import Authority, PeerAnswer
from ha.core.backup import Backup
from ha.core.connection_observer import Decision, decide
from ha.core.deadlines import earliest
from ha.core.effects import (
    Answer,
    ClosePeer,
    Effect,
    SendMethod,
    StartServing,
    StopServing,
)  # fmt: skip
from ha.core.errors import Broken, LinkError
from ha.core.hello import join_request, serving_peer
from ha.core.in_sync_record import Incarnation, InSyncRecord
from ha.core.introductions import Introductions
from ha.core.lease import FOR_EVER
from ha.core.lineage import Lineage
from ha.core.link import Ack, Method, parse_ack, parse_json, to_json
from ha.core.manual import ManualAuthority
from ha.core.membership import Membership, Status
from ha.core.neighbours import Neighbours
from ha.core.ports import IdsByEpoch, PrimaryModel, ReplicaModel
from ha.core.primary import Primary
from ha.core.promotion import Attempt, Promotion
from ha.core.proof_seeker import ProofSeeker
from ha.core.queue_snapshot import decode_have
from ha.core.record_keeper import Outcome, RecordKeeper
from ha.core.role import Context, Self_
from ha.core.tuning import Tuning

JOINING_POLL = 0.2
"""Seconds between two hellos on one connection while this node looks for a primary."""
HAVE_MOST = 256 << 20
"""Octets of HAVE before a JOIN: ranges of ids, by queue; far more than any disk makes."""
CALM_POLL = 1.0
"""The same while all is well: how a forgotten primary learns of a newer one."""


class HaBroker:
    """One node's high availability, thinking only."""

    def __init__(
        self, me: Self_, tuning: Tuning, addresses: Sequence[str], *, record: InSyncRecord | None,
        incomplete: bool, epoch_seen: int, cluster_id: str | None, primary_model: PrimaryModel,
        replica_model: ReplicaModel, position: Callable[[], Position], authority: Authority | None = None,
    ) -> None:  # fmt: skip
        initial = Status.JOINING if addresses else Status.STANDALONE
        self._c = Context(me, tuning, Membership(initial), record, incomplete)
        self._authority: Authority = authority if authority is not None else ManualAuthority()
        self.keeper = RecordKeeper(self._c, self._authority)
        self._primary_model = primary_model
        self._replica_model = replica_model
        self._position = position
        self._lineage = Lineage(self._c, epoch_seen, cluster_id)
        self._epoch = 0
        self.primary: Primary | None = None
        self.backup: Backup | None = Backup(self._c, replica_model) if addresses else None
        self.neighbours = Neighbours(addresses)
        self.promotion = Promotion(
            self._c, self._authority, self.keeper, self.neighbours, self._lineage, position, self
        )
        self._introductions = Introductions(self._c, self._lineage, self.neighbours)
        self._have: dict[int, bytearray] = {}
        self.proof = ProofSeeker(tuning, self.keeper, self.neighbours, self)
        self._next_poll = 0.0
        self._last_refusal = ""

    # -- what others read

    @property
    def status(self) -> Status:
        return self._c.membership.status

    @property
    def membership(self) -> Membership:
        return self._c.membership

    @property
    def record(self) -> InSyncRecord | None:
        return self._c.record

    @property
    def epoch(self) -> int:
        """The epoch this node serves in, else that of the newest record it knows of."""
        if self.status.serves:
            return self._epoch
        return self._c.record.epoch if self._c.record is not None else 0

    @property
    def incomplete(self) -> bool:
        return self._c.incomplete

    @property
    def cluster_id(self) -> str | None:
        return self._lineage.cluster_id

    @property
    def applied(self) -> Position:
        """The gate: confirms of transient messages wait for this. A node that does not serve holds
        everything.
        """
        if self.primary is not None:
            return self.primary.applied
        return FOREVER if self.status is Status.STANDALONE else ORIGIN

    @property
    def durable(self) -> Position:
        """The gate of persistent messages."""
        if self.primary is not None:
            return self.primary.durable
        return FOREVER if self.status is Status.STANDALONE else ORIGIN

    def take_effects(self) -> list[Effect]:
        """What to do now, in order; drained."""
        effects, self._c.effects = self._c.effects, []
        return effects

    def admit(self, *, peer: bool) -> Decision:
        soon = self.withheld or self.promotion.committed is not None
        return decide(self.status, peer=peer, primary=self.known_primary(), soon=soon)

    def known_primary(self) -> str | None:
        """Name and address of the node that serves, if one is known."""
        least = self._c.record.epoch if self._c.record is not None else 0
        return serving_peer(self.promotion.kin(), self._c.membership, least)

    # -- life

    def start(self, now: float) -> None:
        """Standalone: open a new epoch at once. In a pair: look for the others."""
        if self.status is Status.STANDALONE:
            self._epoch = self._lineage.seen = self._authority.mint(self._c.me, self._lineage.seen)
            self._c.note("promote", view=self._epoch, peer="", reason="standalone")
            self._c.do(StartServing(self._epoch))
        else:
            self._c.log("joining: looking for the other brokers")

    def end_tick(self, now: float) -> None:
        """After the history was flushed and the link's frames were applied."""
        self._settle(now)
        if self.primary is not None:
            self.primary.end_tick(now)
        elif self.backup is not None:
            self.backup.end_tick(now)

    def timers(self, now: float) -> None:
        if self.mine is not None and self.proof.due(now):
            self._next_poll = now + CALM_POLL
        if now >= self._next_poll and self.neighbours.dialed:
            calm = self.status.serves or (self.backup is not None and self.backup.linked)
            self._next_poll = now + (CALM_POLL if calm else JOINING_POLL)
            self.ask_all()
        self.keeper.timers(now)
        self.promotion.timers(now)
        if self.primary is not None:
            self.primary.timers(now)
        elif self.backup is not None:
            self.backup.timers(now)
        self._settle(now)

    def next_deadline(self) -> float | None:
        role = self.primary if self.primary is not None else self.backup
        return earliest(
            self._next_poll if self.neighbours.dialed else None,
            self.proof.next_deadline() if self.mine is not None else None,
            self.keeper.next_deadline(),
            self.promotion.next_deadline(),
            role.next_deadline() if role is not None else None,
        )

    def _settle(self, now: float) -> None:
        """Whatever waited for answers: a promotion, a round of hellos."""
        self.promotion.settle(now)
        self.proof.settle(now)

    # -- proof of being primary

    @property
    def mine(self) -> InSyncRecord | None:
        """The record by which this node serves, or is about to."""
        return self._c.record if self.primary is not None else self.promotion.committed

    @property
    def proven_until(self) -> float:
        """From then on `heed_lease` has to be asked first of all, in each tick."""
        return self.primary.lease.until if self.primary is not None else FOR_EVER

    @property
    def withheld(self) -> bool:
        """It serves, and clients get nothing: its proof of being primary is too old."""
        return self.primary is not None and self.primary.lease.withheld

    def heed_lease(self, now: float) -> None:
        """Withhold what confirms or delivers, as long as the proof is too old."""
        if self.primary is not None and self.primary.heed_lease(now):
            self.proof.seek_at = now

    def proven(self) -> None:
        if self.primary is not None:
            self.primary.date_proof()

    def dethroned(self, held: InSyncRecord | None, now: float) -> None:
        """The authority has another record than this node's."""
        reason = "the authority has lost the record"
        if held is not None:
            reason = f"the authority has epoch {held.epoch} of {held.owner_name}"
        if self.primary is None:
            self.promotion.give_up(reason)
        else:
            self._step_down(reason, now)
        if held is not None:
            self._lineage.adopt(held)

    def authority_answered(
        self, request_id: int, outcome: Outcome, document: dict[str, Any] | None, now: float
    ) -> None:
        """The authority's answer to a ReadRegister or SwapRegister."""
        self.keeper.answered(request_id, outcome, document, now)
        self._settle(now)

    # -- peers

    def dial_open(self, peer: int, address: str, now: float) -> None:
        """A dial is logged in and may speak."""
        self.neighbours.opened(peer, address)
        self._introductions.ask(peer, self._stand())

    def dial_failed(self, address: str, now: float, refusal: str = "", *, nobody: bool = False) -> None:
        """Nobody let us in there; `refusal` is what the broker said, if there is one. `nobody`: the kernel
        there says that nobody listens.
        """
        self.neighbours.failed(address, refusal, now, nobody=nobody)
        self._settle(now)

    def peer_lost(self, peer: int, clean: bool, now: float) -> None:
        """A connection is gone, whichever side it was opened from."""
        node_id = self.neighbours.lost(peer)
        self._have.pop(peer, None)
        if node_id is not None:
            self._c.membership.member(node_id).connected = False
        if self.primary is not None:
            self.primary.peer_lost(peer, clean, now)
        elif self.backup is not None:
            self.backup.peer_lost(peer, clean, now)
        self._settle(now)

    def method(self, peer: int, method: int, payload: bytes, now: float) -> None:
        """One extension method of a peer. What it may not say costs it the connection, and nothing else."""
        try:
            self._method(peer, method, payload, now)
        except LinkError as error:
            self._c.log(f"link closed: {error}")
            if self.primary is not None and self.primary.backup_at(peer) is not None:
                self.primary.drop_peer(peer, str(error), now)
                return
            if self.backup is not None:
                self.backup.peer_lost(peer, False, now)  # it was not the primary that closed it
            self._c.do(ClosePeer(peer, error.code, f"FRAME_ERROR - {error}"))

    def _method(self, peer: int, method: int, payload: bytes, now: float) -> None:
        if method == Method.ACK:
            self._ack(peer, parse_ack(payload), now)
        elif method == Method.DATA:
            if self.backup is not None and self.backup.peer == peer:
                self.backup.data(payload, now)
        elif method == Method.HEARTBEAT:
            if self.backup is not None and self.backup.peer == peer:
                self.backup.heartbeat(payload, now)
        elif method == Method.HELLO:
            question = parse_json(payload)
            self._hello(peer, question, now, None)
            answer = {**self._stand(), "asked": question.get("ask")}
            self._c.do(SendMethod(peer, Method.HELLO_OK, to_json(answer)))
        elif method == Method.HELLO_OK:
            self._hello(peer, parse_json(payload), now, self.neighbours.address_of(peer))
        elif method == Method.HAVE:
            have = self._have.setdefault(peer, bytearray())
            have += payload
            if len(have) > HAVE_MOST:
                raise LinkError("it holds more than a request to join may say")
        elif method == Method.JOIN:
            self._join(peer, parse_json(payload), now)
        elif method == Method.JOIN_OK and self.backup is not None and self.backup.peer == peer:
            self.backup.join_ok(payload, now)
            self._lineage.learn(self._c.record)
        elif method == Method.EXCLUDED and self.backup is not None and self.backup.peer == peer:
            self.backup.excluded(payload)
        elif method not in (Method.JOIN_OK, Method.EXCLUDED):
            raise LinkError(f"unknown link method {method}")

    def _ack(self, peer: int, ack: Ack, now: float) -> None:
        """Whoever follows this node's epoch knows of no later one."""
        if self.primary is None:
            return
        if ack.record.epoch > self._epoch and peer in self.primary.peers():
            self._step_down(f"a backup knows of epoch {ack.record.epoch}", now)
        else:
            self.primary.ack(peer, ack, now)

    # -- who is who

    def _hello(self, peer: int, document: dict[str, Any], now: float, address: str | None) -> None:
        """A peer says how it stands. `address`: it is the answer of one that we dialed."""
        answer = self._introductions.heard(peer, document, address, now)
        if answer is not None:
            self._meet(answer, now)
            if address is not None and answer.serving:
                self._consider(peer, answer, now)
        self._settle(now)

    def _meet(self, answer: PeerAnswer, now: float) -> None:
        """Learn from what it knows. A primary that meets a higher epoch stops at once."""
        if self.cluster_id is None and self.status.serves:
            return
        if answer.epoch > self.epoch and self.status.serves:
            self._step_down(
                f"{answer.name} knows of epoch {answer.epoch}, this node serves in {self._epoch}", now
            )
        if not self.status.serves and answer.record is not None:
            self._lineage.adopt(answer.record)
        self._lineage.saw(answer.seen, answer.epoch)
        backup, record = self.backup, self._c.record
        if backup is not None and record is not None and backup.linked and backup.epoch < record.epoch:
            self._c.log(f"{backup.primary_name} is followed no more: there is the newer epoch {record.epoch}")
            backup.leave(now)
        if self.primary is not None:
            self.primary.met(Incarnation(answer.node_id, answer.incarnation), now)

    def _consider(self, peer: int, answer: PeerAnswer, now: float) -> None:
        """A serving node was found: join it, unless we follow it already or know of a newer one."""
        if self.backup is None or self.backup.peer is not None or self.promotion.active:
            return
        if answer.epoch >= self.epoch:
            self.backup.join(peer, answer.node_id, answer.name, now)

    def _join(self, peer: int, request: dict[str, Any], now: float) -> None:
        """A peer asks to be taken in."""
        held: dict[bytes, IdsByEpoch] = decode_have(bytes(self._have.pop(peer, b"")))
        ask = join_request(request)
        if ask.cluster_id == self.cluster_id and ask.epoch > self.epoch and self.status.serves:
            self._step_down(f"{ask.name} knows of epoch {ask.epoch}, this node serves in {self._epoch}", now)
        refusal = ask.refusal(self._c.me, self.cluster_id, self.status, primary=self.primary is not None)
        if refusal is not None or self.primary is None:
            if refusal != self._last_refusal:
                self._c.log(f"{ask.name} is not taken in: {refusal}")
            self._last_refusal = refusal or ""
            self._c.do(SendMethod(peer, Method.JOIN_OK, to_json({"ok": False, "reason": refusal})))
            return
        self.primary.join(peer, ask.who, ask.name, held, now)

    # -- promotion and demotion

    def promote(
        self, token: int, new_cluster_id: str, now: float, *, force_lossy: bool = False, fenced: bool = False
    ) -> None:
        """An operator wants this node to be primary. Answered once clients are served, or it is refused.

        `fenced`: the operator vouches that the old primary runs no more, so that its lease is not waited for.
        """
        if self.status.serves:
            already = f"already {self.status.value} in epoch {self._epoch}"
            if self.withheld:
                doubt = f"{already}, but it cannot prove it, and clients get nothing for now"
                self._c.do(Answer(token, False, doubt))
            else:
                self._c.do(Answer(token, True, already))
        elif self.promotion.active:
            self._c.do(Answer(token, False, self.promotion.waits_for()))
        else:
            self.promotion.begin(token, new_cluster_id, now, force_lossy=force_lossy, fenced=fenced)

    def promotable(self) -> tuple[bool, str]:
        """Whether an unforced promotion would be granted as things stand, and why."""
        if self.status.serves:
            return True, f"{self.status.value} in epoch {self._epoch}"
        if self.promotion.active:
            return False, self.promotion.waits_for()
        if self.backup is not None and self.status is Status.READY and self.backup.linked:
            return True, "in the record"
        if self.backup is not None and self.backup.linked:
            return False, self.backup.reason()
        verdict = self.promotion.judge()
        return verdict.granted, verdict.reason

    def following(self) -> Backup | None:
        return self.backup

    def ask_all(self) -> None:
        for peer in self.neighbours.dialed:
            self._introductions.ask(peer, self._stand())

    def _stand(self) -> dict[str, Any]:
        """How this node stands, for a hello."""
        return self._introductions.document(
            self.epoch, self._position(), promoting=self.promotion.active, withheld=self.withheld
        )

    def serve(self, attempt: Attempt, now: float) -> None:
        """The record that names this node is committed and durable: the epoch may begin."""
        record, old = self._c.record, attempt.old
        if record is None or record.owner != self._c.me.who:
            raise Broken("to serve without the record that names this node")
        self._epoch, previous = record.epoch, old.owner_name if old is not None else ""
        self._c.note("promote", view=record.epoch, peer=previous, reason=attempt.how)
        self._c.do(StartServing(record.epoch))
        self._c.membership.become(Status.RECOVERING)
        self.backup = None
        self.primary = Primary(self._c, self._primary_model, record, self.keeper, self.dethroned, now)
        names = ",".join(sorted(record.names.get(i.node_id, i.node_id) for i in record.in_sync))
        self._c.note("insync", view=record.epoch, name=names, n=0, reason="promoted")

    def demote(self, token: int, now: float) -> None:
        """An operator wants this node to stop serving."""
        if self.status is Status.STANDALONE:
            self._c.do(Answer(token, False, "a standalone broker cannot be demoted: it has no ha.brokers"))
            return
        self.promotion.give_up("demoted meanwhile")
        if self.status.serves:
            self._step_down("demoted by the operator", now)
        self._c.do(Answer(token, True, f"now {self.status.value}"))

    def _step_down(self, reason: str, now: float) -> None:
        """Serve no more, from this instant. Backups are told nothing: their links close, and they stay in
        the record.
        """
        self._c.log(f"stops serving: {reason}")
        self._c.do(StopServing(reason))
        self._c.note("demote", reason=reason)
        for peer in self.primary.peers() if self.primary is not None else ():
            self._c.do(ClosePeer(peer, 320, "CONNECTION_FORCED - the primary stops serving"))
        self.keeper.forget()
        self.proof.forget()
        self.primary = None
        self.backup = Backup(self._c, self._replica_model)
        self._c.membership.become(Status.JOINING)
        self._next_poll = now
