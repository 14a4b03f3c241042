"""What nodes tell each other of themselves: HELLO, HELLO_OK, JOIN. A codec for HaBroker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from broker.model.values import Position
from ha.core import codes
from ha.core.compatibility import Compatibility, compatibility_from_json
from ha.core.errors import LinkError
from ha.core.membership import Membership, Status
from ha.core.record.authority import PeerAnswer
from ha.core.record.in_sync_record import Incarnation, count, label, record_from_json
from ha.core.record.local_record import LocalRecord
from ha.core.role import OwnIdentity
from ha.core.wire.link import VERSION
from understudy.shared.codes import Coded

COPY = "one of the two data directories is a copy of the other; give one of the two nodes an empty one"
"""What is to be done where two nodes have one identity."""


def hello_answer(
    me: OwnIdentity, compatibility: Compatibility, status: Status, local: LocalRecord, cluster_id: str | None,
    epoch: int, seen: int, position: Position, *, promoting: bool, output_fenced: bool,
) -> dict[str, Any]:  # fmt: skip
    """How this node stands. `promoting`: an operator has asked for its promotion, and it does not serve yet.
    `output_fenced`: it serves, but its lease has expired: clients get nothing.
    """
    record, replica = local.record, local.replica
    return {
        "node_id": me.node_id,
        "name": me.name,
        "incarnation": me.incarnation,
        "life": me.life,
        "number": me.number,
        "cluster_id": cluster_id,
        "epoch": epoch,
        "seen": seen,
        "status": status.value,
        "serving": status.serves,
        "promoting": promoting,
        "withheld": output_fenced,
        "position": list(position),
        "incomplete": replica.incomplete,
        "resetting": replica.spoilt,
        "version": VERSION,
        "messages": True,
        "record": record.as_json() if record is not None else None,
        "terms": dict(compatibility),
    }


def peer_answer(document: dict[str, Any]) -> PeerAnswer:
    """How a peer stands; LinkError if that cannot be read."""
    try:
        record = document.get("record")
        epoch, n = document["position"]
        cluster = document.get("cluster_id")
        return PeerAnswer(
            node_id=label(document["node_id"]),
            name=label(document["name"]),
            incarnation=count(document["incarnation"]),
            life=label(document.get("life", "")),
            status=label(document["status"]),
            serving=bool(document["serving"]),
            epoch=count(document["epoch"]),
            position=Position(count(epoch), count(n)),
            record=record_from_json(record) if record is not None else None,
            cluster_id=label(cluster) if cluster is not None else None,
            incomplete=bool(document.get("incomplete")),
            resetting=count(document.get("resetting", 0)),
            number=count(document.get("number", 0)),
            seen=count(document.get("seen", 0)),
            promoting=bool(document.get("promoting", False)),
            output_fenced=bool(document.get("withheld", False)),
            follows=label(document.get("follows", "")),
            role=label(document.get("role", "")),
            state=label(document.get("state", "")),
            clients=count(document.get("clients", 0)),
            takes_messages=bool(document.get("messages", False)),
            said=count(document.get("said", 0)),
            compatibility=compatibility_from_json(document.get("terms", {})),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LinkError(f"a hello that cannot be read: {error!r}") from error


def serving_peer(answers: Mapping[str, PeerAnswer], membership: Membership, least: int) -> str | None:
    """Name and address of the connected peer that serves in the highest epoch, `least` or above."""
    serving = [a for a in answers.values() if a.serving and membership.member(a.node_id).connected]
    best = max(serving, key=lambda a: a.epoch, default=None)
    if best is None or best.epoch < least:
        return None
    address = membership.member(best.node_id).address
    return f"{best.name} at {address}" if address else best.name


class Joined(Protocol):
    """A backup that a primary has already, as far as a join looks at it."""

    @property
    def peer(self) -> object: ...
    @property
    def who(self) -> Incarnation: ...
    @property
    def life(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...


@dataclass(slots=True, frozen=True)
class JoinRequest:
    """A peer that wants to be a backup."""

    who: Incarnation
    name: str
    number: int
    epoch: int
    cluster_id: str | None
    version: object
    life: str = ""
    asked_at: int = 0
    """Microseconds of its clock; 0 if it has one route only."""

    def refusal(
        self,
        me: OwnIdentity,
        cluster_id: str | None,
        status: Status,
        backups: Iterable[Joined],
        *,
        epoch: int | None,
        holds: int = 0,
    ) -> Coded | None:
        """Why it cannot be taken in, or None. `epoch`: in which this node is primary, with these `backups`;
        None if it is not. `holds`: the epoch of what the peer's copy has last.
        """
        if epoch is None:
            return codes.JOIN_NOT_PRIMARY.say(node=me.name, status=status.value)
        if self.version != VERSION:
            return codes.JOIN_LINK_VERSION.say(its=self.version, ours=VERSION)
        if self.cluster_id is not None and self.cluster_id != cluster_id:
            return codes.JOIN_FOREIGN_CLUSTER.say(its=self.cluster_id, ours=cluster_id)
        if self.epoch > epoch:
            return codes.JOIN_LATER_EPOCH.say(its=self.epoch, node=me.name, epoch=epoch)
        if holds > epoch:  # a copy goes from epoch to epoch, and never back
            return codes.JOIN_FOREIGN_HISTORY.say(holds=holds, node=me.name, epoch=epoch)
        if self.who.node_id == me.node_id:
            return codes.JOIN_OWN_IDENTITY.say(way=COPY)
        if self.number == me.number:
            return codes.JOIN_SAME_NUMBER.say(number=self.number)
        if self.name == me.name:
            return codes.JOIN_SAME_NAME.say(name=self.name)
        clashes = (self._clash(backup) for backup in backups if backup.peer is not None)
        return next((clash for clash in clashes if clash is not None), None)

    def _clash(self, backup: Joined) -> Coded | None:
        """Why this peer and the backup cannot both be in the pair, or None."""
        if backup.who.node_id == self.who.node_id:
            restarted = backup.life == self.life or self.who.number > backup.who.number
            return None if restarted else codes.JOIN_IDENTITY_COPIED.say(name=backup.name, way=COPY)
        # Found out now, not when one of the two serves and the other can no longer follow it.
        if backup.number == self.number:
            return codes.JOIN_BACKUP_SAME_NUMBER.say(name=backup.name, number=self.number)
        if backup.name == self.name:
            return codes.JOIN_BACKUP_SAME_NAME.say(name=self.name)
        return None


def join_request(document: dict[str, Any]) -> JoinRequest:
    """LinkError if it cannot be read."""
    cluster = document.get("cluster_id")
    try:
        return JoinRequest(
            Incarnation(label(document["node_id"]), count(document["incarnation"])),
            label(document["name"]),
            count(document["number"]),
            count(document["epoch"]),
            label(cluster) if cluster is not None else None,
            document.get("version"),
            label(document.get("life", "")),
            count(document.get("asked_at", 0)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LinkError("a join request that cannot be read") from error
