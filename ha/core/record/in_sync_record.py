"""The in-sync record: the epoch, its owner, and the incarnations that hold every confirmed message.

A value, kept durably by the authority. Called by HaBroker, Primary and the authorities. Within an epoch only
its owner makes new revisions, so (epoch, revision) orders all records of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ha.core.errors import LinkError

EPOCH_STEP = 1 << 16
"""An epoch is a counter x 2^16 + the node's number: two nodes never mint the same one."""
MOST_TERMS = 1 << 22
"""Promotions, and starts of a standalone broker, that a node may have missed: one each 2 s, for 97 days."""
ALL_DISKS, PRIMARY_DISK, ALL_MEMORY = "all-disks", "primary-disk", "all-memory"
"""Levels of confirms, as in `broker.model.values`, which has nothing to do here."""
_MOST = 1 << 62
_LONGEST = 100


class Incarnation(NamedTuple):
    """One process life of one node. A restarted node is another incarnation and must join again."""

    node_id: str
    number: int


class RecordVersion(NamedTuple):
    """Orders records; (0, 0) is before all."""

    epoch: int
    revision: int


@dataclass(slots=True, frozen=True)
class InSyncRecord:
    """Immutable; each change makes a new revision."""

    cluster_id: str
    epoch: int
    revision: int
    owner: Incarnation
    in_sync: frozenset[Incarnation]
    """The backups; the owner is not among them."""
    names: Mapping[str, str] = field(default_factory=dict)
    confirm: str = ALL_DISKS
    """The weakest level by which persistent messages are confirmed: below ALL_DISKS, disks may lack some that
    are."""

    @property
    def version(self) -> RecordVersion:
        return RecordVersion(self.epoch, self.revision)

    @property
    def owner_name(self) -> str:
        return self.names.get(self.owner.node_id, self.owner.node_id[:8])

    @property
    def node_ids(self) -> frozenset[str]:
        """Of the owner and the backups, regardless of their incarnation."""
        return frozenset({self.owner.node_id, *(i.node_id for i in self.in_sync)})

    def included(self, who: Incarnation, name: str) -> InSyncRecord:
        """With `who` in sync; an older incarnation of the same node leaves at once."""
        others = {i for i in self.in_sync if i.node_id != who.node_id}
        return replace(
            self, revision=self.revision + 1, in_sync=frozenset(others | {who}),
            names=self._names_of({*others, self.owner}) | {who.node_id: name},
        )  # fmt: skip

    def excluded(self, who: Incarnation) -> InSyncRecord:
        return replace(self, revision=self.revision + 1, in_sync=self.in_sync - {who})

    def under(self, confirm: str) -> InSyncRecord:
        """With another level of confirms."""
        return replace(self, revision=self.revision + 1, confirm=confirm)

    def promoted(self, epoch: int, who: Incarnation, name: str, cluster_id: str) -> InSyncRecord:
        """The record of a new epoch: the old set less the old owner and less the new one."""
        in_sync = frozenset(i for i in self.in_sync if i.node_id not in (who.node_id, self.owner.node_id))
        names = self._names_of(in_sync) | {who.node_id: name}
        return InSyncRecord(cluster_id, epoch, 1, who, in_sync, names, self.confirm)

    def _names_of(self, those: Iterable[Incarnation]) -> dict[str, str]:
        """No more than these: a record must not grow with every node that ever was in it."""
        return {i.node_id: self.names[i.node_id] for i in those if i.node_id in self.names}

    def as_json(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "epoch": self.epoch,
            "revision": self.revision,
            "owner": list(self.owner),
            "in_sync": sorted(list(i) for i in self.in_sync),
            "names": dict(self.names),
            **({} if self.confirm == ALL_DISKS else {"confirm": self.confirm}),
        }


def first_record(
    cluster_id: str, epoch: int, owner: Incarnation, name: str, confirm: str = ALL_DISKS
) -> InSyncRecord:
    """The record that a bootstrap makes: an owner, and no backup in sync."""
    return InSyncRecord(cluster_id, epoch, 1, owner, frozenset(), {owner.node_id: name}, confirm)


def next_record(
    old: InSyncRecord | None, how: str, epoch: int, who: Incarnation, name: str, cluster_id: str
) -> InSyncRecord:
    """The record of a promotion. Only an unforced one has backups in sync. What it serves may not be on its
    disk yet, so that the level of confirms stays what it was until it is."""
    if old is not None and how == "unforced":
        return old.promoted(epoch, who, name, cluster_id)
    return first_record(cluster_id, epoch, who, name, ALL_DISKS if old is None else old.confirm)


def is_behind(held: InSyncRecord | None, own: InSyncRecord | None) -> bool:
    """What an authority held when it was read is older than a record that was committed there."""
    if own is None or held is None:
        return own is not None
    return held.cluster_id == own.cluster_id and held.version < own.version


def is_beyond(epoch: int, known: int) -> bool:
    """Whether no cluster gets from epoch `known` to `epoch`: each term raises the counter by one."""
    return epoch - known > MOST_TERMS * EPOCH_STEP


def refuse_unfounded(record: InSyncRecord, known: InSyncRecord | None) -> None:
    """LinkError if a primary's `record` cannot have come from the one that this node has."""
    if known is not None and record.cluster_id != known.cluster_id:
        raise LinkError(f"a record of cluster {record.cluster_id}, and this node's is of {known.cluster_id}")
    least = known.epoch if known is not None else 0
    if is_beyond(record.epoch, least):
        raise LinkError(f"a record of epoch {record.epoch}, which cannot follow {least}")


def record_from_json(document: Any) -> InSyncRecord:
    """Read what `as_json` wrote; LinkError if it is anything else."""
    try:
        return InSyncRecord(
            cluster_id=str(document["cluster_id"]),
            epoch=count(document["epoch"]),
            revision=count(document["revision"]),
            owner=_incarnation(document["owner"]),
            in_sync=frozenset(_incarnation(i) for i in document["in_sync"]),
            names={str(k): label(v) for k, v in document.get("names", {}).items()},
            confirm=_level(document.get("confirm", ALL_DISKS)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LinkError(f"not an in-sync record: {error}") from error


def _level(name: object) -> str:
    if name not in (ALL_DISKS, PRIMARY_DISK, ALL_MEMORY):
        raise ValueError("a level of confirms that this version does not know")
    return str(name)


def _incarnation(pair: Any) -> Incarnation:
    node_id, number = pair
    return Incarnation(str(node_id), count(number))


def count(value: Any) -> int:
    """A number out of a document from outside: whole, not negative, and fit for 8 octets with room to go on
    from there. ValueError or TypeError for anything else.
    """
    try:
        number = int(value)
    except OverflowError as error:  # of an infinity, which JSON as Python reads it may hold
        raise ValueError("an infinite number") from error
    if not 0 <= number < _MOST:
        raise ValueError("a number out of range")
    return number


def label(value: Any) -> str:
    """A name out of such a document, as it may stand in any sentence: of bounded length, and encodable."""
    return str(value)[:_LONGEST].encode("utf-8", "replace").decode()
