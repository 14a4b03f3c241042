"""One phase of one engine in a process of its own: `python -m bench.store.phases '{"engine": "lmdb", ...}'`.

Prints what it cost as JSON. The process does nothing else, so all of its CPU time, of whatever thread, its
peak of memory and its writes are the engine's, but for making the load, which is the same for all.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from bench.store.engines import Engine, open_engine
from bench.store.pattern import Group, Load, Run, drain


class Meter:
    """CPU and wall time, writes and commits since it was made."""

    def __init__(self) -> None:
        self.commits: list[float] = []
        self.messages = self.body_bytes = 0
        self._written = written()
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def commit(self, work: Callable[[], None]) -> None:
        before = time.perf_counter()
        work()
        self.commits.append(time.perf_counter() - before)

    def count(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self.messages += run.messages
            self.body_bytes += len(run.raw)

    def result(self, directory: str, engine: Engine) -> dict[str, Any]:
        """Ends the phase. Closing belongs to it: what an engine puts off is not free."""
        wall = time.perf_counter() - self._wall
        disk = disk_bytes(directory)
        engine.close()
        cpu = time.process_time() - self._cpu
        times = sorted(self.commits)
        return {
            "messages": self.messages,
            "cpu_us": cpu * 1e6 / max(1, self.messages),
            "rate": self.messages / wall,
            "commit_p50_ms": times[len(times) // 2] * 1e3 if times else 0.0,
            "commit_p99_ms": times[len(times) * 99 // 100] * 1e3 if times else 0.0,
            "amplification": (written() - self._written) / max(1, self.body_bytes),
            "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "disk_mib": disk / 2**20,
        }


def written() -> int:
    """Bytes that this process has caused to be sent to the disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes")).split()[1])


def disk_bytes(directory: str) -> int:
    """What its files occupy, not how long they claim to be."""
    return sum(512 * os.stat(path).st_blocks for path in Path(directory).rglob("*") if path.is_file())


def enqueue(engine: Engine, groups: Iterable[Group]) -> Meter:
    meter = Meter()
    for runs, gone in groups:
        meter.commit(partial(engine.commit, runs, gone))
        meter.count(runs)
    return meter


def steady(engine: Engine, load: Load, options: dict[str, Any]) -> Meter:
    _ = list(engine.recover())
    return enqueue(engine, load.steady(options["groups"]))


def fill(engine: Engine, load: Load, options: dict[str, Any]) -> Meter:
    _ = list(engine.recover())
    return enqueue(engine, load.fill(options["messages"]))


def recover(engine: Engine, load: Load, options: dict[str, Any]) -> Meter:
    meter = Meter()
    for stored in engine.recover():
        meter.count([stored.run])
    if meter.messages < options["messages"]:
        raise SystemExit(f"{meter.messages} messages came back of {options['messages']}")
    return meter


def drained(engine: Engine, load: Load, options: dict[str, Any]) -> Meter:
    runs = [stored.run._replace(raw=b"") for stored in engine.recover()]
    meter = Meter()
    for reads, gone in drain(sorted(runs), options["runs"]):
        meter.body_bytes += sum(len(engine.read(*run)) for run in reads)
        meter.commit(partial(engine.commit, [], gone))
    meter.messages = sum(run.messages for run in runs)
    return meter


PHASES = {"steady": steady, "fill": fill, "recover": recover, "drain": drained}


def main() -> int:
    options = json.loads(sys.argv[1])
    load = Load(options["seed"], options["size"], options["most"], options["runs"])
    began = time.process_time()
    verify = {"verify": True} if options["verify"] else {}
    engine = open_engine(options["engine"], options["directory"], sync=options["sync"], **verify)
    opening = time.process_time() - began
    meter = PHASES[options["phase"]](engine, load, options)
    result = meter.result(options["directory"], engine)
    if options["phase"] == "recover":
        result["cpu_us"] += opening * 1e6 / result["messages"]
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
