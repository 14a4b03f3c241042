"""One attack on a pair of real processes, and what a victim notices that was connected before it.

The attack runs in a process of its own, at the lowest priority: it would come from another machine, and must
not be measured as a lack of cores. All processes stay in one session, since between sessions a priority may
mean nothing (`session`).
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import HOST, Broker, BrokerError, Cluster, pair
from bench.hostile.attacks.target import OPERATOR, PEER_PASSWORD, Target
from bench.hostile.rows import HEALTH_MS, P99_MS, STOP_MS, Row
from bench.hostile.victim import Seen, Victim
from bench.hostile.watch import Gauge, LoopProbe, Memory, Stop, Watch
from bench.wire import WireError
from broker.security.authenticator import hash_password

HEAD = (
    "| attack | strikes a second | victim | p50 ms | p99 ms | max ms | stop ms (CPU) | memory MiB "
    "| alarm / RSS MiB | link and lease |",
    "|---|--:|---|--:|--:|--:|--:|--:|--:|---|",
)
_TOUCHED = re.compile(r"lease|link|exclude|in sync", re.IGNORECASE)
_ATTACKER, _VICTIM = "app", "victim"
_WARM_UP = 2.0
_NEVER = Stop(float("inf"))


@dataclass(slots=True, frozen=True)
class Phase:
    """With the attack, or without."""

    victim: Seen
    stop: Stop
    memory: Memory


def measure(row: Row, seconds: float) -> bool:
    """Print the rows of one attack; were its goals met?"""
    os.environ["UNDERSTUDY_USER"], os.environ["UNDERSTUDY_PASSWORD"] = OPERATOR, OPERATOR
    settings = [
        f"auth.users.{name}.{key}={value}"
        for name, tags in ((OPERATOR, "administrator"), (_ATTACKER, ""), (_VICTIM, ""))
        for key, value in (("password", hash_password(name)), ("tags", tags))
        if value
    ]
    try:
        with pair(f"ha.password={PEER_PASSWORD}", *settings, http=True) as cluster:
            return _measure(row, seconds, cluster)
    except (BrokerError, WireError, OSError) as error:
        print(f"{row.name}: {error}", file=sys.stderr)
        return False


def _measure(row: Row, seconds: float, cluster: Cluster) -> bool:
    brokers = cluster.brokers
    spawn = multiprocessing.get_context("spawn")
    target = Target(HOST, brokers[0].port, brokers[0].http or 0, _ATTACKER, spawn.Value("L", 0))
    if row.prepare is not None:
        row.prepare(target)
    scene = _Scene(brokers)
    try:
        scene.phase(_WARM_UP)
        quiet = scene.phase(seconds / 2)
        logs = [broker.log.stat().st_size for broker in brokers]
        attack = spawn.Process(target=_strike, args=(row.attack, target), daemon=True)
        attack.start()
        try:
            under = scene.phase(seconds)
            alive = attack.is_alive()
        finally:
            attack.kill()
            attack.join()
        touched = [line for broker, size in zip(brokers, logs, strict=True) for line in _told(broker, size)]
    finally:
        scene.close()
    return _judge(row, quiet, under, target.count.value / seconds, alive, touched)


class _Scene:
    """The victim, and who looks on."""

    def __init__(self, brokers: list[Broker]) -> None:
        self._victim = Victim(HOST, brokers[0].port, _VICTIM, _VICTIM)
        pids = [broker.process.pid for broker in brokers]
        self._stops = Watch(LoopProbe, brokers[0].port, pids[0], _VICTIM)
        self._memory = Watch(Gauge, brokers[0].http, pids)

    def phase(self, seconds: float) -> Phase:
        self._memory.lap()
        try:
            self._stops.lap()
            victim = self._victim.run(seconds)
            stop = self._stops.lap()
        except EOFError:
            stop = _NEVER
        return Phase(victim, stop, self._memory.lap())

    def close(self) -> None:
        self._stops.close()
        self._memory.close()
        self._victim.close()


def _strike(attack: Callable[[Target], None], target: Target) -> None:
    os.nice(19)
    attack(target)


def _told(broker: Broker, since: int) -> list[str]:
    """Lines of its log about link and lease."""
    with Path(broker.log).open(errors="replace") as log:
        log.seek(since)
        return [line.strip() for line in log if _TOUCHED.search(line)]


def _judge(row: Row, quiet: Phase, under: Phase, strikes: float, alive: bool, touched: list[str]) -> bool:
    most = quiet.memory.mib + row.mib
    grown = (
        f"{under.memory.counted_mib - quiet.memory.counted_mib:.0f} / "
        f"{under.memory.primary_mib - quiet.memory.primary_mib:.0f}"
    )
    told = touched[0] if touched else "untouched"
    _print(row.name, "", "without", quiet, "", _health(row, quiet))
    _print(
        "",
        f"{strikes:,.0f}" if strikes >= 10 else f"{strikes:.1f}",
        "with",
        under,
        grown,
        told + _health(row, under),
    )
    goals = (f"{P99_MS:g}", "", f"{STOP_MS:g}", f"{most:.0f}", "", "untouched")
    print(f"| | | *goal* | | {' | '.join(goals)} |", flush=True)
    if not alive:
        print(f"{row.name}: the attack ended of itself", file=sys.stderr)
    met = under.victim.quantile(0.99) < P99_MS and under.stop.wait_ms < STOP_MS and under.memory.mib < most
    return met and alive and not touched and not (row.visits and under.memory.health_ms >= HEALTH_MS)


def _health(row: Row, phase: Phase) -> str:
    return f"; health check {phase.memory.health_ms:.0f} ms" if row.visits else ""


def _print(attack: str, strikes: str, who: str, phase: Phase, grown: str, told: str) -> None:
    seen, stop = phase.victim, phase.stop
    waits = (seen.quantile(0.5), seen.quantile(0.99), max(seen.waits))
    stops = f"{stop.wait_ms:.1f} ({stop.cpu_ms:.1f})"
    cells = [attack, strikes, who, *(f"{wait:.1f}" for wait in waits), stops, f"{phase.memory.mib:.0f}"]
    print("| " + " | ".join([*cells, grown, told]) + " |", flush=True)
