"""HaBroker: the main container of the core. Holds a Role, Membership, the record; decides promotion and
demotion.

Owner: the adapter's Node. Inputs are the methods below, each with `now`; outputs are `take_effects()`, to
be carried out in order. Peers are numbered by the node: inbound connections and dials alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.model.values import FOREVER, ORIGIN, Need, Position
from ha.core import codes
from ha.core.backup.backup import Backup
from ha.core.clocks import Clocks
from ha.core.connection_observer import Admission, decide
from ha.core.deadlines import earliest
from ha.core.effects import (
    Announce,
    Answer,
    ClosePeer,
    Effect,
    SendMethod,
    StartServing,
    StopServing,
    refused,
)  # fmt: skip
from ha.core.election.attempt import Attempt
from ha.core.election.automatic import AutomaticFailover
from ha.core.election.introductions import Introductions
from ha.core.election.lease_renewal import LeaseRenewal
from ha.core.election.manual import ManualAuthority
from ha.core.election.pair.controller import PairController
from ha.core.election.pair.table import PairRole
from ha.core.election.peer_methods import PeerMethods
from ha.core.election.peers import Peers
from ha.core.election.promotion import Promotion
from ha.core.election.switchover import Switchover
from ha.core.errors import Broken
from ha.core.membership import Membership, Status
from ha.core.outbox import Outbox
from ha.core.peer_messages import PeerMessages
from ha.core.ports import PrimaryModel, ReplicaModel
from ha.core.primary.primary import Primary
from ha.core.primary.standing import wanted_words
from ha.core.record.authority import Authority
from ha.core.record.in_sync_record import ALL_DISKS, InSyncRecord
from ha.core.record.lease import FOR_EVER
from ha.core.record.lineage import Lineage
from ha.core.record.local_record import LocalRecord
from ha.core.record.record_keeper import Outcome, RecordKeeper, record_lost
from ha.core.record.replica_state import ReplicaState
from ha.core.refusal import with_next
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning
from ha.core.wire.hello import serving_peer
from ha.core.wire.link import Method
from ha.core.wire.peer_message import key_of
from understudy.shared.codes import Coded

JOINING_POLL = 0.2
"""Seconds between two hellos on one connection while this node looks for a primary."""
UNLESS = ", unless only this node can serve"
CALM_POLL = 1.0
"""The same while all is well: how a forgotten primary learns of a newer one."""


class HaBroker:
    """One node's high availability, thinking only."""

    def __init__(
        self, me: OwnIdentity, tuning: Tuning, addresses: Sequence[str], *, record: InSyncRecord | None,
        incomplete: bool, epoch_seen: int, cluster_id: str | None, primary_model: PrimaryModel,
        replica_model: ReplicaModel, position: Callable[[], Position], authority: Authority | None = None,
        public: Sequence[str] = (), absent: str = "", new_cluster_id: str = "",
        pair_role: PairRole | None = None, clients: Callable[[], int] = lambda: 0,
    ) -> None:  # fmt: skip
        initial = Status.JOINING if addresses else Status.STANDALONE
        self._me = me
        self._tuning = tuning
        self._membership = Membership(initial)
        self._clocks = Clocks()
        self._out = Outbox()
        self._local = LocalRecord(record, ReplicaState(incomplete), self._out)
        self._authority: Authority = authority if authority is not None else ManualAuthority()
        self.keeper = RecordKeeper(self._local, self._out, self._authority)
        self._primary_model, self._replica_model, self._position = primary_model, replica_model, position
        self._lineage = Lineage(me, self._local, self._out, epoch_seen, cluster_id)
        self._epoch = 0
        self.primary: Primary | None = None
        self.peers = Peers(addresses, public, absent)
        self.backup: Backup | None = self._as_backup() if addresses else None
        self.promotion = Promotion(
            me,
            tuning,
            self._membership,
            self._local,
            self._clocks,
            self._out,
            self._authority,
            self.keeper,
            self.peers,
            self._lineage,
            position,
            self.following,
            self.ask_all,
            self.serve,
            self._other_is_gone,
        )
        self._clients = clients
        self.pair = (
            PairController(
                me, pair_role, tuning, self._membership, self._local, self._out, self.peers, self.following
            )
            if pair_role is not None else None
        )  # fmt: skip
        self.automatic = (
            AutomaticFailover(
                me, self._local, self._out, self.keeper, self.peers, self._lineage, self.promotion,
                self.following, new_cluster_id, self.pair,
            )
            if self._authority.AUTOMATIC else None
        )  # fmt: skip
        self.messages = PeerMessages(me.name, self.peers, self._lineage, self._out)
        self._published: tuple[str, str, bool] | None = None
        """How the controller stood when it told last: status, state, and whether there are clients."""
        self._introductions = Introductions(
            me, tuning, self._membership, self._local, self._out, self._lineage, self.peers
        )
        self._peer_methods = PeerMethods(
            me,
            tuning,
            self._membership,
            self._local,
            self._out,
            self._introductions,
            self._lineage,
            self.peers,
            self,
        )
        self.lease_renewal = LeaseRenewal(tuning, self.keeper, self.peers, self)
        self.switchover = Switchover(
            me, tuning, self._membership, self._clocks, self._out, primary_model, self.keeper, position,
            self.promotion, lambda: self.primary, self.known_primary, self.step_down,
        )  # fmt: skip
        self._next_poll = 0.0
        self._listened_at = float("-inf")
        self._calm_poll = min(CALM_POLL, tuning.failover_timeout / 4) if tuning.peers_decide else CALM_POLL
        if self.peers.several:  # a silent route shows by what is heard on the others
            self._calm_poll = min(self._calm_poll, tuning.heartbeat)

    def _as_backup(self) -> Backup:
        return Backup(
            self._me,
            self._tuning,
            self._membership,
            self._local,
            self._clocks,
            self._out,
            self._replica_model,
            self.peers.elsewhere if self.peers.several else None,
        )

    # -- what others read

    @property
    def status(self) -> Status:
        return self._membership.status

    @property
    def tuning(self) -> Tuning:
        return self._tuning

    @property
    def membership(self) -> Membership:
        return self._membership

    @property
    def record(self) -> InSyncRecord | None:
        return self._local.record

    @property
    def epoch(self) -> int:
        """The epoch this node serves in, else that of the newest record it knows of."""
        if self.status.serves:
            return self._epoch
        return self._local.record.epoch if self._local.record is not None else 0

    @property
    def incomplete(self) -> bool:
        return self._local.replica.incomplete

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

    @property
    def confirm_floor(self) -> Need:
        """What confirms of persistent messages wait for at least, whatever less their queues ask for."""
        return Need.DURABLE if self.primary is None else self.primary.confirm_floor

    def take_effects(self) -> list[Effect]:
        """What to do now, in order; drained."""
        return self._out.take()

    def admit(self, *, peer: bool) -> Admission:
        soon = self.output_fenced or self.promotion.committed is not None or self.switchover.draining
        if self.backup is not None and self.backup.is_target:
            soon = soon or self.backup.linked or self.promotion.active
        if self.pair is not None and self.automatic is not None and not peer and not self.status.serves:
            now = self._clocks.now
            self.pair.vote(now)
            if not self.keeper.arbitrates or self.pair.ordered:  # with a witness a vote ends an order only
                self.automatic.look(now)
            soon = soon or (self.pair.in_doubt(now) and not self.automatic.off)
        return decide(self.status, peer=peer, primary=self.known_primary(), soon=soon)

    def known_primary(self) -> str | None:
        """Name and address of the node that serves, if one is known."""
        least = self._local.record.epoch if self._local.record is not None else 0
        return serving_peer(self.promotion.cluster_peers(), self._membership, least)

    # -- life

    def start(self, now: float) -> None:
        """Standalone: open a new epoch at once. In a pair: look for the others."""
        if self.status is Status.STANDALONE:
            self._epoch = self._lineage.seen = self._lineage.mint(self._authority)
            self._out.note("promote", view=self._epoch, peer="", reason="standalone")
            self._out.do(StartServing(self._epoch))
        else:
            self._out.log(codes.LOOKING.say())

    def end_tick(self, now: float) -> None:
        """After the history was flushed and the link's frames were applied."""
        self.settle(now)
        self._tell_others()
        self._local.heed_disk(self._replica_model.synced)
        if self.primary is not None:
            self.primary.end_tick(now)
            self.switchover.end_tick(now)
        elif self.backup is not None:
            self.backup.end_tick(now)

    def timers(self, now: float) -> None:
        if self.mine is not None and self.lease_renewal.due(now):
            self._next_poll = now + self._calm_poll
        if now >= self._next_poll and self.peers.dialed:
            calm = self.status.serves or (self.backup is not None and self.backup.linked)
            self._next_poll = now + (self._calm_poll if calm else JOINING_POLL)
            self.ask_all()
        self.keeper.timers(now)
        self.messages.timers(now)
        self.promotion.timers(now)
        if self.pair is not None:
            self._listen(now)
        if self.automatic is not None:
            self.automatic.timers(now)
        if self.primary is not None:
            self.primary.timers(now)
        elif self.backup is not None:
            linked = self.backup.peer is not None
            self.backup.timers(now)
            self._seek(linked)
        self.settle(now)

    def next_deadline(self) -> float | None:
        role = self.primary if self.primary is not None else self.backup
        return earliest(
            self._next_poll if self.peers.dialed else None,
            self._listened_at + self._calm_poll if self.pair is not None else None,
            self.lease_renewal.next_deadline() if self.mine is not None else None,
            self.keeper.next_deadline(),
            self.messages.next_deadline(),
            self.promotion.next_deadline(),
            self.automatic.next_deadline() if self.automatic is not None else None,
            self.switchover.next_deadline(),
            role.next_deadline() if role is not None else None,
        )

    def settle(self, now: float) -> None:
        """Go on with what waits for answers: a promotion, a round of hellos, a switchover."""
        self.promotion.settle(now)
        self.lease_renewal.settle(now)
        self.switchover.settle(now)
        if self.pair is not None:
            self.pair.settle(now)
        if self.automatic is not None:
            self.automatic.settle(now)

    def _seek(self, linked: bool) -> None:
        """`linked`: there was a link just now. If it has ended, ask on the other routes where to join."""
        if linked and self.peers.several and self.backup is not None and self.backup.peer is None:
            self.ask_all()

    def _listen(self, now: float) -> None:
        """A process that stood still has heard nobody meanwhile: that is no silence of the others."""
        if now - self._listened_at > self._tuning.failover_timeout / 2:
            self.peers.listens_since = now
        self._listened_at = now

    def _tell_others(self) -> None:
        """Each change of this node's controller, to whoever watches here and at the other nodes."""
        if not self.peers.by_address:
            return
        clients = self._clients()
        state = self.pair.state.value if self.pair is not None else ""
        stands = (self.status.value, state, clients > 0)
        if stands == self._published:
            return
        self._published = stands
        told: dict[str, Any] = {"status": self.status.value, "clients": clients, "epoch": self.epoch}
        if self.pair is not None:
            told |= {"role": self.pair.role.value, "state": state, "votes": self.pair.votes}
        self.messages.publish(key_of("controller", self._me.name), told)

    def _other_is_gone(self) -> bool:
        return self.pair is not None and bool(self.pair.gone(self._clocks.now))

    # -- the leadership lease

    @property
    def mine(self) -> InSyncRecord | None:
        """The record by which this node serves, or is about to."""
        return self._local.record if self.primary is not None else self.promotion.committed

    @property
    def not_taken_in(self) -> list[str]:
        """While this node serves: the nodes that ask to join and may not, each with the reason."""
        refused = self._peer_methods.not_taken_in.values() if self.primary is not None else ()
        return list(dict.fromkeys(refused))

    @property
    def clocks(self) -> Clocks:
        return self._clocks

    @property
    def lease_until(self) -> float:
        """From then on `heed_lease` has to be asked first of all, in each tick."""
        return self.primary.lease.until if self.primary is not None else FOR_EVER

    @property
    def output_fenced(self) -> bool:
        """It serves, and clients get nothing: its leadership lease has expired."""
        return self.primary is not None and self.primary.lease.expired

    def heed_lease(self, now: float) -> None:
        """Fence the clients' output as long as the leadership lease has expired."""
        if self.primary is not None and self.primary.heed_lease(now):
            self.lease_renewal.seek_at = now

    def lease_renewed(self) -> None:
        if self.primary is not None:
            self.primary.date_lease()

    def outdated(self, held: InSyncRecord, now: float) -> None:
        """The authority has an earlier record of this term, which may name a node that is not in sync."""
        if self.primary is not None and self.primary.lease.holds(now):
            self._restore(self.primary, held, now)

    def _restore(self, primary: Primary, held: InSyncRecord | None, now: float) -> None:
        """This node's lease holds, so no other node was promoted: it has the authority take the record again,
        by compare-and-set. A change that is already being asked for meets the same state by itself."""
        if not self.keeper.busy:
            self._out.log(record_lost(held) + "; it is put back")
            expected = held.version if held is not None else None
            self.keeper.propose(
                primary.record, expected, primary.exclude_next, self.dethroned, now, primary.lease.holds
            )

    def dethroned(self, held: InSyncRecord | None, now: float) -> None:
        """The authority has a record other than this node's."""
        if held is None and self.primary is not None and self.primary.lease.holds(now):
            self._restore(self.primary, held, now)
            return
        reason = "the authority has lost the record, and this node's lease is over"
        if held is not None:
            reason = f"the authority has epoch {held.epoch} of {held.owner_name}"
        if self.primary is None:
            self.promotion.give_up(reason)
        else:
            self.step_down(reason, now)
        if held is not None:
            self._lineage.adopt(held)

    def authority_answered(
        self, request_id: int, outcome: Outcome, document: dict[str, Any] | None, now: float,
        reason: str = "", owner_gone: bool = False,
    ) -> None:  # fmt: skip
        """The authority's answer to a ReadRegister or SwapRegister, and its sentence. `owner_gone`: the lease
        of the record's owner has run out there."""
        self.keeper.answered(request_id, outcome, document, now, reason, owner_gone)
        self.settle(now)

    # -- peers

    def dial_open(self, peer: int, address: str, now: float) -> None:
        """A dial is logged in and may speak."""
        self.peers.opened(peer, address)
        self._introductions.ask(peer, self.stand())

    def dial_failed(
        self, address: str, now: float, refusal: str = "", *, nobody: bool = False, distrust: str = "",
        unresolved: str = "",
    ) -> None:  # fmt: skip
        """A dial did not get in. `refusal`: what the broker there said, or "". `nobody`: the kernel there
        says that nothing listens. `distrust`: why TLS with it failed. `unresolved`: why its name gives no
        address."""
        self.peers.failed(
            address, refusal, now, nobody=nobody, distrust=distrust, unresolved=unresolved
        )  # fmt: skip
        self.settle(now)

    def peer_lost(self, peer: int, clean: bool, now: float) -> None:
        """A connection is gone, whichever side it was opened from."""
        node_id = self.peers.lost(peer)
        self._peer_methods.lost(peer)
        self.messages.lost(peer)
        if node_id is not None:
            self._membership.member(node_id).connected = False
        if self.primary is not None:
            self.primary.peer_lost(peer, clean, now)
        elif self.backup is not None:
            linked = self.backup.peer is not None
            self.backup.peer_lost(peer, clean, now)
            self._seek(linked)
        self.settle(now)

    def method(self, peer: int, method: int, payload: bytes, now: float) -> None:
        """One extension method of a peer. What it may not say costs it the connection, and nothing else."""
        self._peer_methods.hear(peer, method, payload, now)

    # -- promotion and demotion

    def promote(
        self, token: int, new_cluster_id: str, now: float, *, force_lossy: bool = False,
        fenced: bool | str = False,
    ) -> None:  # fmt: skip
        """An operator wants this node to be primary. Answered once clients are served, or it is refused.

        `fenced`: the operator vouches that the old primary, or the node of that name, runs no more, so that
        its lease is not waited for.
        """
        if self.status.serves:
            already = f"already {self.status.value} in epoch {self._epoch}"
            if self.output_fenced:
                doubt = codes.PROMOTE_LEASE_EXPIRED.say(already=already)
                way = "have a backup or the authority answer it; if none can, end it and promote a backup"
                self._out.do(refused(token, with_next(doubt, way)))
            else:
                self._out.do(Answer(token, True, already))
        elif self.promotion.active and not (force_lossy and self.promotion.yields):
            self._out.do(refused(token, codes.PROMOTE_PENDING.say(state=self.promotion.waits_for())))
        else:
            # A resource manager that tries again and again must not keep an operator from it.
            self.promotion.give_up("an operator forces it")
            self.promotion.begin(token, new_cluster_id, now, force_lossy=force_lossy, fenced=fenced)

    def promotable(self) -> tuple[bool, str]:
        """Whether this node serves or could take over unforced, and why. Of one in sync whose link is up: as
        soon as its primary is gone. Before that, a promotion is refused.
        """
        if self.status.serves:
            return True, f"{self.status.value} in epoch {self._epoch}"
        if self.promotion.active:
            return False, self.promotion.waits_for()
        if self.pair is not None and self.pair.fault and not self.keeper.arbitrates:
            return False, self.pair.fault
        if self.backup is not None and self.status is Status.READY and self.backup.linked:
            return True, "in the in-sync set"
        if self.backup is not None and self.backup.linked:
            return False, self.backup.reason()
        if self.automatic is not None and self.automatic.trouble:
            return False, self.automatic.waits_for
        verdict = self.promotion.judge()
        differs = self.backup.disagreement if self.backup is not None else None
        if not verdict.granted and differs is not None:
            return False, with_next(verdict.reason, differs.way)
        if verdict.granted and self._tuning.wanted:
            return True, f"{verdict.reason}; confirms will wait until {wanted_words(self._tuning)}"
        return verdict.granted, verdict.sentence

    def following(self) -> Backup | None:
        return self.backup

    def ask_all(self) -> None:
        for peer in self.peers.dialed:
            self._introductions.ask(peer, self.stand())

    def stand(self) -> dict[str, Any]:
        """How this node stands, for a hello."""
        return self._introductions.document(
            self.epoch,
            self._position(),
            promoting=self.promotion.active,
            output_fenced=self.output_fenced,
            follows=self.backup.primary_name if self.backup is not None and self.backup.linked else "",
            controller=self._controller_stand(),
        )

    def _controller_stand(self) -> dict[str, Any]:
        if self.pair is None:
            return {}
        pair = self.pair
        return {"role": pair.role.value, "state": pair.state.value, "clients": self._clients()}

    def serve(self, attempt: Attempt, now: float) -> Coded | None:
        """The record that names this node is committed and durable: the epoch may begin. Why confirms are
        held for want of backups, or None.
        """
        record, old = self._local.record, attempt.old
        if record is None or record.owner != self._me.who:
            raise Broken("to serve without the record that names this node")
        self._epoch, previous = record.epoch, old.owner_name if old is not None else ""
        self._out.note("promote", view=record.epoch, peer=previous, reason=attempt.how)
        self._out.do(StartServing(record.epoch))
        self._membership.become(Status.RECOVERING)
        if self.backup is not None and self.backup.is_target:
            self.ask_all()  # who has handed over, and its operator, wait for this
        self.backup = None
        self.primary = Primary(
            self._me,
            self._tuning,
            self._membership,
            self._local,
            self._clocks,
            self._out,
            self._primary_model,
            record,
            self.keeper,
            self.dethroned,
            now,
        )
        names = ",".join(sorted(record.names.get(i.node_id, i.node_id) for i in record.in_sync))
        self._out.note("insync", view=record.epoch, name=names, n=0, reason="promoted")
        if record.confirm != ALL_DISKS:
            self._out.note("confirm_level", view=record.epoch, name=record.confirm, n=0)
        self._out.do(Announce("promoted", self._me.node_id, self._me.name, attempt.how))
        return self.primary.held()

    def switch_over(self, token: int, to: str | None, now: float) -> None:
        """An operator wants another node to be primary, and nothing to be lost by it."""
        self.switchover.begin(token, to, now)

    def inherit(self, now: float) -> None:
        """The primary has handed over to this node."""
        self.promotion.inherit(now)

    def demote(self, token: int, now: float) -> None:
        """An operator wants this node to stop serving."""
        if self.status is Status.STANDALONE:
            self._out.do(refused(token, codes.DEMOTE_STANDALONE.say()))
            return
        self.promotion.give_up("demoted meanwhile")
        self.switchover.give_up("demoted meanwhile")
        if self.status.serves:
            self.step_down("demoted by the operator", now)
        if self.automatic is not None:
            said = "an operator has demoted this node, which has followed no primary since"
            self.automatic.stop(with_next(said, "promote this node, or start another one"))
        self._out.do(Answer(token, True, f"now {self.status.value}"))

    def control(self, token: int, do: str, new_cluster_id: str, now: float) -> None:
        """An operator's word to a node that promotes itself: tell its `status`, `start` and `stop` it, or
        have it `active` or `passive`."""
        automatic, me = self.automatic, self._me.name
        if automatic is None:
            self._out.do(refused(token, codes.NO_CONTROLLER.say()))
        elif do == "status":
            self._out.do(Answer(token, True, f"{me} is {self.status.value}"))
        elif do == "start":
            automatic.switch(on=True, now=now)
            self._out.do(Answer(token, True, f"{me} promotes itself when nobody serves"))
        elif do == "stop":
            automatic.switch(on=False, now=now)
            self._out.do(
                Answer(token, True, f"{me} does not promote itself any more; it is {self.status.value}")
            )
        elif do == "active":
            automatic.go_on()
            self.promote(token, new_cluster_id, now)
        elif self.status.serves:
            self.switch_over(token, None, now)
        elif self.backup is not None and self.backup.linked:
            said = f"{me} follows {self.backup.primary_name} and is passive already; nothing was changed"
            self._out.do(Answer(token, True, said))
        elif self.promotion.active:
            pending = codes.PROMOTE_PENDING.say(state=self.promotion.waits_for())
            self._out.do(refused(token, with_next(pending, "ask again once it serves")))
        else:
            said = "an operator wants this node passive, and it has followed no primary since"
            automatic.stop(with_next(said, "understudy controller active"), yields=True)
            self._out.do(Answer(token, True, f"{me} stays passive until it has followed a primary{UNLESS}"))

    def farewell(self) -> None:
        """This process ends: tell the primary, so that it need not wait for `ack_timeout`."""
        if self.backup is not None and self.backup.peer is not None:
            self._out.do(SendMethod(self.backup.peer, Method.FAREWELL, b""))

    def step_down(self, reason: str, now: float, target: tuple[int, bytes] | None = None) -> None:
        """Stop serving, from this instant. Backups are told nothing: their links close, and they stay in the
        record. In a switchover, `target` is the target's peer and the HANDOVER that it gets."""
        if target is None and self.switchover.revocable:
            self.switchover.give_up(reason)
        if target is not None and self.automatic is not None:
            self.automatic.wait_until(now + self._tuning.backup_timeout)
        self._out.warn(codes.STOPS_SERVING.say(why=reason))
        self._out.do(StopServing(reason))
        self._out.note("demote", reason=reason)
        if target is not None:
            self._out.do(SendMethod(target[0], Method.HANDOVER, target[1]))
        for peer in self.primary.peers() if self.primary is not None else ():
            if target is not None and peer == target[0]:
                continue
            self._out.do(ClosePeer(peer, 320, "CONNECTION_FORCED - the primary stops serving"))
        self.keeper.forget()
        self.lease_renewal.forget()
        self.primary = None
        self.backup = self._as_backup()
        self._membership.become(Status.JOINING)
        self._next_poll = now
