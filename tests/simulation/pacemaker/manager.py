"""Pacemaker's resource manager: the DC of each partition, which sees the nodes of its own ring only.

Without quorum it stops its brokers. Else it fences whoever is lost or was never seen, by the power switch;
once nobody is left who may run, and none of its brokers serves, it promotes the one with the best score. It
does nothing in maintenance mode, nor while its own process is gone. Every partition has one, so that two may
shoot each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Protocol

from tests.simulation.harness.clock import Clock
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Network
from tests.simulation.harness.operator import SERVING, Management
from tests.simulation.pacemaker.cib import MEMBER
from tests.simulation.pacemaker.cluster import Cluster
from tests.simulation.pacemaker.rings import Ring

SWITCH = "switch"
"""The host of the power switch."""
PROMOTION_LIMIT = 6.0
"""Seconds after which the answer to a promotion is no longer waited for."""
HUNG = 2.0
"""Seconds without an answer to the monitor after which a broker is ended, and started again."""


class Hands(Protocol):
    """What is done to machines: the saboteur's, which spares the last copy of what is not durable."""

    def power_off(self, machine: Machine) -> bool:
        """Take its power; it comes on again later. False if that was not done."""

    def stop_broker(self, machine: Machine) -> bool:
        """End the process, for now."""

    def restart(self, machine: Machine) -> None:
        """Start the process, if there is none."""


class ResourceManager(Management):
    """All DCs of a run. Owner: World."""

    def __init__(
        self, clock: Clock, network: Network, rng: Random, cluster: Cluster, machines: list[Machine],
        hands: Callable[[], Hands],
    ) -> None:  # fmt: skip
        super().__init__(clock, network, "pacemaker")
        self.rng = rng
        self.cluster = cluster
        self.plan = cluster.plan
        self.machines = {machine.name: machine for machine in machines}
        self.hands = hands
        self.maintenance_until = 0.0
        """Nobody starts, stops or promotes anything until then. (Fencing goes on.)"""
        self.gone_until: dict[str, float] = {}
        """Until when the controller of a node does nothing."""
        self.broken_until = 0.0
        """The power switch does nothing until then."""
        self.fencings = self.failed_fencings = 0
        self._shooting: set[tuple[str, int, str]] = set()
        self._asking: dict[str, float] = {}
        """Until when the answer of a node that is to be promoted is waited for."""
        self._stopped: set[str] = set()
        """Brokers that were stopped for want of quorum."""
        self._hung: dict[str, float] = {}
        clock.after(self.plan.every, self._look)

    def _look(self) -> None:
        self.clock.after(self.plan.every * (0.7 + 0.6 * self.rng.random()), self._look)
        for dc, ring in list(self.cluster.coordinators()):
            if self.gone_until.get(dc, 0.0) > self.clock.now:
                continue
            quorate = self.cluster.quorate(dc)
            unclean = self._unclean(dc, ring)
            if quorate:
                for target in unclean:
                    self._shoot(dc, target)
            if self.clock.now >= self.maintenance_until:
                self._manage(dc, ring, quorate, unclean)

    # -- fencing

    def _unclean(self, dc: str, ring: Ring) -> list[str]:
        """Who is not there, and may run for all this DC knows. (Pacemaker takes one that has not joined since
        this DC's own start for one that is down or starting, and does not fence it.)"""
        copy = self.cluster.nodes[dc].copy
        away = [name for name in self.cluster.names if name not in ring.members]
        states = {name: copy.state(name) for name in away}
        return [n for n, s in states.items() if s is None or s.expected == MEMBER.expected]

    def _shoot(self, dc: str, target: str) -> None:
        life = self.cluster.nodes[dc].life
        if (dc, life, target) in self._shooting:
            return
        self._shooting.add((dc, life, target))
        self.clock.note(f"cluster: {dc} fences {target}")
        takes = self.plan.fence_takes * (0.5 + self.rng.random())
        self.clock.after(takes, partial(self._strike, dc, life, target))

    def _strike(self, dc: str, life: int, target: str) -> None:
        """The switch has the request by now; it is carried out even if whoever sent it is gone."""
        self._shooting.discard((dc, life, target))
        node = self.cluster.nodes[dc]
        alive = node.on and node.life == life
        reached = not (self.network.blocked(dc, SWITCH) or self.network.blocked(SWITCH, dc))
        back = alive and target in self.cluster.ring(dc).members
        works = self.clock.now >= self.broken_until and self.rng.random() >= self.plan.fence_fails
        if not works or (alive and not reached) or ((back or not alive) and self.rng.random() < 0.5):
            self.failed_fencings += 1
            self.clock.note(f"cluster: {dc} has not fenced {target}")
            return
        if not self.hands().power_off(self.machines[target]):
            self.failed_fencings += 1
            return
        self.fencings += 1
        self.cluster.shot.add(target)
        self.clock.note(f"cluster: {dc} has fenced {target}")
        if self.cluster.nodes[dc].on and alive:
            self.cluster.fenced(dc, target)

    # -- brokers

    def _manage(self, dc: str, ring: Ring, quorate: bool, unclean: list[str]) -> None:
        here = [self.machines[name] for name in sorted(ring.members)]
        if not quorate:
            for machine in here:
                if machine.node is not None and self.hands().stop_broker(machine):
                    self._stopped.add(machine.name)
            return
        for machine in here:
            if machine.name in self._stopped:
                self._stopped.discard(machine.name)
                self.hands().restart(machine)
            self._monitor(machine)
        if unclean or any(machine.role() in SERVING for machine in here):
            return
        if any(self._asking.get(machine.name, 0.0) > self.clock.now for machine in here):
            return
        scores = {machine.name: self._score(machine) for machine in here}
        best = max(scores.values())
        if best > 0:
            name = self.rng.choice([name for name, score in scores.items() if score == best])
            self._promote(dc, self.machines[name])

    def _monitor(self, machine: Machine) -> None:
        """One that does not answer for too long is recovered."""
        if machine.node is None or not machine.paused:
            self._hung.pop(machine.name, None)
            return
        since = self._hung.setdefault(machine.name, self.clock.now)
        if self.clock.now - since > HUNG and self.hands().stop_broker(machine):
            del self._hung[machine.name]
            self._stopped.add(machine.name)

    def _score(self, machine: Machine) -> int:
        """As the agent has it, of who does not serve."""
        if machine.node is None or machine.paused:
            return 0
        promotable, _ = machine.node.core.promotable()
        if not promotable:
            return 0
        return 500 if machine.role() == "ready" else 100

    def _promote(self, dc: str, machine: Machine) -> None:
        """By the broker's control socket: no packet is needed for that."""
        shot = [name for name in sorted(self.cluster.shot) if not self.cluster.nodes[name].on]
        fenced = self.rng.choice(shot) if shot and self.plan.vouches else None
        self.clock.note(f"cluster: {dc} promotes {machine.name}{f', {fenced} is fenced' if fenced else ''}")
        self._asking[machine.name] = self.clock.now + PROMOTION_LIMIT
        self.local(machine, "promote", partial(self._promoted, machine), fenced=fenced)

    def _promoted(self, machine: Machine, reply: dict[str, Any]) -> None:
        self._asking.pop(machine.name, None)
        self.answered(machine, reply)

    def local(
        self, machine: Machine, command: str, answer: Callable[[dict[str, Any]], None], **args: object
    ) -> None:
        """Ask a broker on its own host."""
        life = machine.life

        def ask() -> None:
            if machine.node is not None and machine.life == life:
                machine.node.manage(command, dict(args), answer, machine.host.now)

        machine.hear(ask)
