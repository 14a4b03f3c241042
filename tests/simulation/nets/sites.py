"""A site of the net: a cluster of the simulation under its faults, or one broker alone."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from broker.model.queue.link import is_link
from broker.model.vhost.vhost import VirtualHost
from broker.security.identity import FEDERATION, User
from ha.adapter.federation.settings import LOGINS, FederationSettings
from ha.adapter.peering.login import PeeringLimits, PeeringLogin
from ha.adapter.settings import HaSettings
from tests.simulation.clients.actors import Surroundings
from tests.simulation.faults.plan import Fault
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.inspection import key_of
from tests.simulation.harness.journal import Journal
from tests.simulation.harness.machines.machine import Death, Machine
from tests.simulation.harness.network import Address
from tests.simulation.harness.plan import MachinePlan, Plan
from tests.simulation.harness.world import Place, World
from tests.simulation.nets.sender import EXCHANGE, Sender
from tests.simulation.nets.wan import ClusterNetwork, Wan

LOGIN, QUEUE = "net", "fed.all"
USER = User("fed", frozenset({FEDERATION}), password="secret")
SERVING = ("active", "recovering", "standalone")
Sent = tuple[str, int, int]
"""Site, number and attempt of a message."""


class Site:
    """`lossy`: an operator forces a promotion there, so that what was promised may come to nothing."""

    lossy = False

    def __init__(self, clock: Clock, name: str, machines: list[Machine], around: Surroundings) -> None:
        self.clock = clock
        self.name = name
        self.machines = machines
        self.sender = Sender(around, name)

    # -- what the two kinds differ in

    def start(self) -> None: ...

    def begin_work(self) -> None: ...

    @property
    def worked(self) -> bool:
        raise NotImplementedError

    def end_work(self) -> None: ...

    def finish(self) -> None: ...

    # -- for both

    @property
    def addresses(self) -> list[Address]:
        return [machine.address for machine in self.machines]

    @property
    def primary(self) -> Machine | None:
        serving = [m for m in self.machines if m.role() in SERVING and not m.paused]
        return serving[0] if len(serving) == 1 else None

    @property
    def vhost(self) -> VirtualHost | None:
        return None if self.primary is None else self.primary.running.vhost

    def define(self, changes: list[dict[str, Any]], answers: list[dict[str, Any]]) -> None:
        """By its administrator, who declares the exchange and the queue first."""
        machine = self.primary
        assert machine is not None

        def act() -> None:
            vhost = machine.running.vhost
            vhost.declare_exchange(EXCHANGE, "topic", durable=True)
            vhost.declare_queue(QUEUE, owner=self, durable=True)
            vhost.bind_queue(QUEUE, EXCHANGE, "k.#", owner=self)
            if changes:
                machine.running.manage("define", {"changes": changes}, answers.append, machine.host.now)
            else:
                answers.append({"ok": True})

        machine.hear(act)

    def got(self) -> list[Sent]:
        """What its queue has, in order."""
        vhost = self.vhost
        held = vhost.queues[QUEUE].held_entries() if vhost is not None and QUEUE in vhost.queues else []
        parts = [key_of(bytes(raw)).split(":") for _, _, raw in held]
        return [(site, int(number), int(attempt)) for site, number, attempt in parts]

    def waiting(self) -> dict[str, int]:
        vhost = self.vhost
        queues = vhost.queues.items() if vhost is not None else ()
        return {f"{self.name} {n}": q.total_count for n, q in queues if is_link(n) and q.total_count}

    def complaints(self) -> list[str]:
        """Of its agents that do not run."""
        if self.primary is None:
            return [f"{self.name}: {[m.role() for m in self.machines]}"]
        lines: Any = self.primary.status()["federation"]
        return [
            f"{self.name} {line['exchange']}@{line['upstream']}: {line['state']} {line['reason']}"
            for line in lines["agents"] if line["state"] != "running" or line["reason"]
        ]  # fmt: skip

    def position(self) -> object:
        return self.vhost.history.position if self.vhost is not None else None


class ClusterSite(Site):
    """All that `World` does, with its checkers."""

    def __init__(self, clock: Clock, wan: Wan, name: str, plan: Plan, first_port: int) -> None:
        network = ClusterNetwork(clock, plan.network, plan.random, name, wan)
        for number in range(len(plan.machines)):
            wan.places["127.0.0.1", first_port + number] = name
        self.plan = plan
        self.lossy = any(fault.kind is Fault.FORCE for fault in plan.faults)
        self.world = World(plan, Place(clock, network, first_port, settings_of(name), (USER,)))
        super().__init__(clock, name, self.world.machines, self.world.around)

    def __str__(self) -> str:
        faults = ", ".join(fault.kind.value for fault in self.plan.faults)
        return f"{self.name}: {self.plan.nodes} under {self.plan.authority} ({faults})"

    def start(self) -> None:
        self.world.start()

    def begin_work(self) -> None:
        self.world.begin_work()

    @property
    def worked(self) -> bool:
        return self.world.worked

    def end_work(self) -> None:
        self.world.end_work()

    def finish(self) -> None:
        self.world.finish()


class SingleSite(Site):
    """One broker, which ends now and then, or stands still."""

    def __init__(self, clock: Clock, wan: Wan, name: str, plan: Plan, first_port: int) -> None:
        network = ClusterNetwork(clock, plan.network, plan.random, name, wan)
        address = ("127.0.0.1", first_port)
        wan.places[address] = name
        self.rng: Random = plan.random("single")
        machine = MachinePlan("A", plan.machines[0].sync_time, 0.0, tick=plan.machines[0].tick)
        made = Machine(
            clock, network, plan.random("machine/A"), machine, address,
            HaSettings(federation=settings_of(name)), lambda *_: None,
        )  # fmt: skip
        made.users = (*made.users, USER)
        around = Surroundings(clock, network, plan.random, Journal(clock, plan.topology), [address])
        super().__init__(clock, name, [made], around)
        self._left = self.rng.choice((0, 1, 2, 4))
        self._pending = 0

    def __str__(self) -> str:
        return f"{self.name}: alone"

    def start(self) -> None:
        self.machines[0].start()

    def begin_work(self) -> None:
        self.clock.after(self.rng.random() * 2, self._fault)

    def _fault(self) -> None:
        if not self._left:
            return
        self._left -= 1
        machine = self.machines[0]
        length = self.rng.choice((0.05, 0.5, 3.0)) * self.rng.random()
        if self.rng.random() < 0.3:
            machine.pause(in_tick=self.rng.random() < 0.5)
            self._later(length, machine.resume)
        elif machine.node is not None:
            machine.kill(self.rng.choice(list(Death)))
            self._later(length, partial(machine.start))
        self.clock.after(length + self.rng.random() * 2, self._fault)

    def _later(self, delay: float, act: Any) -> None:
        self._pending += 1

        def done() -> None:
            self._pending -= 1
            act()

        self.clock.after(delay, done)

    @property
    def worked(self) -> bool:
        return not self._left and not self._pending and self.primary is not None


def settings_of(name: str) -> FederationSettings:
    """The lines are slow: a login alone takes four round trips."""
    login = PeeringLogin(USER.name, "secret", f"{LOGINS}{LOGIN}", limits=PeeringLimits(10.0))
    return FederationSettings(name, {LOGIN: login})
