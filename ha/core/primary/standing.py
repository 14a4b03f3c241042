"""How a primary stands with its backups, for people: one sentence, and the figures of each.

Called by Primary; reads only. The sentence names what matters most: what holds the confirms up now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ha.core import codes
from ha.core.primary.remote_backup import Phase, RemoteBackup
from ha.core.tuning import Tuning
from understudy.shared.codes import Coded

TAKEN_IN = (Phase.GUARDED, Phase.INCLUDING, Phase.COMMITTED)
"""Confirms wait for it, and it is not known to be in the record, or has not heard of it."""

JOINING = (Phase.ASKED, Phase.WAITING, Phase.CATCHING)
"""Confirms do not wait for it yet."""


def reason_of(
    backups: Iterable[RemoteBackup], leaving: Sequence[str], *, output_fenced: bool, held: Coded | None
) -> str:
    """`leaving`: names of those whose exclusion is being committed; `held`: see `held_words`."""
    if output_fenced:
        return "primary, but the proof of that is too old: nothing is confirmed or delivered for now"
    if leaving:
        return f"serving; confirms wait until the exclusion of {', '.join(leaving)} is committed"
    backups = list(backups)
    if lost := [b.name for b in backups if b.phase is Phase.LOST]:
        return f"serving; the link of {', '.join(lost)} closed, confirms wait until it is back or excluded"
    if missing := [b.name for b in backups if b.expected]:
        return f"serving; confirms wait for {', '.join(missing)}, expected back from before the promotion"
    if held is not None:
        return f"serving, but {held.sentence}"
    ready = sorted(b.name for b in backups if b.phase is Phase.IN_SYNC)
    coming = [f"{b.name}, which is being taken in" for b in backups if b.phase in TAKEN_IN]
    joining = "".join(f"; {b.name} is catching up" for b in backups if b.phase in JOINING)
    if ready or coming:
        return f"serving; confirms wait for {', '.join([*ready, *coming])}{joining}"
    return f"serving alone; confirms wait for no backup{joining}"


def wanted_words(tuning: Tuning) -> str:
    """How many backups have to be in sync, and what says so."""
    keys = [f"ha.min_backups is {tuning.min_backups}"] if tuning.min_backups else []
    if tuning.block_on_loss:
        keys.append("ha.on_backup_loss is block")
    many = "a backup is" if tuning.wanted == 1 else f"{tuning.wanted} backups are"
    return f"{many} in sync ({' and '.join(keys)})"


def held_words(tuning: Tuning, backups: Iterable[RemoteBackup]) -> Coded:
    """What is waited for with fewer in sync than are wanted, and the way out for whoever cannot have that."""
    backups = list(backups)
    there = sum(b.phase is Phase.IN_SYNC for b in backups)
    coming = sorted(
        b.name for b in backups if b.expected or (b.peer is not None and b.phase is not Phase.IN_SYNC)
    )
    step = f"on the way: {', '.join(coming)}" if coming else "start another broker"
    others = [f"ha.min_backups={there}"] if tuning.min_backups > there else []
    if tuning.block_on_loss and not there:
        others.append("ha.on_backup_loss=continue")
    return codes.CONFIRMS_HELD.say(wanted=wanted_words(tuning), step=step, keys=" and ".join(others))


def state_of(backup: RemoteBackup) -> dict[str, Any]:
    """What the status command shows of it. How far it is behind is known of one that gets the stream."""
    state: dict[str, Any] = {
        "in_sync": backup.phase is Phase.IN_SYNC,
        "phase": backup.phase.value,
        "applied": list(backup.acked),
        "durable": list(backup.acked_durable),
    }
    if backup.live:
        state |= {
            "lag": backup.lag, "lag_bytes": backup.in_flight + backup.held_bytes,
            "queues_left": len(backup.queue),
        }  # fmt: skip
    return state
