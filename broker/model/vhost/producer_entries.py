"""Directory entries of producers that number their messages (`producers`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PRODUCER = "producer"
"""The kind of these entries."""


@dataclass(slots=True, frozen=True)
class Known:
    """The entry of a producer: the epoch of its newest process, and its user."""

    epoch: int
    user: str

    def value(self) -> dict[str, object]:
        return {"epoch": self.epoch, "user": self.user}


def known_of(value: Mapping[str, object]) -> Known:
    epoch, user = value.get("epoch"), value.get("user")
    return Known(epoch if isinstance(epoch, int) else 0, str(user or ""))
