"""The demo: a pair, real clients under load, a killed primary, a promotion, a rejoin, and Spark's verdict.

Everything is as a user would run it: brokers are `understudy serve` processes, promotion is the `promote`
command, and clients are processes that know only a list of two addresses. Only the timing is the demo's.

`Demo` owns the child processes, and the one thread that watches them. `run` performs the steps in order. Each
wait has a limit, and names what it waited for.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from understudy.demo.processes import Child, Children
from understudy.demo.progress import Progress, Tally
from understudy.demo.workload import CONSUMERS, PLAIN_QUEUE, PUBLISHERS, Work, shares
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort
from understudy.shared.file_errors import of_file

KILL_AT = 0.4
"""Share of the messages that must be confirmed before the primary is killed."""
_STATUS_INTERVAL = 0.25
NODES = ("left", "right")
SERVING = ("active", "recovering")


class DemoFailed(Exception):
    """A step took too long, or a process ended unexpectedly. One line, perhaps with the end of a log."""


@dataclass(slots=True, frozen=True)
class Options:
    messages: int
    rate: float
    """Messages a second, all publishers together; 0: no limit."""
    folder: Path
    """For data, ledgers, logs and the report."""
    spark: bool = True
    authority: str = "manual"
    """`manual`: the demo promotes, by the command. `pair`: nobody does. `etcd`: nor here, and it starts an
    etcd."""

    @property
    def automatic(self) -> bool:
        """Nodes promote themselves."""
        return self.authority != "manual"


@dataclass(slots=True)
class DemoOutcome:
    """The results of the demo."""

    verdict: dict[str, Any] | None
    """Spark's answer; None without Spark."""
    verdict_code: int
    plain: dict[str, Any]
    """Counts that the kombu client without the kit reported."""
    outage_ms: float | None
    """From the kill to the first confirm by the new primary, for the slowest publisher of the kit."""
    promote_ms: float
    rejoin_ms: float
    seconds: float
    report: Path | None
    publishers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return self.verdict_code == 0 and not self.plain.get("lost")


@dataclass(slots=True)
class _Client:
    """A worker process, and the state that it reported."""

    work: Work
    child: Child
    ready: bool = False
    done: bool = False
    counts: dict[str, Any] = field(default_factory=dict)


