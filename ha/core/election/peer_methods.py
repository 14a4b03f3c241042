"""PeerMethods: serves the methods of extension class 250 that peers send.

Owner: HaBroker, for the node's life. Makes calls on the node's role, on Introductions and Lineage, and
through `Listener` on HaBroker where a method ends a role.
"""

from __future__ import annotations

from typing import Any, Protocol

from ha.core import codes
from ha.core.backup.backup import Backup
from ha.core.compatibility import difference, disagreement
from ha.core.effects import ExpelPeer, SendMethod
from ha.core.election.introductions import Introductions
from ha.core.election.peers import Peers
from ha.core.election.promotion import Promotion
from ha.core.errors import LinkError
from ha.core.membership import Membership, Status
from ha.core.outbox import Outbox
from ha.core.peer_messages import PeerMessages
from ha.core.primary.primary import Primary
from ha.core.record.authority import PeerAnswer
from ha.core.record.in_sync_record import Incarnation, is_beyond
from ha.core.record.lineage import Lineage
from ha.core.record.local_record import LocalRecord
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning
from ha.core.wire.hello import join_request
from ha.core.wire.link import Ack, Method, parse_ack, parse_json, to_json
from ha.core.wire.queue_snapshot import HaveDecoder

HAVE_MOST = 256 << 20
"""Octets of HAVE before a JOIN: ranges of ids, by queue; far more than any disk makes."""


class Listener(Protocol):
    """What HaBroker is, and does, for what its peers say."""

    primary: Primary | None
    backup: Backup | None
    promotion: Promotion
    messages: PeerMessages

    @property
    def status(self) -> Status: ...

    @property
    def epoch(self) -> int:
        """The one that is served in, else that of the newest record known."""

    def stand(self) -> dict[str, Any]:
        """How this node stands, for a hello."""

    def settle(self, now: float) -> None:
        """Go on with what waits for answers."""

    def step_down(self, reason: str, now: float) -> None:
        """Serve no more, from this instant."""

    def inherit(self, now: float) -> None:
        """The primary has handed over to this node."""


