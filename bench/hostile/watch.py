"""What is seen of the brokers from outside, beside the victim: how long the primary's event loop stood still,
how much memory it has and counts, and how long a health check waits.

Role: two processes, so that neither disturbs what the other one or the victim measures. Owner: `measure`.
"""

from __future__ import annotations

import json
import multiprocessing
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from bench.brokers import HOST
from bench.clock import resident_mib
from bench.wire import Wire

_EVERY = 0.005
"""Seconds between two questions to the event loop."""
_PATIENCE = 60.0
_MIB = 2**20
_Seen = TypeVar("_Seen")
_Covariant = TypeVar("_Covariant", covariant=True)


@dataclass(slots=True, frozen=True)
class Stop:
    """The longest wait for an answer that the event loop gives at once, in milliseconds: no stop was longer.
    `cpu_ms`: the most that the loop's thread ran in one such wait. The rest is other processes', or the
    question's own."""

    wait_ms: float = 0.0
    cpu_ms: float = 0.0


@dataclass(slots=True, frozen=True)
class Memory:
    """Largest values in MiB: resident memory of any broker, and of the primary; the sum of what the primary's
    alarm counts. `health_ms`: the longest wait of a health check; infinite if one was refused."""

    mib: float = 0.0
    primary_mib: float = 0.0
    counted_mib: float = 0.0
    health_ms: float = 0.0


class _Look(Protocol[_Covariant]):
    def look(self) -> None: ...

    def lap(self) -> _Covariant: ...


class Watch(Generic[_Seen]):
    """A process that looks again and again. `lap`: what it has seen since the one before."""

    def __init__(self, make: Callable[..., _Look[_Seen]], *arguments: object) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_watch, args=(theirs, make, arguments), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe.recv()

    def lap(self) -> _Seen:
        """Raises EOFError if it could look no more; it has said why."""
        self._pipe.send(None)
        seen: _Seen = self._pipe.recv()
        return seen

    def close(self) -> None:
        self._process.kill()
        self._process.join()


def _watch(pipe: Connection, make: Callable[..., _Look[_Seen]], arguments: tuple[object, ...]) -> None:
    watcher = make(*arguments)
    pipe.send(None)
    while True:
        watcher.look()
        if pipe.poll():
            pipe.recv()
            pipe.send(watcher.lap())


class LoopProbe:
    """Asks basic.qos on a connection of its own that does nothing else: its answer waits for no backup."""

    def __init__(self, port: int, pid: int, user: str) -> None:
        self._wire = Wire.open(HOST, port, user=user, password=user, timeout=_PATIENCE)
        self._account = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self._due = time.monotonic()
        self._seen = Stop()

    def look(self) -> None:
        self._due = max(self._due + _EVERY, time.monotonic() - _EVERY)
        time.sleep(max(0.0, self._due - time.monotonic()))
        ran, asked = self._ran(), time.monotonic()
        self._wire.call(1, 60, 10, struct.pack(">IHB", 0, 0, 0))
        wait, ran = (time.monotonic() - asked) * 1000, self._ran() - ran
        self._seen = Stop(max(self._seen.wait_ms, wait), max(self._seen.cpu_ms, min(wait, ran)))

    def lap(self) -> Stop:
        seen, self._seen = self._seen, Stop()
        return seen

    def _ran(self) -> float:
        """CPU time of the thread with the event loop so far, in milliseconds; up to 4 ms old."""
        return int(self._account.read_text().split()[0]) / 1e6


class Gauge:
    """Looks once a second: at the process, and by HTTP."""

    def __init__(self, http: int, pids: list[int]) -> None:
        """`http`: the primary's port. The first process is the primary's."""
        self._http = http
        self._pids = pids
        self._due = time.monotonic()
        self._seen = Memory()

    def look(self) -> None:
        self._due = max(self._due + 1.0, time.monotonic())
        resident = [resident_mib(pid) for pid in self._pids]
        counted, health, seen = self._counted(), self._health(), self._seen
        self._seen = Memory(
            max(seen.mib, *resident),
            max(seen.primary_mib, resident[0]),
            max(seen.counted_mib, counted),
            max(seen.health_ms, health),
        )
        time.sleep(max(0.0, self._due - time.monotonic()))

    def lap(self) -> Memory:
        seen, self._seen = self._seen, Memory()
        return seen

    def _counted(self) -> float:
        try:
            found = json.loads(self._get("/api/status")[1])
        except (OSError, HTTPException):
            return 0.0
        return float(sum(found["memory"].values())) / _MIB

    def _health(self) -> float:
        asked = time.monotonic()
        try:
            status, _ = self._get("/health/live")
        except (OSError, HTTPException):
            return float("inf")
        return (time.monotonic() - asked) * 1000 if status == 200 else float("inf")

    def _get(self, path: str) -> tuple[int, bytes]:
        """On a new connection, as a health check comes."""
        visit = HTTPConnection(HOST, self._http, timeout=_PATIENCE)
        try:
            visit.request("GET", path)
            answer = visit.getresponse()
            return answer.status, answer.read()
        finally:
            visit.close()
