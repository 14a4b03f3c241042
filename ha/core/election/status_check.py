"""StatusCheck: asks every other broker how it stands, and says when enough is known to judge a promotion.

Owner: HaBroker, one per promotion that is asked for. A peer counts as asked when it has answered since, or
when it could not be reached since; after `deadline` those that did neither count as unanswered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.model.values import Position
from ha.core.backup.backup import Backup
from ha.core.membership import Status
from ha.core.record.authority import Evidence, PeerAnswer
from ha.core.record.in_sync_record import InSyncRecord
from ha.core.record.local_record import LocalRecord
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning


@dataclass(slots=True)
class PeerAddress:
    """One configured address, and what is known of who is there."""

    address: str
    peer: int | None = None
    node_id: str | None = None
    incarnation: int = 0
    life: str = ""
    """Of the process that was met there."""
    is_self: bool = False
    copy_of: str = ""
    """Whose identity it has besides its owner: what it says counts for nothing. "" for its own."""
    answered_at: float = float("-inf")
    failed_at: float = float("-inf")
    refused_at: float = float("-inf")
    """When its kernel last said that nobody listens there."""
    trouble: str = ""
    """What is wrong with the broker that is there, or with the name, other than silence; "" for nothing."""

    def heard_since(self, asked_at: float) -> bool:
        """This node itself, or it has answered since, or could not be reached since, or will not count."""
        unreachable = self.failed_at >= asked_at and self.peer is None
        return self.is_self or bool(self.copy_of) or self.answered_at >= asked_at or unreachable

    def silence(self) -> str:
        """For a sentence on why nothing is known of it."""
        return f"{self.address} {self.trouble or 'does not answer'}"


@dataclass(slots=True)
class StatusCheck:
    """A promotion that waits for answers."""

    force_lossy: bool
    new_cluster_id: str
    asked_at: float
    deadline: float
    book: dict[str, PeerAddress] = field(default_factory=dict)

    def done(self, now: float) -> bool:
        return now >= self.deadline or all(a.heard_since(self.asked_at) for a in self.book.values())

    def answered(self) -> set[str]:
        """Node ids that answered since."""
        return {
            a.node_id for a in self.book.values()
            if a.node_id is not None and a.answered_at >= self.asked_at and not a.is_self
        }  # fmt: skip

    def unanswered(self) -> list[str]:
        """Of the other brokers that did not: which, and how."""
        return [a.silence() for a in self.book.values() if not a.is_self and a.answered_at < self.asked_at]


def newest_known(own: InSyncRecord | None, answers: Mapping[str, PeerAnswer]) -> InSyncRecord | None:
    """Of this node's record and the others' the one that came last."""
    known = [r for r in (own, *(a.record for a in answers.values())) if r is not None]
    return max(known, key=lambda r: r.version, default=None)


def evidence_of(
    me: OwnIdentity,
    tuning: Tuning,
    status: Status,
    local: LocalRecord,
    now: float,
    newest: InSyncRecord | None,
    cluster_id: str | None,
    backup: Backup | None,
    position: Position,
    answers: Mapping[str, PeerAnswer],
    unanswered: Sequence[str],
    foreign: Sequence[str],
    copies: Sequence[str],
    served: tuple[str, float] | None,
    left_out: str,
) -> Evidence:
    """What a promotion of this node is judged by."""
    return Evidence(
        me=me,
        status=status,
        record=local.record,
        newest=newest,
        record_lost=cluster_id is not None and local.record is None and position.epoch > 0,
        incomplete=local.copy.incomplete,
        resetting=len(local.copy.resetting),
        ended=len(local.copy.ended),
        position=position,
        linked=backup is not None and backup.linked,
        link_end=backup.link_end if backup is not None else None,
        answers=answers,
        unanswered=unanswered,
        foreign=foreign,
        copies=copies,
        ack_timeout=tuning.ack_timeout,
        served=(
            (served[0], max(0.0, now - served[1])) if served is not None and served[0] != me.name else None
        ),
        left_out=left_out,
    )
