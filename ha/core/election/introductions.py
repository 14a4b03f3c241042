"""Introductions: sends hellos, and keeps what the answers say of each peer.

Owner: HaBroker, which draws the conclusions. Makes calls on Peers and Lineage, not the other way.
"""

from __future__ import annotations

from typing import Any

from broker.model.values import Position
from ha.core.effects import ClosePeer, SendMethod
from ha.core.election.peers import Peers
from ha.core.errors import LinkError
from ha.core.membership import Membership, Status
from ha.core.outbox import Outbox
from ha.core.record.authority import PeerAnswer
from ha.core.record.lineage import Lineage
from ha.core.record.local_record import LocalRecord
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning
from ha.core.wire.hello import hello_answer, peer_answer
from ha.core.wire.link import Method, to_json


class Introductions:
    """See the module."""

    def __init__(
        self,
        me: OwnIdentity,
        tuning: Tuning,
        membership: Membership,
        local: LocalRecord,
        outbox: Outbox,
        lineage: Lineage,
        peers: Peers,
    ) -> None:
        self._me = me
        self._tuning = tuning
        self._membership = membership
        self._local = local
        self._out = outbox
        self._lineage = lineage
        self._peers = peers
        self._said = 0
        self._numbers = peers.several
        """What this node says is numbered: on several routes it may arrive in another order."""

    def document(
        self, epoch: int, position: Position, *, promoting: bool, output_fenced: bool, follows: str,
        controller: dict[str, Any],
    ) -> dict[str, Any]:  # fmt: skip
        """How this node stands, as it tells others. `controller`: role, state and clients in a pair that
        decides by itself; else empty."""
        lineage = self._lineage
        told = hello_answer(
            self._me,
            self._tuning.compatibility,
            self._membership.status,
            self._local,
            lineage.cluster_id,
            epoch,
            lineage.seen,
            position,
            promoting=promoting,
            output_fenced=output_fenced,
        )
        if self._numbers:
            self._said += 1
            told["said"] = self._said
        return told | {"follows": follows} | controller

    def ask(self, peer: int, document: dict[str, Any]) -> None:
        """Say how this node stands, and ask the same."""
        question = {**document, "ask": self._peers.question}
        self._out.do(SendMethod(peer, Method.HELLO, to_json(question)))

    def heard(
        self, peer: int, document: dict[str, Any], address: str | None, now: float
    ) -> PeerAnswer | None:
        """Note what a peer says of itself. None if no conclusion follows: the peer is this node itself, of
        another cluster, outdated, or not to be believed. `address`: it is the answer of a peer that this node
        dialed."""
        answer = peer_answer(document)
        self._numbers = self._numbers or answer.said > 0
        if answer.node_id == self._me.node_id and answer.life == self._me.life:
            if address is not None and not self._strayed(address, answer, mine=True):
                self._peers.met_self(peer, address)
                self._out.do(ClosePeer(peer, 200, "this is myself"))
            return None
        if self._copied(answer, address) or self._peers.outdated(answer, document.get("asked")):
            return None
        if address is not None and self._strayed(address, answer):
            return None
        if self._peers.earlier(answer, address):
            return None
        told, answer = answer, self._peers.newest(answer)
        if not self._lineage.foreign(answer) and self._doubted(answer, address):
            return None
        member = self._membership.member(answer.node_id)
        member.name, member.incarnation = answer.name, answer.incarnation
        member.status, member.epoch = answer.status, answer.epoch
        if address is not None:
            member.address, member.connected = self._peers.public(address), True
            self._peers.answered(address, answer, document.get("asked"), now)
        if told is answer:
            self._peers.heard(answer, now)
        if not self._lineage.foreign(answer):
            if address is not None:
                self._peers.found_ours(address)
            self._lineage.differ(answer, {a.number for a in self._peers.answers.values()})
            return answer
        if (
            address is not None
            and (said := self._peers.found_foreign(address, answer.cluster_id)) is not None
        ):
            self._out.log(said)
        return None

    def _strayed(self, address: str, answer: PeerAnswer, *, mine: bool = False) -> bool:
        """Is another node on an earlier route of that member? Nothing follows from what this one says here:
        it says the same at its own address."""
        if (said := self._peers.one_node(address, answer.node_id, mine=mine)) is not None:
            self._out.log(said)
        return self._peers.is_stray(address)

    def _doubted(self, answer: PeerAnswer, address: str | None) -> bool:
        """Does it tell of epochs that cannot be? LinkError of one that dialed in."""
        record = self._local.record
        is_primary = self._membership.status in (Status.RECOVERING, Status.ACTIVE)
        serves_in = record.epoch if is_primary and record is not None else None
        why = self._lineage.doubt(answer, serves_in)
        if why and address is None:
            raise LinkError(f"{answer.name} {why}")
        if why and address is not None and (said := self._peers.doubted(address, why)) is not None:
            self._out.log(said)
        return bool(why)

    def _copied(self, answer: PeerAnswer, address: str | None) -> bool:
        """Does another process have this node's identity, or that of a peer at another address? Nothing that
        it says is believed: since the data directory was copied, the two may have diverged."""
        if self._peers.known_as_copy(answer):
            return True
        mine = answer.node_id == self._me.node_id
        twin = None if mine else self._peers.twin(answer, address)
        if not mine and twin is None:
            return False
        if address is not None and (said := self._peers.copied(address, answer, twin)) is not None:
            self._out.log(said)
        return True
