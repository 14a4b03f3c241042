"""The attacks, one function each, and what an honest client may notice of them.

An attack runs in a process of its own until it is killed. A new one is a module with a function that takes a
`Target`, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.hostile.amqp10 import hoard, links
from bench.hostile.clients import consumers, crowd, drip, fanout, tables
from bench.hostile.dead_letters import expiries, refusals
from bench.hostile.logins import logins, spread_logins
from bench.hostile.target import Target


@dataclass(slots=True, frozen=True)
class Goal:
    """Of the victim's confirms, and of how much larger a broker may become."""

    p99_ms: float
    mib: float


@dataclass(slots=True, frozen=True)
class Row:
    name: str
    attack: Callable[[Target], None]
    goal: Goal


ROWS = (
    Row("logins", logins, Goal(p99_ms=20, mib=128)),
    Row("spread-logins", spread_logins, Goal(p99_ms=20, mib=128)),
    Row("crowd", crowd, Goal(p99_ms=20, mib=512)),
    Row("drip", drip, Goal(p99_ms=20, mib=256)),
    Row("tables", tables, Goal(p99_ms=20, mib=128)),
    Row("consumers", consumers, Goal(p99_ms=20, mib=128)),
    Row("fanout", fanout, Goal(p99_ms=20, mib=256)),
    Row("amqp10-links", links, Goal(p99_ms=50, mib=128)),
    Row("amqp10-hoard", hoard, Goal(p99_ms=50, mib=128)),
    Row("refusals", refusals, Goal(p99_ms=20, mib=256)),
    Row("expiries", expiries, Goal(p99_ms=20, mib=256)),
)
