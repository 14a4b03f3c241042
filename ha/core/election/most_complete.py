"""Which node has most of what was confirmed, by a record and what the nodes say of themselves.

Pure. The order is total, and made of nothing but what each node also tells the others: two nodes that have
heard each other never name each other.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.model.values import Position
from ha.core.record.authority import Evidence, PeerAnswer
from ha.core.record.in_sync_record import Incarnation, InSyncRecord

OWNER, IN_SYNC, NAMED, NAMED_IN_PART, OTHER, IN_PART = 5, 4, 3, 2, 1, 0
"""Standings. The first two: this very process is in the record, so that it has everything in memory. The next
two: the node is in the record, and was started again since."""

WHY = {
    OWNER: "was the last primary, and has run without a restart since",
    IN_SYNC: "is in the newest in-sync set, and has run without a restart since",
    NAMED: "has a whole copy of the newest in-sync set, unlike this node",
    NAMED_IN_PART: "is in the newest in-sync set, unlike this node",
    OTHER: "has a whole copy, unlike this node",
}


class Holding(NamedTuple):
    """The greater, the more."""

    standing: int
    position: Position
    owner: bool
    """Of two that are alike, the last primary goes first."""
    node_id: str


def holding(
    who: Incarnation, record: InSyncRecord, position: Position, *, incomplete: bool, spoilt: bool
) -> Holding:
    """What that process holds. `spoilt`: it was in sync, and lacks some of its queues since."""
    node_id = who.node_id
    standing = IN_PART if incomplete or spoilt else OTHER
    if who == record.owner:
        standing = OWNER
    elif who in record.in_sync and not spoilt:
        standing = IN_SYNC
    elif node_id in record.node_ids:
        standing = NAMED_IN_PART if incomplete or spoilt else NAMED
    return Holding(standing, position, node_id == record.owner.node_id, node_id)


def held_here(e: Evidence, record: InSyncRecord) -> Holding:
    """What this node holds."""
    spoilt = e.resetting + e.ended > 0
    return holding(e.me.who, record, e.position, incomplete=e.incomplete, spoilt=spoilt)


def held_there(answer: PeerAnswer, record: InSyncRecord) -> Holding:
    """What another node holds."""
    who = Incarnation(answer.node_id, answer.incarnation)
    spoilt = answer.resetting > 0
    return holding(who, record, answer.position, incomplete=answer.incomplete, spoilt=spoilt)


def most_complete(e: Evidence, record: InSyncRecord) -> PeerAnswer | None:
    """The node that has most, of those that answer; None if it is this one."""
    best, most = None, held_here(e, record)
    for answer in e.answers.values():
        if (held := held_there(answer, record)) > most:
            best, most = answer, held
    return best


def has_all_alone(e: Evidence, record: InSyncRecord, node_id: str) -> bool:
    """Would a promotion of that node, which answers, be refused because this one has more?"""
    answer = e.answers.get(node_id)
    if answer is None or answer.serving or answer.promoting:
        return False
    there, here = held_there(answer, record), held_here(e, record)
    if there.standing >= IN_SYNC or here.standing < NAMED:
        return False
    return here.standing >= IN_SYNC or there.standing < NAMED or there.position < here.position


def why_more(e: Evidence, answer: PeerAnswer, record: InSyncRecord) -> str:
    """What that node has over this one, after its name."""
    there, here = held_there(answer, record), held_here(e, record)
    if there.standing > here.standing:
        return WHY[there.standing]
    if there.position > here.position:
        return f"has a later copy: position {tuple(there.position)}, this node {tuple(here.position)}"
    return "has as much as this node, and goes first"
