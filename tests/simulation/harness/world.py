"""One run: a cluster, its network and disks, its clients, its operator and its faults, all as a plan says.

start        the nodes start, the operator promotes one, the topology is declared
work         publishers, consumers and short-lived queues, while the planned faults come
quiet        publishers have every confirm, consumers have left, all nodes are back: the copies must be equal
drain        one consumer a queue empties it; the copies must be equal again, and nothing confirmed be missing
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from broker.security.identity import User
from ha.adapter.federation.settings import FederationSettings
from ha.adapter.settings import HaSettings
from ha.core.tuning import Tuning
from tests.simulation.checkers import SERVING, Checkers
from tests.simulation.checkers.copies.compared import AGAIN
from tests.simulation.clients.actors import Actor, Surroundings
from tests.simulation.clients.churner import Churner
from tests.simulation.clients.governor import Governor
from tests.simulation.clients.leveller import Leveller
from tests.simulation.clients.mover import Mover
from tests.simulation.clients.numberer import MOST, Numberer
from tests.simulation.clients.poller import Poller
from tests.simulation.clients.registrar import Registrar
from tests.simulation.clients.repeater import Repeater
from tests.simulation.clients.rule_user import RuleUser
from tests.simulation.clients.shifter import Shifter
from tests.simulation.clients.temporary import TemporaryUser
from tests.simulation.clients.trespasser import Trespasser
from tests.simulation.clients.workload import Consumer, Declarer, Drainer, Publisher
from tests.simulation.faults.injector import ClientCuts, Saboteur
from tests.simulation.faults.plan import CUTS
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.controller import Controller
from tests.simulation.harness.copies import Copies
from tests.simulation.harness.inspection import queue_of, record_on_disk
from tests.simulation.harness.journal import Journal, Line, Violation
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Address, Network
from tests.simulation.harness.operator import Console, Management, Operator
from tests.simulation.harness.plan import ARBITRATED, ControllerPlan, LinkPlan, Plan
from tests.simulation.harness.register import Register
from tests.simulation.harness.witness import Witness
from tests.simulation.pacemaker.authority import PacemakerAuthority
from tests.simulation.pacemaker.cluster import Cluster
from tests.simulation.pacemaker.manager import ResourceManager


@dataclass(slots=True)
class Place:
    """Where a cluster is: time, its network, and what it has for other clusters."""

    clock: Clock
    network: Network
    first_port: int = 5001
    federation: FederationSettings | None = None
    users: tuple[User, ...] = ()


START_LIMIT, WORK_LIMIT, QUIET_LIMIT, DRAIN_LIMIT = 20.0, 120.0, 40.0, 20.0
LOOK = 0.05
HOUR = 3_600_000
"""Milliseconds."""
TRIES = 5
"""To find the nodes whole, and whole still a little later."""


class World:
    """Build with a plan, then `run`. Raises Violation, or whatever else went wrong. `place`: where it is, if
    other clusters are there, too."""

    def __init__(self, plan: Plan, place: Place | None = None) -> None:
        self.plan = plan
        place = place or Place(clock := Clock(), Network(clock, plan.network, plan.random))
        self.clock, self.network = place.clock, place.network
        self.topology = plan.topology
        self.journal = Journal(self.clock, self.topology)
        addresses = [("127.0.0.1", place.first_port + n) for n in range(len(plan.machines))]
        settings = replace(ha_settings(plan, addresses), federation=place.federation)
        self.machines = [
            Machine(
                self.clock, self.network, plan.random(f"machine/{machine.name}"), machine, address,
                replace(settings, role=role), self._output, _second(address) if plan.networks > 1 else None,
            )
            for machine, address, role in zip(plan.machines, addresses, roles(plan), strict=True)
        ]  # fmt: skip
        for machine in self.machines:
            machine.users = (*machine.users, *place.users)
            machine.large_message = plan.link.large_message
            machine.share = plan.link.share
            machine.producers = MOST if plan.numberers else machine.producers
        around = Surroundings(self.clock, self.network, plan.random, self.journal, addresses)
        self.around = around
        self.publishers = {p.name: Publisher(around, p, self.topology) for p in plan.publishers}
        self.consumers: list[Actor] = [Consumer(around, consumer) for consumer in plan.consumers]
        self.consumers += [Poller(around, poller) for poller in plan.pollers]
        self.consumers += [TemporaryUser(around, user, self.topology) for user in plan.temporaries]
        allowed = [t for t in plan.trespassers if self.topology.internal(t.exchange)]
        self.consumers += [Trespasser(around, trespasser) for trespasser in allowed]
        governor = Governor(self.machines)
        self.rule_users = [RuleUser(around, user, governor) for user in plan.rules]
        self.churners = [Churner(around, churner, self.topology) for churner in plan.churners]
        self.movers = {m.name: Mover(around, m) for m in plan.movers}
        self.actors: list[Actor] = [*self.publishers.values(), *self.consumers, *self.churners]
        self.shifters = [Shifter(around, shifter, self.machines) for shifter in plan.shifters]
        self.repeaters = [Repeater(around, repeater) for repeater in plan.repeaters]
        self.numberers = [Numberer(around, numberer) for numberer in plan.numberers]
        self.actors += [*self.movers.values(), *self.rule_users, *self.shifters]
        self.actors += [*self.repeaters, *self.numberers]
        self.arbitrated = plan.authority in ARBITRATED
        self.cluster: Cluster | None = None
        self.register: Register | PacemakerAuthority
        self.manager: ResourceManager | None = None
        if plan.authority == "pacemaker":
            names = [machine.name for machine in self.machines]
            rng = plan.random("cluster")
            self.cluster = Cluster(self.clock, self.network, plan.pacemaker, rng, names)
            self.register = PacemakerAuthority(self.clock, self.cluster, plan.random)
            by_name = {machine.name: machine for machine in self.machines}
            self.register.binding = lambda: self.journal.binding
            self.register.kept = lambda host: record_on_disk(by_name[host])
            self.network.on_change = self.cluster.changed
            self.manager = ResourceManager(
                self.clock, self.network, plan.random("resource manager"), self.cluster, self.machines,
                lambda: self.faults,
            )  # fmt: skip
        else:
            self.register = Register(self.clock, self.network, plan.register, plan.random)
            if plan.authority == "witness":
                self.register = Witness(
                    self.clock, self.network, plan.register, plan.random, plan.machines[0]
                )
        self.operator: Management
        self.controllers: list[Controller] = []
        if plan.authority != "manual":
            self.operator = Management(self.clock, self.network, "operator")
            self.controllers = [self._controller(controller) for controller in plan.controllers]
        else:
            rng = plan.random("operator")
            self.operator = Operator(self.clock, self.network, rng, plan.operator, self.machines)
        rng = plan.random("registrar")
        self.registrar = Registrar(self.clock, self.network, rng, plan.registrar, self.machines)
        self.leveller = Leveller(
            self.clock, self.network, plan.random("leveller"), plan.levels, self.machines
        )
        self.copies = Copies(self.clock, self.machines, self.register)
        self._grants = {name: plan.random(f"grants/{name}") for name in (*self.publishers, *self.movers)}
        self.checkers = Checkers(
            self.clock, plan, self.machines, self.journal, self.publishers, self.movers, self.rule_users,
            self.register if self.arbitrated else None, self.registrar, self.operator.asked,
            self.shifters, self.repeaters, self.numberers,
        )  # fmt: skip
        self.network.on_client = self.checkers.tried
        if plan.consoles:
            Console(self.clock, self.network, plan.random("console"), plan.consoles, self.machines)
        for machine in self.machines:
            machine.ask_authority = self.register.ask if self.arbitrated else None
            machine.on_started, machine.on_killed = self._started, self._killed
            machine.on_log, machine.on_input = self._heard, self.checkers.commands.heard
            machine.on_ticked = self.checkers.tick
            machine.on_paused, machine.on_resumed = self.checkers.paused, self.checkers.resumed
        self.faults = Saboteur(self)
        self._cuts: list[ClientCuts] = []
        self.declared = False
        self.settle = _settle(plan)

    def run(self) -> None:
        self.start()
        self._work()
        self.finish()

    def finish(self) -> None:
        """After the faults: the quiet, and the drain."""
        self._quiet()
        self._drain()

    # -- how the cluster stands

    @property
    def promotions(self) -> int:
        return sum(asker.promotions for asker in self._askers())

    @property
    def refusals(self) -> list[str]:
        return [why for asker in self._askers() for why in asker.refusals]

    def _askers(self) -> list[Management]:
        """Whoever promotes."""
        managers: list[Management] = [self.manager] if self.manager is not None else []
        return [self.operator, *self.controllers, *managers]

    def whole(self) -> tuple[Machine, list[Machine]] | None:
        """(primary, backups) if every node runs, one is active, the others ready, linked and in its
        record."""
        pair = self._ready()
        if pair is None or len(pair[1]) < len(self.machines) - 1:
            return None
        if self.cluster is not None and not self.cluster.calm:
            return None
        # Nor does it wait for anybody else, such as the node that was on a disk that is lost.
        serving = pair[0].running.core.primary
        return pair if serving is not None and len(serving.backups) == len(pair[1]) else None

    def pair(self) -> tuple[Machine, Machine] | None:
        """(primary, a backup) if one is active and at least one other ready, linked and in its record."""
        pair = self._ready()
        return (pair[0], pair[1][0]) if pair is not None and pair[1] else None

    def _ready(self) -> tuple[Machine, list[Machine]] | None:
        active = [m for m in self.machines if m.role() == "active" and not m.paused]
        ready = [m for m in self.machines if m.role() == "ready" and not m.paused]
        if len(active) != 1 or not ready:
            return None
        members: Any = active[0].status()["members"]
        there = {m["name"] for m in members if not m["self"] and m["in_sync"] and m["connected"]}
        return active[0], [m for m in ready if m.name in there]

    # -- the phases

    def start(self) -> None:
        if isinstance(self.register, Witness):
            self.register.start()
        for machine, plan in zip(self.machines, self.plan.machines, strict=True):
            self.clock.after(plan.start_after, machine.start)
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
        self.journal.base = frozenset(self.journal.definitions)
        self.checkers.declared()

    def _work(self) -> None:
        self.begin_work()
        self._until(WORK_LIMIT, lambda: self.worked, "the nodes to be whole after each fault")
        self.end_work()

    def begin_work(self) -> None:
        """Clients and faults."""
        for actor in self.actors:
            actor.start()
        self.grant()
        self.registrar.start()
        self.leveller.start()
        self._cuts = [
            ClientCuts(self.clock, self.plan.random(f"cuts/{actor.name}"), actor) for actor in self.actors
        ]
        self.faults.start()

    @property
    def worked(self) -> bool:
        """All faults were there, and the nodes are whole after them."""
        return self.faults.done and self.whole() is not None

    def end_work(self) -> None:
        for one in self._cuts:
            one.stop()
        for controller in self.controllers:
            controller.calm = True

    def grant(self) -> None:
        """Let the publishers send some more, so that there is traffic at each fault."""
        for name, publisher in self.publishers.items():
            publisher.grant(self._grants[name].choice(self.plan.grants))
        for name, mover in self.movers.items():
            mover.grant(self._grants[name].choice(mover.plan.grants))

    def progress(self) -> float:
        """Part of the last grant that is published, of the publisher that is furthest behind."""
        shares = [
            (p.published - p.granted_from) / (p.limit - p.granted_from) if p.connections else 0.0
            for p in self.publishers.values()
        ]
        return min(shares, default=1.0)

    def _quiet(self) -> None:
        asking: list[Actor] = [*self.publishers.values(), *self.churners, *self.movers.values()]
        asking += [*self.rule_users, *self.shifters, *self.repeaters, *self.numberers]
        for actor in asking:
            actor.finishing = True
        self.registrar.finishing = self.leveller.finishing = True
        self._until(
            QUIET_LIMIT,
            lambda: self.registrar.finished and self.leveller.finished and all(a.finished for a in asking),
            "every publisher to have its confirms, and every transaction its end",
        )
        for actor in asking + self.consumers:
            actor.stop(clean=self.plan.random(f"leave/{actor.name}").random() < 0.5)
        self.clock.run(self.clock.now + _longest_time(self.plan))
        self._compare()

    def _compare(self) -> None:
        """At a time at which nothing is on its way. A connection that broke long ago may be noticed, and made
        anew, only now, and a queue whose client has not come back end: hence some tries."""
        for _ in range(TRIES):
            self.clock.run(self.clock.now + self.settle)
            self._until(QUIET_LIMIT, lambda: self.whole() is not None, "one primary and ready backups")
            before = self._history()
            self.clock.run(self.clock.now + self.settle)
            whole = self.whole()
            if whole is not None and before == self._history() and not _gathers(whole[0]):
                self.checkers.quiet_point(*whole)
                return
        raise Violation(27, f"the nodes do not stay whole: {self._statuses()}")

    def _drain(self) -> None:
        queues = [plan.name for plan in self.topology.queues]
        queues += [churner.queue for churner in self.churners if self._is_there(churner)]
        drainers = [Drainer(self.around, queue) for queue in queues]
        for drainer in drainers:
            drainer.start()
        left = DRAIN_LIMIT
        while not self._drained(drainers):
            left -= self.settle
            if left < 0:
                raise Violation(27, f"the queues do not drain: {self._statuses()}")
        self._compare()
        self.checkers.end(self.copies.memory_lost, self.copies.kept)

    def _is_there(self, churner: Churner) -> bool:
        """Its queue; after a forced promotion, which may have undone what it was told, by looking."""
        if self.journal.forced_until < 0:
            return churner.certain_to_exist
        return any(m.role() in SERVING and queue_of(m, churner.queue) is not None for m in self.machines)

    def _drained(self, drainers: list[Drainer]) -> bool:
        """With the nodes whole, does each keep a connection for a while, hear nothing by it, and owe no ack?

        Fencing may strike as late as now, and whoever was connected then has drained nothing.
        """
        self._until(QUIET_LIMIT, lambda: self.whole() is not None, "one primary and ready backups")

        def heard() -> tuple[int, list[Line]]:
            return self.journal.delivered, [d.line for d in drainers if d.connected and not d.unacked]

        before = heard()
        self.clock.run(self.clock.now + self.settle)
        return before == heard() and len(before[1]) == len(drainers)

    # -- helpers

    def _history(self) -> list[int]:
        """How far that of each node's term goes."""
        return [m.running.vhost.history.n for m in self.machines if m.node is not None]

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
            parts.append(f"{machine.name} is {status['status']} ({status.get('reason', machine.refused)})")
        return "; ".join(parts)

    def _controller(self, plan: ControllerPlan) -> Controller:
        rng = self.plan.random(plan.name)
        return Controller(self.clock, self.network, rng, plan, self.machines, lambda m: self.faults.fence(m))

    def _started(self, machine: Machine) -> None:
        self.copies.started(machine)
        self.checkers.started(machine)

    def _killed(self, machine: Machine) -> None:
        self.copies.killed(machine)
        self.checkers.killed(machine)

    def _heard(self, machine: Machine, sentence: str) -> None:
        found = machine.astray is not None and AGAIN in sentence
        if (found or NO_WAY_BACK in sentence) and not machine.spoilt:
            machine.spoilt = True
            self.copies.spoilt(machine)
        self.checkers.heard(machine, sentence)

    def _output(self, machine: Machine, connection: str, data: bytes) -> None:
        self.checkers.output(machine, connection, data)