class PeerMethods:
    """`hear` is all there is to call, but for `lost`."""

    def __init__(
        self, me: OwnIdentity, tuning: Tuning, membership: Membership, local: LocalRecord, outbox: Outbox,
        introductions: Introductions, lineage: Lineage, peers: Peers,
        node: Listener,
    ) -> None:  # fmt: skip
        self._me = me
        self._tuning = tuning
        self._membership = membership
        self._local = local
        self._out = outbox
        self._introductions = introductions
        self._lineage = lineage
        self._peers = peers
        self._node = node
        self._have: dict[int, HaveDecoder] = {}
        self._last_refusal = ""
        self.not_taken_in: dict[int, str] = {}
        """Of peers that are there and asked to join: who, and why not."""

    def lost(self, peer: int) -> None:
        """A connection is gone."""
        self._have.pop(peer, None)
        self.not_taken_in.pop(peer, None)
        if self._node.backup is not None:
            self._node.backup.reconcile(peer)

    def hear(self, peer: int, method: int, payload: bytes, now: float) -> None:
        """One method. What a peer may not say costs it the connection, and nothing else."""
        node = self._node
        try:
            self._hear(peer, method, payload, now)
        except LinkError as error:
            if who := self._who(peer):
                self._out.warn(codes.LINK_MISUSED.say(peer=who, fault=error))
            if node.primary is not None and node.primary.backup_at(peer) is not None:
                node.primary.drop_peer(peer, str(error), now)
                return
            if node.backup is not None:
                node.backup.peer_lost(peer, False, now)  # it was not the primary that closed it
            self._out.do(ExpelPeer(peer, f"FRAME_ERROR - {error}"))

    def _who(self, peer: int) -> str:
        """Its name, or its address; empty for one that dialed in and has not said, of which the connection's
        own line tells.
        """
        node = self._node
        remote = node.primary.backup_at(peer) if node.primary is not None else None
        if remote is not None:
            return remote.name
        if node.backup is not None and node.backup.peer == peer:
            return node.backup.primary_name
        return self._peers.address_of(peer) or ""

    def _hear(self, peer: int, method: int, payload: bytes, now: float) -> None:
        if method == Method.ACK:
            self._ack(peer, parse_ack(payload), now)
        elif method in _FROM_A_PRIMARY:
            if self._node.backup is not None and self._node.backup.peer == peer:
                self._follow(self._node.backup, method, payload, now)
        elif method == Method.HELLO:
            question = parse_json(payload, "a hello")
            self._hello(peer, question, now, None)
            answer = {**self._node.stand(), "asked": question.get("ask")}
            self._out.do(SendMethod(peer, Method.HELLO_OK, to_json(answer)))
        elif method == Method.HELLO_OK:
            told = parse_json(payload, "an answer to a hello")
            self._hello(peer, told, now, self._peers.address_of(peer))
        elif method == Method.PEER_MESSAGE:
            self._node.messages.heard(peer, payload)
        elif method == Method.HAVE:
            have = self._have.setdefault(peer, HaveDecoder())
            have.feed(payload)
            if have.received > HAVE_MOST:
                raise LinkError("it holds more than a request to join may say")
        elif method == Method.RESET_QUEUE:
            if self._node.primary is not None:
                self._node.primary.reset_queue(peer, payload[:16], payload[16:].decode("utf-8", "replace"))
        elif method == Method.FAREWELL:
            if self._node.primary is not None:
                self._node.primary.drop_peer(peer, "it has stopped", now)
        elif method == Method.JOIN:
            self._join(peer, parse_json(payload, "a join request"), now)
        else:
            raise LinkError(f"unknown link method {method}")

    def _follow(self, backup: Backup, method: int, payload: bytes, now: float) -> None:
        """The primary that this node follows, or has asked to be taken in by, speaks."""
        self._peers.heard_to_serve(backup.primary_name, now)
        if method == Method.DATA:
            backup.data(payload, now)
        elif method == Method.HEARTBEAT:
            backup.heartbeat(payload, now)
        elif method == Method.JOIN_OK:
            backup.join_ok(payload, now)
            self._lineage.learn(self._local.record)
        elif method == Method.EXCLUDED:
            backup.excluded(payload)
        elif method == Method.HANDOVER and (end := backup.handed_over(payload, now)) is not None:
            self._peers.over(end.primary_id, end.epoch)
            self._node.inherit(now)

    def _ack(self, peer: int, ack: Ack, now: float) -> None:
        """A peer that follows this node's epoch knows of no later one."""
        primary = self._node.primary
        if primary is None:
            return
        if is_beyond(ack.record.epoch, primary.epoch):
            raise LinkError(f"acknowledged epoch {ack.record.epoch}, which cannot follow {primary.epoch}")
        if ack.record.epoch > primary.epoch and peer in primary.peers():
            self._node.step_down(f"a backup knows of epoch {ack.record.epoch}", now)
        else:
            primary.ack(peer, ack, now)

    # -- who is who

    def _hello(self, peer: int, document: dict[str, Any], now: float, address: str | None) -> None:
        """A peer says how it stands. `address`: it is the answer of one that we dialed."""
        answer = self._introductions.heard(peer, document, address, now)
        if answer is not None:
            news = answer.serving and answer.epoch > self._node.epoch
            self._meet(answer, now)
            self._compare(peer, answer)
            if address is not None and answer.serving:
                self._consider(peer, answer, now)
            elif news:
                self._ask_back(answer)
        self._node.settle(now)

    def _meet(self, answer: PeerAnswer, now: float) -> None:
        """Learn from what it knows. A primary that meets a higher epoch stops at once."""
        node = self._node
        if node.status is Status.STANDALONE:  # nobody succeeds a broker of its own
            return
        if answer.epoch > node.epoch and node.status.serves:
            node.step_down(
                f"{answer.name} knows of epoch {answer.epoch}, this node serves in {node.epoch}", now
            )
        if not node.status.serves and answer.record is not None:
            self._lineage.adopt(answer.record)
        self._lineage.saw(answer.seen, answer.epoch)
        backup, record = node.backup, self._local.record
        if backup is not None and record is not None and backup.linked and backup.epoch < record.epoch:
            self._out.log(codes.NEWER_PRIMARY.say(primary=backup.primary_name, epoch=record.epoch))
            backup.leave(now)
        who = Incarnation(answer.node_id, answer.incarnation)
        if backup is not None and record is not None and answer.promoting and who == record.owner:
            backup.forsaken(now)
        if node.primary is not None:
            node.primary.met(who, now)

    def _compare(self, peer: int, answer: PeerAnswer) -> None:
        """A primary says whose configuration keeps it from following; once, and in its status."""
        backup, member = self._node.backup, self._membership.member(answer.node_id)
        if backup is not None and not answer.serving:
            backup.reconcile(peer)
        told = ""
        if self._node.primary is not None:
            told = difference(self._tuning.compatibility, answer.compatibility, answer.name)
        if told and told != member.differs:
            self._out.warn(codes.SETTINGS_DIFFER.say(node=answer.name, why=told))
        member.differs = told

    def _consider(self, peer: int, answer: PeerAnswer, now: float) -> None:
        """A serving node was found: join it, unless we follow it already or know of a newer one."""
        backup = self._node.backup
        if backup is None or backup.peer is not None or self._node.promotion.active:
            return
        if answer.epoch < self._node.epoch:
            return
        about = disagreement(peer, answer.name, self._tuning.compatibility, answer.compatibility)
        if about is not None:
            backup.disagree(about)
        else:
            backup.join(peer, answer.node_id, answer.name, now)

    def _ask_back(self, answer: PeerAnswer) -> None:
        """A new primary has said that it is one: it is waiting, so ask it where this node may follow it."""
        entry = self._peers.at(answer.node_id)
        if entry is not None and self._node.backup is not None:
            for peer in entry.peers:
                self._introductions.ask(peer, self._node.stand())

    def _join(self, peer: int, request: dict[str, Any], now: float) -> None:
        """A peer asks to be taken in."""
        node, cluster_id = self._node, self._lineage.cluster_id
        held = self._have.pop(peer, HaveDecoder()).whole()
        ask = join_request(request)
        primary = node.primary
        if primary is not None and ask.cluster_id == cluster_id and ask.epoch > primary.epoch:
            self._introductions.ask(peer, node.stand())  # its answer shows the record, or there is none
        backups = primary.backups.values() if primary is not None else ()
        epoch = primary.epoch if primary is not None else None
        told = self._peers.answers.get(ask.who.node_id)
        holds = told.position.epoch if told is not None else 0
        refusal = ask.refusal(self._me, cluster_id, node.status, backups, epoch=epoch, holds=holds)
        if refusal is not None or primary is None:
            said = refusal.sentence if refusal is not None else ""
            if said != self._last_refusal and refusal is not None:
                self._out.warn(refusal.about(f"{ask.name} is not taken in"))
            self._last_refusal = said
            self.not_taken_in[peer] = f"{ask.name} is not taken in: {said}"
            answer = refusal.answer() if refusal is not None else {"ok": False, "reason": ""}
            self._out.do(SendMethod(peer, Method.JOIN_OK, to_json(answer)))
            return
        self.not_taken_in.pop(peer, None)
        primary.join(peer, ask, held, now)


_FROM_A_PRIMARY = (Method.DATA, Method.HEARTBEAT, Method.JOIN_OK, Method.EXCLUDED, Method.HANDOVER)
"""Of anybody else they are late, and nothing follows from them."""
