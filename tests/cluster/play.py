"""One case: a site under load, watched; faults in rounds; at its end the clients' own count, and ledgers for
Spark.

Owner: one test, on one thread.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Empty
from types import TracebackType
from typing import Any, Self

from tests.cluster import configuration
from tests.cluster.configuration import Flavour
from tests.cluster.engine import Engine
from tests.cluster.machine import PATIENCE, Machine
from tests.cluster.phases import Gap, Round, measure
from tests.cluster.site import Site
from tests.cluster.watch import Watch, overlaps
from understudy.demo.processes import Children

RATE = 150.0


class Play:
    """A context manager. It begins with a whole pair and confirmed messages."""

    def __init__(
        self, engine: Engine, image: str, folder: Path, flavour: Flavour | None = None, *, seed: int = 0
    ) -> None:
        self.folder = folder
        self.seed = seed
        self.ledgers = folder / "ledgers"
        self.site = Site(engine, image, folder / "site", flavour or Flavour())
        self.rounds: list[Round] = []
        self.confirmed = 0
        self.resent = 0
        self._gaps: list[Gap] = []
        self._counts: dict[str, int] = {}
        self._done: dict[str, Any] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.site)
            watched = {name: configuration.ADDRESSES[name] for name in self.site.machines}
            self.watch = stack.enter_context(Watch({**watched, "vip": configuration.VIP}))
            logs = self.folder / "logs"
            logs.mkdir(parents=True)
            self._children = stack.enter_context(Children(logs))
            self.wait_whole(PATIENCE)
            self.start_clients()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # -- who is who

    @property
    def switch(self) -> Any:
        return self.site.switch

    @property
    def machines(self) -> dict[str, Machine]:
        return self.site.machines

    def primary(self) -> Machine:
        """By the brokers' own word."""
        serving = [
            name for name in self.machines if self.site.status(name).get("status") in ("active", "recovering")
        ]
        assert len(serving) == 1, f"one node is to serve: {serving}; {self.site.described()}"
        return self.machines[serving[0]]

    def backup(self) -> Machine:
        primary = self.primary()
        return next(machine for machine in self.machines.values() if machine is not primary)

    def other(self, machine: Machine) -> Machine:
        return next(each for each in self.machines.values() if each is not machine)

    def epoch(self) -> int:
        return max(int(self.site.status(name).get("epoch", 0)) for name in self.machines)

    # -- what happens

    def until_fenced(self, since: float) -> None:
        self.site.until(lambda: bool(self.switch.fenced(since)), "a machine to be fenced")

    def until_promoted(self, machine: Machine, since: float) -> float:
        """When it was first seen to serve."""
        seen: list[float] = []

        def serves() -> bool:
            seen.extend(filter(None, [self.watch.first(machine.name, lambda sample: sample.serves, since)]))
            return bool(seen)

        self.site.until(serves, f"{machine.name} to serve")
        return seen[0]

    def until_role(self, machine: Machine, role: str) -> None:
        """By Pacemaker's word, on that machine."""
        self.site.until(
            lambda: self.site.roles(machine.name).get(machine.name) == role, f"{machine.name} to be {role}"
        )

    def forget_failures(self, machine: Machine) -> None:
        """As an operator does who has seen to it: else the next ones count with it against the node."""
        machine.run("crm_resource", "--cleanup", "--resource", "understudy")

    def pause(self, seconds: float) -> None:
        """For a fault to last: there is nothing to wait for."""
        threading.Event().wait(seconds)

    # -- rounds of faults

    @contextmanager
    def round(self, what: str) -> Iterator[Round]:
        """Within it something is done (and `Round.fault` set to its time, if that is not the begin); when it
        ends, the pair is whole again, and the phases are measured.
        """
        made = Round(what, time.time(), {name: str(role) for name, role in self.site.roles().items()})
        yield made
        self.wait_whole()
        made.whole = time.time()
        self.goes_on()
        measure(made, self.site, self.watch, self._gaps)
        self.rounds.append(made)

    def wait_whole(self, patience: float = 2 * PATIENCE) -> None:
        """Pacemaker, the brokers and the virtual address agree on who serves, and the other one is ready."""
        self.site.until(self._whole, "the pair to be whole", patience)

    def _whole(self) -> bool:
        states = {name: self.site.status(name) for name in self.machines}
        serving = [name for name, state in states.items() if state.get("status") == "active"]
        if len(serving) != 1 or sorted(state.get("status", "") for state in states.values()) != [
            "active",
            "ready",
        ]:
            return False
        served = states[serving[0]]
        if not all(member["in_sync"] for member in served["members"]) or len(served["members"]) != 2:
            return False
        if self.site.virtual().get("name") != serving[0]:
            return False
        roles = self.site.roles(serving[0])
        return roles == {name: "Promoted" if name == serving[0] else "Unpromoted" for name in self.machines}

    # -- clients

    def start_clients(self, rate: float = RATE) -> None:
        addresses = ",".join(
            f"{configuration.ADDRESSES[name]}:{configuration.PORT}" for name in self.machines
        )
        arguments = ["tests.cluster.clients", "--addresses", addresses, "--rate", str(rate)]
        arguments += [
            "--virtual",
            f"{configuration.VIP}:{configuration.PORT}",
            "--ledgers",
            str(self.ledgers / "clients"),
        ]
        self._clients = self._children.start("clients", arguments, events=True)
        self.goes_on()

    def goes_on(self) -> None:
        """Messages of each publisher are confirmed that were sent from now on."""
        self._hear()
        before = {name: self._counts.get(name, 0) for name in ("orders", "plain")}
        self.site.until(lambda: self._beyond(before, 200), "messages to be confirmed")

    def confirms(self) -> int:
        self._hear()
        return sum(self._counts.values())

    def _beyond(self, before: dict[str, int], more: int) -> bool:
        self._hear()
        return all(self._counts.get(name, 0) >= count + more for name, count in before.items())

    def _hear(self, wait: float = 0.0) -> None:
        """What the clients have said meanwhile."""
        while True:
            try:
                _, event = (
                    self._children.events.get(timeout=wait) if wait else self._children.events.get_nowait()
                )
            except Empty:
                break
            wait = 0.0
            if "gap" in event:
                self._gaps.append(Gap(event["gap"], event["from"], event["to"]))
            self._counts.update(event.get("counts", {}))
            self._done.update(event.get("done", {}))
        assert self._clients.exit_code in (None, 0), f"the clients: {self._clients.last_words()}"

    # -- the end

    def end(self) -> None:
        """The clients read all there is, the brokers stop cleanly; then nothing may be missing, and no two
        may have served at a time. The ledgers are left for Spark.
        """
        self._clients.expected_to_end = True
        self._clients.say("finish")
        deadline = time.monotonic() + 3 * PATIENCE
        while not self._done and time.monotonic() < deadline:
            self._hear(0.2)
        assert self._done, f"the clients do not come to their end: {self._clients.last_words()}"
        self.confirmed, self.resent = self._done["confirmed"], self._done["resent"]
        self.stop_brokers()
        for name, machine in self.machines.items():
            shutil.copytree(machine.disk.mount / "data" / "ledger", self.ledgers / name)
        missing = self._done["missing"]
        assert not any(missing.values()), f"confirmed messages that no reader got: {missing}"
        self.check_one_serves()

    def stop_brokers(self) -> None:
        """As an operator would, in an order of Pacemaker's."""
        self.primary().run("crm", "resource", "stop", "understudy-clone")
        self.site.until(
            lambda: not any(machine.pids("understudy serve") for machine in self.machines.values()),
            "the brokers' end",
        )

    def check_one_serves(self) -> None:
        both = overlaps([self.watch.samples[name] for name in self.machines])
        assert not both, f"two nodes served at once: {both[:3]}"
