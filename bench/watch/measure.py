"""One measured run: traffic and a watch beside each other, the watch killed on the way if wanted, and what
came of each planted loss.

Latency is taken on the watch's own standard output, from the time at which a loss became certain to that at
which the line was read. CPU is that of the watch's whole process tree, JVM and Python workers included.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any
from urllib.request import urlopen

from bench.watch.traffic import PLANTED, Plan

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LOSSES = ("lost", "unplaced")


@dataclass(slots=True)
class Sample:
    at: float
    """Seconds since the traffic began."""
    cpu: float
    """Seconds, of the watch's tree since it was started."""
    resident_mib: float
    state_rows: float
    state_bytes: float
    behind: float


@dataclass(slots=True)
class Outcome:
    planted: int = 0
    missed: list[str] = field(default_factory=list)
    doubled: int = 0
    false: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    """Seconds, one for each planted loss that was told."""
    others: Counter[str] = field(default_factory=Counter)
    """Other alarms, by kind."""
    samples: list[Sample] = field(default_factory=list)
    cpu_share: float = 0.0
    """Cores that the watch took while traffic went on, its start apart."""
    idle_share: float = 0.0
    """The same once nobody writes anything but heartbeats, or nothing."""


class Watching:
    """One process of the watch, and what it says."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.lines: list[tuple[float, dict[str, Any]]] = []
        command = [sys.executable, "-m", "understudy", "watch", str(folder), "--format", "json"]
        self.process = subprocess.Popen(
            [*command, "--metrics-port", "0", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip
        self.url = ""
        self.errors: list[str] = []
        assert self.process.stdout is not None and self.process.stderr is not None
        self._threads = [
            threading.Thread(target=self._read, args=(self.process.stdout,)),
            threading.Thread(target=self._listen, args=(self.process.stderr,)),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines.append((time.time(), json.loads(line)))

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            if "metrics at " in line:
                self.url = line.rsplit(" ", 1)[1].strip()
            else:
                self.errors.append(line)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(120)
        for thread in self._threads:
            thread.join(30)
        return code

    def metrics(self) -> dict[str, float]:
        if not self.url:
            return {}
        try:
            with urlopen(self.url, timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name.removeprefix("understudy_watch_"): float(value) for name, value in pairs}

    @property
    def caught_up(self) -> bool:
        found = self.metrics()
        return found.get("batches_total", 0) > 0 and found.get("behind_bytes") == 0

    def sample(self, began: float) -> Sample:
        cpu, resident = tree(self.process.pid)
        found = self.metrics()
        rows, size = found.get("state_rows", 0.0), found.get("state_bytes", 0.0)
        return Sample(time.monotonic() - began, cpu, resident, rows, size, found.get("behind_bytes", 0.0))


def tree(pid: int) -> tuple[float, float]:
    """CPU seconds of a process and all below it, its dead children included, and MiB that they share out."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    resident: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(entry.name)
        parents.setdefault(int(fields[1]), []).append(number)
        spent[number] = sum(map(int, fields[11:15])) / TICKS
        resident[number] = int(fields[21]) * PAGE / 2**20
    wanted, cpu, size = [pid], 0.0, 0.0
    while wanted:
        each = wanted.pop()
        wanted += parents.get(each, [])
        cpu += spent.get(each, 0.0)
        size += _proportional(each) or resident.get(each, 0.0)
    return cpu, size


def _proportional(pid: int) -> float:
    """Forked workers share their pages: what counts is a process's part of them."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in text.splitlines() if line.startswith("Pss:")), 0.0)


def measure(
    folder: Path, plan: Plan, *, kill_at: float | None = None, every: float = 1.0, idle: float = 0.0,
    options: tuple[str, ...] = (), save: Path | None = None,
) -> Outcome:  # fmt: skip
    """Run traffic of `plan` in `folder`/ledgers and watch it. `kill_at`: kill -9 of the driver, in
    seconds."""
    ledgers = folder / "ledgers"
    ledgers.mkdir(parents=True)
    plan.folder = str(ledgers)
    watches = [Watching(ledgers, *options)]
    outcome = Outcome()
    try:
        _until(lambda: bool(watches[0].url) and watches[0].metrics().get("batches_total", 0) > 0, 600)
        traffic = subprocess.Popen(
            [sys.executable, "-m", "bench.watch.traffic", json.dumps(asdict(plan))], start_new_session=True
        )
        began = time.monotonic()
        while traffic.poll() is None:
            time.sleep(every)
            outcome.samples.append(watches[-1].sample(began))
            if save is not None:
                save.write_text(json.dumps([asdict(s) for s in outcome.samples]))
            if kill_at is not None and time.monotonic() - began > kill_at:
                kill_at = None
                watches[-1].end(signal.SIGKILL)
                watches.append(Watching(ledgers, *options))
        outcome.cpu_share = _share(outcome.samples[len(outcome.samples) // 4 :])
        _until(lambda: watches[-1].caught_up, 600)
        time.sleep(12)
        if idle:
            before = watches[-1].sample(began)
            time.sleep(idle)
            outcome.idle_share = _share([before, watches[-1].sample(began)])
    finally:
        code = watches[-1].end(signal.SIGTERM)
    if code:
        raise RuntimeError(f"the watch ended with {code}: {''.join(watches[-1].errors)}")
    judge(outcome, folder / PLANTED, [line for watch in watches for line in watch.lines])
    return outcome


def _share(samples: list[Sample]) -> float:
    """CPU seconds a second, between samples of one process."""
    pairs = [(a, b) for a, b in pairwise(samples) if b.cpu >= a.cpu and b.state_bytes]
    seconds = sum(b.at - a.at for a, b in pairs)
    return sum(b.cpu - a.cpu for a, b in pairs) / seconds if seconds else 0.0


def _until(done: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("the watch takes no batch")
        time.sleep(0.2)


def _numbers(line: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Every message of an alarm or of a planted loss, by name."""
    where = line.get("prod") or f"epoch {line['epoch']}"
    for first, last in line["ranges"]:
        for number in range(first, last + 1):
            yield where, number


def judge(outcome: Outcome, planted: Path, lines: list[tuple[float, dict[str, Any]]]) -> None:
    """Holds every message that was alarmed against every one that was planted."""
    told: dict[tuple[str, int], float] = {}
    for at, line in lines:
        if line["kind"] not in LOSSES:
            outcome.others[line["kind"]] += 1
            continue
        for number in _numbers(line):
            outcome.doubled += number in told
            told.setdefault(number, at)
    known: set[tuple[str, int]] = set()
    for text in planted.read_text().splitlines():
        loss = json.loads(text)
        numbers = list(_numbers(loss))
        known.update(numbers)
        outcome.planted += 1
        if all(number in told for number in numbers):
            outcome.latencies.append(max(told[number] for number in numbers) - loss["at"])
        else:
            outcome.missed.append(text)
    outcome.false = [f"{where} {number}" for where, number in told if (where, number) not in known]
