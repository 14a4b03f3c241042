"""What a promotion is judged by: this node's own state, and what the others have said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.model.values import Position
from ha.core.backup.backup import Backup
from ha.core.membership import Status
from ha.core.record.authority import Evidence, PeerAnswer
from ha.core.record.in_sync_record import InSyncRecord
from ha.core.record.local_record import LocalRecord
from ha.core.role import OwnIdentity
from ha.core.tuning import Tuning


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
    silent: bool,
) -> Evidence:
    """What a promotion of this node is judged by."""
    return Evidence(
        me=me,
        status=status,
        record=local.record,
        newest=newest,
        record_lost=cluster_id is not None and local.record is None and position.epoch > 0,
        incomplete=local.replica.incomplete,
        resetting=len(local.replica.resetting),
        ended=len(local.replica.ended),
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
        silent=silent,
    )