NO_WAY_BACK = "are deleted with the messages they held: it is not promotable before"
"""Whoever says so has no copy to go on with, until it is ready again."""


def _gathers(primary: Machine) -> bool:
    """Has it done what no batch has told its backups yet? A history checkpoint comes by itself."""
    history = primary.running.vhost.history
    return history.position.n > history.n


def _settle(plan: Plan) -> float:
    """Seconds of silence before copies are compared: longer than any delay of network, disk or dequeue
    range."""
    network = plan.network
    slowest = 0.45 if network.slow else 4 * (network.latency + network.spread)
    if any(fault.kind in CUTS for fault in plan.faults):
        slowest += network.retransmit
    return 0.05 + slowest + plan.timing.dequeue_lag + 3 * max(m.sync_time + m.tick for m in plan.machines)


def _longest_time(plan: Plan) -> float:
    """Seconds until nothing expires any more, by whatever clock. What a node's clock has live on for hours,
    after a cold start, is still there."""
    times = [user.longest_time for user in plan.rules if user.timed]
    errors = [error for machine in plan.machines if abs(error := machine.wall_error) < HOUR]
    apart = max(errors, default=0) - min(errors, default=0)
    return (max(times) + apart) / 1000 if times else 0.0


@dataclass(slots=True, frozen=True)
class Settings(HaSettings):
    """With the numbers that a configuration file does not have."""

    link: LinkPlan = field(default_factory=LinkPlan)

    def tuning(self) -> Tuning:
        link = self.link
        return replace(
            HaSettings.tuning(self), snapshot_chunk=link.snapshot_chunk,
            definitions_chunk=link.definitions_chunk, joiner_window=link.joiner_window,
            short_lag=link.short_lag,
            checkpoint_queues=link.quiesce_queues, checkpoint_most=link.quiesce_most,
            contents_window=link.contents_window, contents_piece=link.contents_window // 64,
            wide_run=2,
        )  # fmt: skip


def roles(plan: Plan) -> list[str]:
    """`ha.role` of each node."""
    if plan.authority not in ("pair", "witness"):
        return [""] * plan.nodes
    names = ["primary", "backup"]
    plan.random("roles").shuffle(names)
    return names


def _second(address: Address) -> Address:
    return "127.0.1.1", address[1]


def ha_settings(plan: Plan, addresses: list[Address]) -> HaSettings:
    """What every node of the plan is configured with."""
    timing, witnessed = plan.timing, plan.authority == "witness"
    return Settings(
        link=plan.link,
        brokers=addresses,
        routes=[[at, _second(at)] for at in addresses] if plan.networks > 1 else [],
        authority="pair" if witnessed else plan.authority,
        witness=Witness.place(plan.register.lease) if witnessed else None, on_backup_loss=plan.on_backup_loss,
        min_backups=plan.min_backups, last_man=plan.last_man, confirm=plan.confirm,
        ack_timeout=timing.ack_timeout, lease=timing.lease,
        backup_timeout=timing.backup_timeout, dequeue_lag=timing.dequeue_lag,
        reconnect_grace=timing.reconnect_grace, failover_timeout=plan.register.lease,
    )  # fmt: skip
