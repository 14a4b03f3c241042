"""Compatibility: the settings that two nodes must share before one may be the backup of the other.

The hello carries it; PeerMethods compares. A lease that differs could be waited out too briefly; a level, a
loss policy or a number of backups that differs would change, at a failover, what a confirm promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ha.core import codes
from ha.core.errors import LinkError
from ha.core.record.in_sync_record import label
from understudy.shared.codes import Coded

Compatibility = Mapping[str, str]
"""Key of the configuration -> its value, as text."""


def compatibility_from_json(document: object) -> dict[str, str]:
    """LinkError if it is not a short table of texts."""
    if not isinstance(document, dict) or len(document) > 100:
        raise LinkError("settings that cannot be read")
    return {label(key): label(value) for key, value in document.items()}


@dataclass(slots=True, frozen=True)
class Disagreement:
    """With the primary that answers at `peer`: a node does not follow it. `way`: what to do about that."""

    peer: int
    said: Coded
    way: str


def disagreement(peer: int, name: str, mine: Compatibility, theirs: Compatibility) -> Disagreement | None:
    """Of this node with the one of that name, which serves; None if it may follow it."""
    differs = difference(mine, theirs, name)
    if not differs:
        return None
    keys = ", ".join(_differing(mine, theirs))
    way = f"make {keys} the same here and on {name}, and restart whichever of the two you change"
    return Disagreement(peer, codes.DOES_NOT_JOIN.say(primary=name, why=differs), way)


def difference(mine: Compatibility, theirs: Compatibility, name: str) -> str:
    """What differs between this node and the one of that name, as a sentence; empty if nothing does."""
    told = [
        f"{key} is {mine.get(key, 'unknown')} here and {theirs.get(key, 'unknown')} on {name}"
        for key in _differing(mine, theirs)
    ]
    return "; ".join(told) + "; these must be the same on all nodes" if told else ""


def _differing(mine: Compatibility, theirs: Compatibility) -> list[str]:
    return [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]
