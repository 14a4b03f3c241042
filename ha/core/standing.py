"""How a primary stands with its backups, for people: one sentence, and the figures of each.

Called by Primary; reads only. The sentence names what matters most: what holds the confirms up now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ha.core.remote_backup import Phase, RemoteBackup

TAKEN_IN = (Phase.GUARDED, Phase.INCLUDING, Phase.COMMITTED)
"""Confirms wait for it, and it is not known to be in the record, or has not heard of it."""


def reason_of(backups: Iterable[RemoteBackup], leaving: Sequence[str], *, withheld: bool, held: bool) -> str:
    """`leaving`: names of those whose exclusion is being committed; `held`: the loss policy, or
    `ha.min_backups`, wants more in sync.
    """
    if withheld:
        return "primary, but the proof of that is too old: nothing is confirmed or delivered for now"
    if leaving:
        return f"serving; confirms wait until the exclusion of {', '.join(leaving)} is committed"
    backups = list(backups)
    if lost := [b.name for b in backups if b.phase is Phase.LOST]:
        return f"serving; the link of {', '.join(lost)} closed, confirms wait until it is back or excluded"
    if missing := [b.name for b in backups if b.expected]:
        return f"serving; confirms wait for {', '.join(missing)}, expected back from before the promotion"
    if held:
        return "serving, but confirms are held: ha.min_backups or the loss policy wants more in sync"
    ready = sorted(b.name for b in backups if b.phase is Phase.IN_SYNC)
    coming = [f"{b.name}, which is being taken in" for b in backups if b.phase in TAKEN_IN]
    if ready or coming:
        return f"serving; confirms wait for {', '.join([*ready, *coming])}"
    return "serving alone; confirms wait for no backup"


def state_of(backup: RemoteBackup) -> dict[str, Any]:
    """What the status command shows of it."""
    return {
        "in_sync": backup.phase is Phase.IN_SYNC,
        "phase": backup.phase.value,
        "lag": backup.lag,
        "lag_bytes": backup.in_flight,
        "applied": list(backup.acked),
        "durable": list(backup.acked_durable),
        "queues_left": len(backup.queue),
    }
