"""What an attack is told of the broker that it attacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OPERATOR = "ops"
"""An administrator, whose password is the same."""
PEER_PASSWORD = "a secret of the pair"
"""`ha.password`, for attacks by somebody who has it."""


@dataclass(slots=True, frozen=True)
class Target:
    """`user`: a configured name, whose password is the same; some attacks do as if they did not know.
    `count`: a shared number, how often the attack has struck. `http`: the port of `broker.http`."""

    host: str
    port: int
    http: int
    user: str
    count: Any