class Demo:
    """One run. Call `run` once."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        folder = options.folder
        self._logs = folder / "logs"
        self._client_ledgers = folder / "clients"
        for each in (self._logs, self._client_ledgers):
            each.mkdir(parents=True, exist_ok=True)
        ports = free_ports(len(NODES))
        self._addresses = {name: HostPort("127.0.0.1", port) for name, port in zip(NODES, ports, strict=True)}
        self._list = ",".join(str(address) for address in self._addresses.values())
        self._children = Children(self._logs)
        self._brokers: dict[str, Child] = {}
        self._clients: dict[str, _Client] = {}
        self._statuses: dict[str, str] = dict.fromkeys(NODES, "down")
        self._status_at = 0.0
        self._first, self._second = NODES
        """Who serves at first, and who takes over."""
        self._etcd_url = ""

    def run(self) -> DemoOutcome:
        """Run all steps. No child process is left when it returns or raises DemoFailed."""
        began = time.monotonic()
        with ExitStack() as stack:
            stack.enter_context(self._children)
            self._start_pair()
            self._start_clients()
            killed_at, promote_ms = self._fail_over()
            rejoin_ms = self._rejoin()
            self._finish_traffic()
            outage_ms = self._outage(killed_at)
            self._stop_brokers()
            verdict, code, report = self._reconcile()
        publishers = {name: client.counts for name, client in self._clients.items() if name in PUBLISHERS}
        return DemoOutcome(
            verdict=verdict,
            verdict_code=code,
            plain=self._clients[PLAIN_QUEUE].counts,
            outage_ms=outage_ms,
            promote_ms=promote_ms,
            rejoin_ms=rejoin_ms,
            seconds=time.monotonic() - began,
            report=report,
            publishers=publishers,
        )

    # -- steps ---------------------------------------------------------------------------------------------

    def _start_pair(self) -> None:
        if self._options.authority == "etcd":
            self._start_etcd()
        for name in NODES:
            self._start_broker(name)
            self._progress.event(f"started broker {name} at {self._addresses[name]}")
        if self._options.automatic:
            self._until(lambda: any(self._is(name, "active") for name in NODES), 30, "one to promote itself")
            if self._is("right", "active"):
                self._first, self._second = "right", "left"
        else:
            self._until(lambda: all(self._is(name, "joining") for name in NODES), 20, "both to answer")
            self._promote(self._first)
        self._until(lambda: self._whole(self._first, self._second), 20, "a ready backup")
        self._progress.event(f"{self._first} is the primary, {self._second} is its ready backup")

    def _start_etcd(self) -> None:
        """One member, which is enough for a demo."""
        client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
        command = [
            "etcd", "--name", "demo", "--data-dir", str(self._options.folder / "etcd"),
            "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"demo={peer}",
        ]  # fmt: skip
        try:
            self._brokers["etcd"] = self._children.start_program("etcd", command)
        except OSError as error:
            fault = of_file(error, "etcd")
            raise DemoFailed(
                f"etcd does not start: {fault} (install etcd, or etcd-server of Debian)"
            ) from None
        self._etcd_url = client
        self._progress.event(f"started etcd at {client}")

    def _start_clients(self) -> None:
        consumers = [Work("consumer", name, self._list, str(self._client_ledgers)) for name in CONSUMERS]
        publishers = [
            Work(
                "plain" if name == PLAIN_QUEUE else "publisher",
                name,
                self._list,
                str(self._client_ledgers),
                count,
                rate,
            )
            for name, (count, rate) in shares(self._options.messages, self._options.rate).items()
        ]
        for work in (*consumers, *publishers):
            child = self._children.start(
                f"{work.role}-{work.name}",
                ["understudy.demo.worker", json.dumps(work.as_dict())],
                events=True,
            )
            self._clients[work.name] = _Client(work, child)
        self._until(lambda: all(client.ready for client in self._clients.values()), 30, "clients to connect")
        for client in self._clients.values():
            client.child.say("go")
        self._progress.event(
            f"{len(publishers)} publishers and {len(consumers)} consumers connected; "
            f"{self._options.messages:,} messages to go"
        )

    def _fail_over(self) -> tuple[float, float]:
        """Kill the primary under load, and promote the backup. Returns the time of the kill, and how long the
        promotion took, in ms."""
        target = self._options.messages * KILL_AT
        self._until(
            lambda: self._sum("confirmed") >= target, self._traffic_limit, "enough messages to be confirmed"
        )
        killed_at = time.time()
        self._brokers[self._first].signal(signal.SIGKILL)
        self._brokers[self._first].wait(5)
        self._progress.event(
            f"kill -9 {self._first}, with {self._sum('confirmed'):,} confirmed, while publishing goes on"
        )
        if not self._options.automatic:
            return killed_at, self._promote(self._second)
        self._until(lambda: self._is(self._second, *SERVING), 30, "the backup to promote itself")
        promote_ms = (time.time() - killed_at) * 1000
        self._progress.event(f"{self._second} has promoted itself, seen after {promote_ms:,.0f} ms")
        return killed_at, promote_ms

    def _rejoin(self) -> float:
        self._start_broker(self._first)
        began = time.monotonic()
        self._until(lambda: self._is(self._first, "ready"), 30, "the old primary to rejoin as a ready backup")
        took = (time.monotonic() - began) * 1000
        self._progress.event(
            f"{self._first} rejoined, and is the ready backup after {took:,.0f} ms, under load"
        )
        return took

    def _finish_traffic(self) -> None:
        publishing = [client for client in self._clients.values() if client.work.role != "consumer"]
        self._until(
            lambda: all(client.done for client in publishing), self._traffic_limit, "publishers to finish"
        )
        self._progress.event(f"all {self._sum('published'):,} published and confirmed")
        self._until(self._drained, self._traffic_limit, "queues to drain")
        consuming = [client for client in self._clients.values() if client.work.role == "consumer"]
        for client in consuming:
            client.child.say("stop")
        self._until(lambda: all(client.done for client in consuming), 20, "consumers to stop")
        for client in self._clients.values():
            if client.child.wait(10) != 0:
                raise self._died(client.child)
        self._until(lambda: self._whole(self._second, self._first), 20, "a whole pair again")
        self._progress.event("queues are empty, clients have ended, the pair is complete")

    def _stop_brokers(self) -> None:
        """Stop the backup first, so that it ends in sync; then the primary."""
        for name in (self._first, self._second):
            self._brokers[name].signal(signal.SIGTERM)
            code = self._brokers[name].wait(15)
            if code != 0:
                raise self._died(self._brokers[name])
            self._statuses[name] = "down"
        self._progress.event("both brokers stopped; their ledgers are sealed")

    def _reconcile(self) -> tuple[dict[str, Any] | None, int, Path | None]:
        if not self._options.spark:
            return None, 0, None
        self._progress.event("Spark reconciles the ledgers of both brokers and all clients")
        report = self._options.folder / "report.html"
        arguments = ["understudy", "reconcile", str(self._options.folder), "--output", str(report)]
        arguments += ["--format", "json"]
        code, text = self._children.run("reconcile", arguments, 600, meanwhile=self._show)
        try:
            verdict = json.loads(text)
        except ValueError:
            log = Child.last_words_of(self._logs / "reconcile.log")
            raise DemoFailed(f"reconcile ended with exit code {code} and no answer: {log}") from None
        if not isinstance(verdict, dict):
            raise DemoFailed("the answer of reconcile is not a JSON object")
        return verdict, 1 if code is None else code, report if report.exists() else None

    # -- pieces --------------------------------------------------------------------------------------------

    def _start_broker(self, name: str) -> None:
        data = self._options.folder / name
        settings = [f"ha.brokers={self._list}", "ha.replicate=all"]
        if self._etcd_url:
            settings += ["ha.authority=etcd", f"ha.etcd.endpoints={self._etcd_url}"]
        elif self._options.automatic:
            settings += ["ha.authority=pair", f"ha.role={'primary' if name == NODES[0] else 'backup'}"]
        arguments = ["understudy", "serve", "--name", name, "--listen", str(self._addresses[name])]
        arguments += ["--data-dir", str(data)]
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

    @property
    def _traffic_limit(self) -> float:
        """Seconds that the whole traffic may take. Generous, because a slow machine is not a failure."""
        pace = self._options.messages / self._options.rate if self._options.rate else 0
        return 60 + 2 * pace + self._options.messages / 500

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
            for name in NODES:
                self._statuses[name] = self._status_of(name)
            self._status_at = time.monotonic()
        for child in (*self._brokers.values(), *(client.child for client in self._clients.values())):
            code = child.exit_code
            if code is not None and code != 0 and not child.expected_to_end:
                raise self._died(child)
        self._show()

    def _show(self) -> None:
        self._progress.update(
            Tally(
                messages=self._options.messages,
                published=self._sum("published"),
                confirmed=self._sum("confirmed"),
                received=self._sum("received"),
                statuses=dict(self._statuses),
            )
        )

    def _heard(self, client: _Client, event: dict[str, Any]) -> None:
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

    def _is(self, name: str, *statuses: str) -> bool:
        return self._statuses[name] in statuses

    def _whole(self, primary: str, backup: str) -> bool:
        return self._is(primary, "active") and self._is(backup, "ready")

    def _drained(self) -> bool:
        """Whether no queue of the primary holds a message, delivered or not."""
        try:
            answer = ask(self._addresses[self._second], "query", timeout=5)
        except Unreachable:
            return False
        return all(queue["ready"] + queue["unacked"] == 0 for queue in queues_in(answer))

    def _sum(self, key: str) -> int:
        return sum(int(client.counts.get(key, 0)) for client in self._clients.values())

    def _outage(self, killed_at: float) -> float | None:
        """Milliseconds from the kill to the first confirm after it, for the slowest publisher of the kit."""
        ends = [
            ended
            for name, client in self._clients.items()
            if name in PUBLISHERS
            for _began, lost, ended in client.counts.get("outages", ())
            if lost >= killed_at - 1
        ]
        return (max(ends) - killed_at) * 1000 if ends else None

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
