"""Does what a plan says goes wrong, each fault when what it needs is so.

Under `manual` that is one failure at a time for two nodes; with three or more, the next may come while a
node is still down or joining, as long as there is a primary and a ready backup. A failure that would take
the last copy of objects that are not durable is spared: nothing could be demanded after it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.clients.actors import Actor
from tests.simulation.faults.clients import (
    ask_promotion,
    demote_new_primary,
    kill_unseen,
    order_passive,
    stall_reader,
    switch_over,
)
from tests.simulation.faults.cluster import (
    break_switch,
    edit_cib,
    fail_cibadmin,
    freeze_host,
    hang_cib,
    kill_cluster,
    kill_helper,
    maintain,
    power_off,
    split_in_write,
    stop_controller,
)
from tests.simulation.faults.copies import bad_event, spoil_copy
from tests.simulation.faults.disk import crash_in_write, fail_disk, hang_disk, rot_disk, slow_disk
from tests.simulation.faults.force import force
from tests.simulation.faults.handover import hand_over
from tests.simulation.faults.network import cut_network, lose_answers, partition, slow_register, usurp
from tests.simulation.faults.nodes import (
    cut_link,
    kill_all,
    kill_backup,
    kill_backup_twice,
    kill_expected,
    kill_new_primary,
    kill_primary,
    misconfigure,
    step_clock,
    stop_process,
    stop_target,
)
from tests.simulation.faults.plan import Fault, FaultPlan, When
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.machines.machine import Death, Machine
from tests.simulation.harness.operator import SERVING

if TYPE_CHECKING:
    from tests.simulation.harness.world import World

TRAFFIC_LIMIT = 2.0
"""Seconds that a fault waits for the traffic it is to fall into."""
PROMOTION_LOOK = 0.01
LOOK = 0.05
"""Seconds between two looks whether the next fault may come."""

Act = Callable[["Saboteur", FaultPlan, Random], object]

ACTS: dict[Fault, Act] = {
    Fault.KILL_PRIMARY: kill_primary,
    Fault.KILL_BACKUP: kill_backup,
    Fault.KILL_BACKUP_TWICE: kill_backup_twice,
    Fault.KILL_ALL: kill_all,
    Fault.CRASH_IN_WRITE: crash_in_write,
    Fault.STOP_PROCESS: stop_process,
    Fault.SWITCH_OVER: switch_over,
    Fault.KILL_EXPECTED: kill_expected,
    Fault.DEMOTE_NEW_PRIMARY: demote_new_primary,
    Fault.CUT_LINK: cut_link,
    Fault.SLOW_DISK: slow_disk,
    Fault.FAIL_DISK: fail_disk,
    Fault.ROT_DISK: rot_disk,
    Fault.STEP_CLOCK: step_clock,
    Fault.STALL_READER: stall_reader,
    Fault.ASK_PROMOTION: ask_promotion,
    Fault.PARTITION: partition,
    Fault.USURP: usurp,
    Fault.SLOW_REGISTER: slow_register,
    Fault.LOSE_ANSWERS: lose_answers,
    Fault.HAND_OVER: hand_over,
    Fault.BAD_EVENT: bad_event,
    Fault.MISCONFIGURE: misconfigure,
    Fault.POWER_OFF: power_off,
    Fault.SPLIT_IN_WRITE: split_in_write,
    Fault.HANG_CIB: hang_cib,
    Fault.FAIL_CIBADMIN: fail_cibadmin,
    Fault.KILL_HELPER: kill_helper,
    Fault.FREEZE_HOST: freeze_host,
    Fault.KILL_CLUSTER: kill_cluster,
    Fault.BREAK_SWITCH: break_switch,
    Fault.MAINTAIN: maintain,
    Fault.STOP_CONTROLLER: stop_controller,
    Fault.EDIT_CIB: edit_cib,
    Fault.FORCE: force,
    Fault.STOP_TARGET: stop_target,
    Fault.HANG_DISK: hang_disk,
    Fault.KILL_NEW_PRIMARY: kill_new_primary,
    Fault.SPOIL_COPY: spoil_copy,
    Fault.CUT_NETWORK: cut_network,
    Fault.ORDER_PASSIVE: order_passive,
    Fault.KILL_UNSEEN: kill_unseen,
}


class Saboteur:
    """Owner: World. `pending` counts restarts, answers and ends of faults that are still to come."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock: Clock = world.clock
        self.left = deque(world.plan.faults)
        self.injected: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.pending = 0
        self.alone = False
        self._limit = 0.0

    @property
    def done(self) -> bool:
        return not self.left and not self.pending

    def start(self) -> None:
        self._wait()

    # -- when

    def _wait(self) -> None:
        if not self.left:
            return
        if not self._may(self.left[0]):
            self.clock.after(LOOK, self._wait)
            return
        self.world.grant()
        self._limit = self.clock.now + TRAFFIC_LIMIT
        self._in_traffic()

    def _may(self, plan: FaultPlan) -> bool:
        if self.alone:
            return False
        if plan.when is When.ANY:
            return True
        if any(m.doomed for m in self.world.machines) and not self.world.topology.all_durable:
            return False
        alone = plan.when is When.WHOLE or (len(self.world.machines) == 2 and not self.world.arbitrated)
        if self.pending and alone:
            return False
        return (self.world.whole() if plan.when is When.WHOLE else self.world.pair()) is not None

    def _in_traffic(self) -> None:
        if self.world.progress() < self.left[0].share and self.clock.now < self._limit:
            self.clock.after(0.01, self._in_traffic)
        else:
            self.clock.after(self.left[0].pause, self._inject)

    def _inject(self) -> None:
        if not self._may(self.left[0]):
            self._wait()
            return
        plan = self.left.popleft()
        self.injected.append(plan.kind)
        self.clock.note(f"FAULT: {plan.kind.value}")
        ACTS[plan.kind](self, plan, self.world.plan.random(f"fault/{plan.name}"))
        self.clock.after(LOOK, self._wait)

    # -- for the faults

    def later(self, delay: float, action: Callable[[], object]) -> None:
        """A part of a fault that is still to come."""
        self.pending += 1

        def act() -> None:
            self.pending -= 1
            action()

        self.clock.after(delay, act)

    def when_promoting(self, action: Callable[[Machine], object], limit: float = 8.0) -> None:
        """`action` as soon as somebody is being promoted, or is not done with it; or never."""
        for machine in self.world.machines:
            core = None if machine.node is None else machine.node.core
            if core is not None and (core.promotion.active or machine.role() == "recovering"):
                action(machine)
                return
        if limit > 0:
            self.later(PROMOTION_LOOK, partial(self.when_promoting, action, limit - PROMOTION_LOOK))

    def targets(self, rng: Random) -> tuple[Machine, Machine] | None:
        """(primary, backup); where there are no such two, any two that run; or None: nothing to hit."""
        pair = self.world.pair()
        if pair is not None:
            return pair
        running = [m for m in self.world.machines if m.node is not None]
        serving = [m for m in running if m.role() in SERVING]
        if len(running) < 2:
            return None
        first = rng.choice(serving or running)
        return first, rng.choice([m for m in running if m is not first])

    def fence(self, machine: Machine) -> bool:
        """For a controller: the machine that it believes to be the primary is certainly down."""
        if self.alone:
            return False
        rng = self.world.plan.random(f"fence/{machine.name}/{machine.life}")
        if machine.node is not None and not self.kill(
            machine, rng.choice((Death.POWER, Death.KILLED)), fault=False
        ):
            return False
        self.later(0.5 + rng.random(), partial(self.restart, machine))
        return True

    def power_off(self, machine: Machine) -> bool:
        """For the power switch: the host goes off, whatever runs there, and comes on again later."""
        if self.alone or (machine.node is not None and not self.kill(machine, Death.POWER, fault=False)):
            return False
        self.world.network.power(machine.name, False)
        rng = self.world.plan.random(f"power/{machine.name}/{machine.life}")
        self.later(0.5 + rng.random(), partial(self.restart, machine))
        return True

    def stop_broker(self, machine: Machine) -> bool:
        """For a resource manager: the process ends."""
        return not self.alone and self.kill(machine, Death.KILLED, fault=False)

    def kill(self, machine: Machine, death: Death, *, fault: bool = True) -> bool:
        """False if it is down already, or spared. `fault`: it is injected, not somebody's answer to one."""
        if machine.node is None:
            return False
        if self.world.copies.last(machine) and not self.world.topology.all_durable:
            self.clock.note(f"{machine.name} is spared: it is the last that has what is not durable")
            return False
        machine.kill(death, fault=fault)
        return True

    def alone_until_whole(self) -> None:
        """No other fault before the nodes are whole: a disk is lost, and the record still counts on it."""
        self.alone = self.world.whole() is None
        if self.alone:
            self.later(LOOK, self.alone_until_whole)

    def restart(self, machine: Machine) -> None:
        """Often into traffic, so that it joins while much goes on."""
        if machine.node is None and machine.start():
            rng = self.world.plan.random(f"restart/{machine.name}/{machine.life}")
            if rng.random() < 0.6:
                self.later(rng.random() * rng.choice((0.02, 0.3)), self.world.grant)

    def kill_and_restart(self, machine: Machine, death: Death, down: float) -> None:
        if self.kill(machine, death):
            self.later(down, partial(self.restart, machine))


class ClientCuts:
    """Breaks the connection of one actor now and then, until `stop`."""

    def __init__(self, clock: Clock, rng: Random, actor: Actor) -> None:
        self.clock = clock
        self.rng = rng
        self.actor = actor
        self.running = actor.cut_every > 0
        if self.running:
            self._later()

    def stop(self) -> None:
        self.running = False

    def _later(self) -> None:
        self.clock.after(self.actor.cut_every * (0.2 + 2 * self.rng.random()), self._strike)

    def _strike(self) -> None:
        if self.running:
            clean = self.rng.random() < 0.5
            if self.actor.cut(clean):
                end = "FIN" if clean else "RST"
                self.clock.note(f"FAULT: the connection of {self.actor.name} breaks ({end})")
            self._later()
