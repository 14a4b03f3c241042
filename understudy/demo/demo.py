"""The demo: a pair, real clients under load, a killed primary, a promotion, a rejoin, and Spark's verdict.

Everything is as a user would run it: brokers are `understudy serve` processes, promotion is the `promote`
command, and clients are processes that know only a list of two addresses. Only the timing is the demo's.

`run` performs the steps in order.
"""

from __future__ import annotations

import json
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from understudy.demo.progress import Progress, Tally
from understudy.demo.stage import Client, DemoFailed, Stage, Verdict, free_ports, queues_in
from understudy.demo.workload import CONSUMERS, PLAIN_QUEUE, PUBLISHERS, Work, shares
from understudy.management import Unreachable, ask
from understudy.shared.file_errors import of_file

KILL_AT = 0.4
"""Share of the messages that must be confirmed before the primary is killed."""
NODES = ("left", "right")
SERVING = ("active", "recovering")


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


class Demo(Stage):
    """One run. Call `run` once."""

    def __init__(self, options: Options, progress: Progress) -> None:
        super().__init__(options.folder, NODES, progress)
        self._options = options
        self._list = ",".join(str(address) for address in self._addresses.values())
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
            found = self._reconcile() if self._options.spark else Verdict()
        publishers = {name: client.counts for name, client in self._clients.items() if name in PUBLISHERS}
        return DemoOutcome(
            verdict=found.answer,
            verdict_code=found.code,
            plain=self._clients[PLAIN_QUEUE].counts,
            outage_ms=outage_ms,
            promote_ms=promote_ms,
            rejoin_ms=rejoin_ms,
            seconds=time.monotonic() - began,
            report=found.report,
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
            self._clients[work.name] = Client(work.role, child)
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
        publishing = [client for client in self._clients.values() if client.role != "consumer"]
        self._until(
            lambda: all(client.done for client in publishing), self._traffic_limit, "publishers to finish"
        )
        self._progress.event(f"all {self._sum('published'):,} published and confirmed")
        self._until(self._drained, self._traffic_limit, "queues to drain")
        consuming = [client for client in self._clients.values() if client.role == "consumer"]
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
            self._stop(name)
        self._progress.event("both brokers stopped; their ledgers are sealed")

    # -- pieces --------------------------------------------------------------------------------------------

    def _start_broker(self, name: str) -> None:
        settings = [f"ha.brokers={self._list}", "ha.replicate=all"]
        if self._etcd_url:
            settings += ["ha.authority=etcd", f"ha.etcd.endpoints={self._etcd_url}"]
        elif self._options.automatic:
            settings += ["ha.authority=pair", f"ha.role={'primary' if name == NODES[0] else 'backup'}"]
        self._serve(name, settings)

    @property
    def _traffic_limit(self) -> float:
        """Seconds that the whole traffic may take. Generous, because a slow machine is not a failure."""
        pace = self._options.messages / self._options.rate if self._options.rate else 0
        return 60 + 2 * pace + self._options.messages / 500

    def _tally(self) -> Tally:
        return Tally(
            messages=self._options.messages,
            published=self._sum("published"),
            confirmed=self._sum("confirmed"),
            received=self._sum("received"),
            statuses=dict(self._statuses),
        )

    def _drained(self) -> bool:
        """Whether no queue of the primary holds a message, delivered or not."""
        try:
            answer = ask(self._addresses[self._second], "query", timeout=5)
        except Unreachable:
            return False
        return all(queue["ready"] + queue["unacked"] == 0 for queue in queues_in(answer))

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
