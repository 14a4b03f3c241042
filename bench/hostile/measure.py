"""One attack on a pair of real processes, and what a victim notices that was connected before it.

The attack runs in a process of its own, at the lowest priority: it would come from another machine, and must
not be measured as a lack of cores.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from bench.brokers import HOST, Broker, pair
from bench.hostile.rows import Row
from bench.hostile.target import Target
from bench.hostile.victim import Seen, Victim
from broker.security.authenticator import hash_password

HEAD = (
    "| attack | strikes a second | victim | p50 ms | p99 ms | max ms | memory MiB | link and lease |",
    "|---|--:|---|--:|--:|--:|--:|---|",
)
_TOUCHED = re.compile(r"lease|link|exclude|in sync", re.IGNORECASE)
_WARM_UP = 2.0


def measure(row: Row, seconds: float) -> bool:
    """Print the rows of one attack; were its goals met?"""
    os.environ["UNDERSTUDY_USER"], os.environ["UNDERSTUDY_PASSWORD"] = "ops", "ops"
    settings = [
        f"auth.users.{name}.{key}={value}"
        for name, tags in (("ops", "administrator"), ("app", ""), ("victim", ""))
        for key, value in (("password", hash_password(name)), ("tags", tags))
        if value
    ]
    with pair("ha.password=a secret of the pair", *settings) as cluster:
        brokers = cluster.brokers
        victim = Victim(HOST, brokers[0].port, "victim", "victim")
        victim.run(_WARM_UP, brokers)
        quiet = victim.run(seconds / 2, brokers)
        logs = [broker.log.stat().st_size for broker in brokers]
        count = multiprocessing.get_context("spawn").Value("L", 0)
        attack = multiprocessing.get_context("spawn").Process(
            target=_strike, args=(row.attack, Target(HOST, brokers[0].port, "app", count)), daemon=True
        )
        attack.start()
        try:
            under = victim.run(seconds, brokers)
            alive = attack.is_alive()
        finally:
            attack.kill()
            attack.join()
        touched = [line for broker, size in zip(brokers, logs, strict=True) for line in _told(broker, size)]
        victim.close()
    goal = row.goal
    _print(row.name, "", "without", quiet, "")
    _print("", f"{count.value / seconds:,.0f}", "with", under, touched[0] if touched else "untouched")
    print(f"| | | *goal* | | {goal.p99_ms:g} | | {quiet.mib + goal.mib:.0f} | untouched |", flush=True)
    if not alive:
        print(f"{row.name}: the attack ended of itself", file=sys.stderr)
    met = under.quantile(0.99) < goal.p99_ms and under.mib < quiet.mib + goal.mib
    return met and alive and not touched


def _strike(attack: Callable[[Target], None], target: Target) -> None:
    os.nice(19)
    attack(target)


def _told(broker: Broker, since: int) -> list[str]:
    """Lines of its log about link and lease."""
    with Path(broker.log).open(errors="replace") as log:
        log.seek(since)
        return [line.strip() for line in log if _TOUCHED.search(line)]


def _print(attack: str, strikes: str, victim: str, seen: Seen, touched: str) -> None:
    waits = (seen.quantile(0.5), seen.quantile(0.99), max(seen.waits))
    cells = [attack, strikes, victim, *(f"{wait:.1f}" for wait in waits), f"{seen.mib:.0f}", touched]
    print("| " + " | ".join(cells) + " |", flush=True)
