"""A policy as a value. Owner: `Directory`, which holds all policies and selects the one that applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.model.patterns import matches


@dataclass(slots=True, frozen=True)
class Policy:
    """Arguments for all queues or exchanges with matching names, without a new declaration."""

    name: str
    vhost: str
    pattern: str
    apply_to: str
    priority: int
    definition: Mapping[str, object] = field(hash=False)

    def matches(self, name: str) -> bool:
        return matches(self.pattern, name)
