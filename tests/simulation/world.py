"""One run: a pair, its network and disks, its clients, its operator and its faults, all from one seed.

start        both nodes start, the operator promotes one, the topology is declared
work         publishers, consumers and short-lived queues, while the fault plan runs
quiet        publishers have every confirm, consumers have left, the pair is whole: the copies must be equal
drain        one consumer a queue empties it; the copies must be equal again, and nothing confirmed be missing
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.actors import Actor, Surroundings
from tests.simulation.checkers import (
    SERVING,
    Confirms2and3,
    Deliveries17and20and21and23,
    OutputReader,
    Serving8and9,
    check_copies_13,
    check_no_loss_1,
)
from tests.simulation.churner import Churner
from tests.simulation.clients import Consumer, Declarer, Drainer, Publisher
from tests.simulation.clock import Clock
from tests.simulation.faults import ClientChaos, FaultPlan
from tests.simulation.journal import Journal, Violation
from tests.simulation.machine import Machine
from tests.simulation.network import Network
from tests.simulation.operator import Operator
from tests.simulation.topology import draw_topology

START_LIMIT, WORK_LIMIT, QUIET_LIMIT, DRAIN_LIMIT = 20.0, 120.0, 40.0, 20.0
LOOK = 0.02
SETTLE = 0.5
"""Seconds of silence before copies are compared: longer than any delay of network, disk or dequeue range."""


class World:
    """Build with a seed, then `run`. Raises Violation, or whatever else went wrong."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.clock = Clock()
        self.network = Network(self.clock, self._random("network"))
        self.topology = draw_topology(self._random("topology"))
        self.journal = Journal(self.clock, self.topology)
        addresses = [("127.0.0.1", 5001), ("127.0.0.1", 5002)]
        self.machines = [
            Machine(self.clock, self.network, self._random(name), name, address, addresses, self._output)
            for name, address in zip("AB", addresses, strict=True)
        ]
        rng = self._random("clients")
        around = Surroundings(self.clock, self.network, rng, self.journal, addresses)
        self.around = around
        self.publishers = {
            name: Publisher(around, name, self.topology)
            for name in [f"p{n + 1}" for n in range(rng.randint(1, 3))]
        }
        self.consumers: list[Actor] = [
            Consumer(around, f"c{n + 1}-{queue.name}", queue.name)
            for queue in self.topology.queues
            for n in range(rng.choice((0, 1, 1, 2)))
        ]
        self.churners = [Churner(around, f"k{n + 1}", self.topology) for n in range(rng.choice((0, 1, 2)))]
        self.operator = Operator(
            self.clock, self.network, self._random("operator"), self.machines, rng.choice(self.machines)
        )  # fmt: skip
        self.faults = FaultPlan(
            self.clock, self._random("faults"), self.machines, self.whole, self, self.operator.demote,
            all_durable=self.topology.all_durable,
        )  # fmt: skip
        self.serving = Serving8and9(self.machines)
        self.confirms = Confirms2and3(self.machines, self.journal, self.publishers)
        self.deliveries = Deliveries17and20and21and23(self.journal)
        self.reader = OutputReader([self.serving.output, self.confirms.output])
        for machine in self.machines:
            machine.on_started, machine.on_killed = self.confirms.started, self.confirms.died
        self.declared = False
        self.compared = 0

    def run(self) -> None:
        self._start()
        chaos = self._work()
        chaos.stop()
        self._quiet()
        self._drain()

    def whole(self) -> tuple[Machine, Machine] | None:
        """(primary, backup) if one is active, the other ready, linked and in its record."""
        for primary, backup in (self.machines, self.machines[::-1]):
            if primary.role() != "active" or backup.role() != "ready":
                continue
            members = primary.status()["members"]
            others = [m for m in members if not m["self"]] if isinstance(members, list) else []
            if any(member["in_sync"] and member["connected"] for member in others):
                return primary, backup
        return None

    # -- the phases

    def _start(self) -> None:
        rng = self._random("start")
        for machine in self.machines:
            self.clock.after(rng.random() * rng.choice((0.01, 1.0)), machine.start)
        self._until(
            START_LIMIT,
            lambda: any(m.role() in SERVING for m in self.machines),
            "a first primary",
        )
        declarer = Declarer(self.around, self.topology, self._declared)
        declarer.start()
        self._until(START_LIMIT, lambda: self.declared, "the topology to be declared")

    def _declared(self) -> None:
        self.declared = True

    def _work(self) -> ClientChaos:
        actors: list[Actor] = [*self.publishers.values(), *self.consumers, *self.churners]
        for actor in actors:
            actor.start()
        self.grant()
        chaos = ClientChaos(self.clock, self._random("chaos"), actors)
        self.faults.start()
        self._until(
            WORK_LIMIT,
            lambda: self.faults.done and self.whole() is not None,
            "the pair to be whole after each fault",
        )
        return chaos

    def grant(self) -> None:
        """Let the publishers send some more, so that there is traffic at each fault."""
        rng = self.around.rng
        for publisher in self.publishers.values():
            publisher.grant(rng.choice((5, 40, 100)))

    def progress(self) -> float:
        """Part of the last grant that is published, of the publisher that is furthest behind."""
        return min(
            (p.published - p.granted_from) / (p.limit - p.granted_from) if p.connections else 0.0
            for p in self.publishers.values()
        )

    def _quiet(self) -> None:
        asking: list[Actor] = [*self.publishers.values(), *self.churners]
        for actor in asking:
            actor.finishing = True
        self._until(
            QUIET_LIMIT, lambda: all(a.finished for a in asking), "every publisher to have its confirms"
        )
        rng = self._random("leave")
        for actor in asking + self.consumers:
            actor.stop(clean=rng.random() < 0.5)
        self._compare()

    def _compare(self) -> None:
        self.clock.run(self.clock.now + SETTLE)
        self._until(QUIET_LIMIT, lambda: self.whole() is not None, "one primary and one ready backup")
        self.clock.run(self.clock.now + SETTLE)
        pair = self.whole()
        if pair is None:
            raise Violation(27, f"the pair does not stay whole: {self._statuses()}")
        check_copies_13(*pair)
        self.compared += 1

    def _drain(self) -> None:
        queues = [plan.name for plan in self.topology.queues]
        queues += [churner.queue for churner in self.churners if churner.certain_to_exist]
        drainers = [Drainer(self.around, queue) for queue in queues]
        for drainer in drainers:
            drainer.start()
        heard = -1

        def drained() -> bool:
            return all(d.connections and not d.unacked for d in drainers) and self.journal.delivered == heard

        limit = self.clock.now + DRAIN_LIMIT
        while not drained():
            if self.clock.now > limit:
                raise Violation(27, f"the queues do not drain: {self._statuses()}")
            heard = self.journal.delivered
            self.clock.run(self.clock.now + SETTLE)
        self._compare()
        check_no_loss_1(self.journal, self.operator.cold_starts + self.faults.memory_lost)

    # -- helpers

    def _until(self, limit: float, done: Callable[[], bool], what: str) -> None:
        """Let time go by, looking every `LOOK` seconds whether it is `done`."""
        end = self.clock.now + limit
        while not done():
            if self.clock.now >= end:
                raise Violation(27, f"waited {limit:g} s for {what}: {self._statuses()}")
            self.clock.run(self.clock.now + LOOK)

    def _statuses(self) -> str:
        parts = []
        for machine in self.machines:
            status = machine.status()
            parts.append(f"{machine.name} is {status['status']} ({status.get('reason', '')})")
        return "; ".join(parts)

    def _output(self, machine: Machine, connection: str, data: bytes) -> None:
        self.reader.output(machine, connection, data)

    def _random(self, purpose: str) -> Random:
        return Random(f"{self.seed}/{purpose}")
