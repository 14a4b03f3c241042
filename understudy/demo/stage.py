"""Stage: what the demos share. The processes of brokers and clients, what they say, and waits with a limit.

A stage owns the child processes, and the one thread that watches them. Each wait names what it waited for.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from understudy.demo.processes import Child, Children
from understudy.demo.progress import Progress, Tally
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort

_STATUS_INTERVAL = 0.25


class DemoFailed(Exception):
    """A step took too long, or a process ended unexpectedly. One line, perhaps with the end of a log."""


@dataclass(slots=True)
class Client:
    """A worker process, and the state that it reported."""

    role: str
    child: Child
    ready: bool = False
    done: bool = False
    counts: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Verdict:
    """Spark's answer, None without Spark; the exit code of the command; its report."""

    answer: dict[str, Any] | None = None
    code: int = 0
    report: Path | None = None


class Stage(ABC):
    """`names`: of the brokers. Its folder has data, ledgers and logs."""

    def __init__(self, folder: Path, names: Sequence[str], progress: Progress) -> None:
        self._progress = progress
        self._folder = folder
        self._logs = folder / "logs"
        self._client_ledgers = folder / "clients"
        for each in (self._logs, self._client_ledgers):
            each.mkdir(parents=True, exist_ok=True)
        ports = free_ports(len(names))
        self._addresses = {name: HostPort("127.0.0.1", port) for name, port in zip(names, ports, strict=True)}
        self._children = Children(self._logs)
        self._brokers: dict[str, Child] = {}
        self._clients: dict[str, Client] = {}
        self._statuses: dict[str, str] = dict.fromkeys(names, "down")
        self._status_at = 0.0

    @abstractmethod
    def _tally(self) -> Tally:
        """How far the run is."""

    # -- brokers

    def _serve(self, name: str, settings: Sequence[str]) -> None:
        arguments = ["understudy", "serve", "--name", name, "--listen", str(self._addresses[name])]
        arguments += ["--data-dir", str(self._folder / name)]
        for setting in settings:
            arguments += ["--set", setting]
        self._brokers[name] = self._children.start(name, arguments)

    def _promote(self, name: str) -> float:
        """Promote with the command, as an operator would. Returns how long it took, in ms."""
        began = time.monotonic()
        address = str(self._addresses[name])
        code, _ = self._children.run(f"promote-{name}", ["understudy", "promote", "-b", address], 60)
        took = (time.monotonic() - began) * 1000
        if code != 0:
            log = Child.last_words_of(self._logs / f"promote-{name}.log")
            raise DemoFailed(f"promote of {name} ended with exit code {code}: {log}")
        self._progress.event(f"understudy promote -b {address}: {name} serves, after {took:,.0f} ms")
        return took

    def _stop(self, name: str) -> None:
        self._brokers[name].signal(signal.SIGTERM)
        code = self._brokers[name].wait(15)
        if code != 0:
            raise self._died(self._brokers[name])
        self._statuses[name] = "down"

    def _is(self, name: str, *statuses: str) -> bool:
        return self._statuses[name] in statuses

    def _whole(self, primary: str, backup: str) -> bool:
        return self._is(primary, "active") and self._is(backup, "ready")

    # -- clients

    def _sum(self, key: str) -> int:
        return sum(int(client.counts.get(key, 0)) for client in self._clients.values())

    # -- ledgers

    def _reconcile(self) -> Verdict:
        """Of all ledgers in the folder."""
        self._progress.event("Spark reconciles the ledgers of all brokers and all clients")
        report = self._folder / "report.html"
        arguments = ["understudy", "reconcile", str(self._folder), "--output", str(report)]
        arguments += ["--format", "json"]
        code, text = self._children.run("reconcile", arguments, 600, meanwhile=self._show)
        try:
            answer = json.loads(text)
        except ValueError:
            log = Child.last_words_of(self._logs / "reconcile.log")
            raise DemoFailed(f"reconcile ended with exit code {code} and no answer: {log}") from None
        if not isinstance(answer, dict):
            raise DemoFailed("the answer of reconcile is not a JSON object")
        return Verdict(answer, 1 if code is None else code, report if report.exists() else None)

    # -- waits

    def _until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Watch everything until `condition` is true. Raises DemoFailed on a timeout, or if a child process
        dies."""
        deadline = time.monotonic() + seconds
        while True:
            self._watch()
            if condition():
                return
            if time.monotonic() > deadline:
                nodes = ", ".join(f"{name} {status}" for name, status in self._statuses.items())
                raise DemoFailed(f"waited {seconds:.0f} s for {what} ({nodes})")

    def _watch(self) -> None:
        """Handle reports of the clients for a moment, ask the nodes at intervals, and check for dead
        processes."""
        timeout = 0.05
        while True:
            try:
                name, event = self._children.events.get(timeout=timeout)
            except Empty:
                break
            timeout = 0
            self._heard(self._clients[name.partition("-")[2]], event)
        now = time.monotonic()
        if now - self._status_at >= _STATUS_INTERVAL:
            for name in self._addresses:
                self._statuses[name] = self._status_of(name)
            self._status_at = time.monotonic()
        for child in (*self._brokers.values(), *(client.child for client in self._clients.values())):
            code = child.exit_code
            if code is not None and code != 0 and not child.expected_to_end:
                raise self._died(child)
        self._show()

    def _show(self) -> None:
        self._progress.update(self._tally())

    def _heard(self, client: Client, event: dict[str, Any]) -> None:
        match event.get("event"):
            case "ready":
                client.ready = True
            case "counts":
                client.counts |= event
            case "done":
                client.counts |= event
                client.done = True

    def _status_of(self, name: str) -> str:
        broker = self._brokers.get(name)
        if broker is None or broker.exit_code is not None:
            return "down"
        try:
            answer = ask(self._addresses[name], "status", timeout=2)
        except Unreachable:
            return "down"
        status = answer.get("status")
        return str(status.get("status")) if isinstance(status, dict) else "down"

    def _died(self, child: Child) -> DemoFailed:
        return DemoFailed(f"{child.name} ended with exit code {child.exit_code}: {child.last_words()}")


def queues_in(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows about queues in the answer to `query`. Raises DemoFailed if there is no such list."""
    status = answer.get("status")
    queues = status.get("queue_list") if isinstance(status, dict) else None
    if not isinstance(queues, list):
        raise DemoFailed("the answer to `query` has no list of queues")
    return [queue for queue in queues if isinstance(queue, dict)]


def free_ports(count: int) -> list[int]:
    """Different ports that were free a moment ago."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
