"""What an attack is told of the broker that it attacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, frozen=True)
class Target:
    """`user`: a configured name, whose password is the same; some attacks do as if they did not know.
    `count`: a shared number, how often the attack has struck."""

    host: str
    port: int
    user: str
    count: Any
