"""Everything that a run is, drawn from its seed before it begins.

A `Plan` is a frozen value, and a run depends on it alone: `World(plan)` is the same run every time. What is
decided while a run goes on is drawn from `Random(f"{plan.seed}/{purpose}/{name}")`, one for each actor,
machine, connection and fault. So a plan with one of them left out (`dataclasses.replace`) asks the same of
all the others, and a failing plan can be made smaller.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from tests.simulation.clients.mover_plan import MoverPlan, draw_movers
from tests.simulation.clients.numberer_plan import NumbererPlan, draw_numberers
from tests.simulation.clients.repeater_plan import RepeaterPlan, draw_repeaters
from tests.simulation.clients.rule_plan import (
    RulePlan,
    draw_delayed_user,
    draw_latest_user,
    draw_more_rules,
    draw_patient_user,
    draw_rule_users,
)
from tests.simulation.clients.shifter_plan import ShifterPlan, draw_shifters
from tests.simulation.clients.topology import Topology, draw_alternates, draw_internal, draw_topology
from tests.simulation.faults.plan import (
    FaultPlan,
    draw_cut_networks,
    draw_faults,
    draw_force,
    draw_spoilt_copy,
    draw_unseen,
)
from tests.simulation.pacemaker.plan import PacemakerPlan, draw_pacemaker

MOST_CLIENTS = 8
PACEMAKERS = 1 / 3
"""Part of the seeds whose authority is a cluster."""
ETCD = 0.5
"""Part of the seeds with a register in which nodes promote themselves."""
PAIRS = 0.5
"""Part of the seeds with two nodes and without a register in which these promote themselves."""
WITNESSED = 0.5
"""Of those with two nodes, the part in which a node of its own keeps the register."""
ARBITRATED = ("register", "etcd", "witness", "pacemaker")
"""Authorities of which there is one for all nodes."""
UNSEEN = 1 / 3
"""Of the seeds of `pair`, also with a witness, the part in which a primary ends that no client sees."""
FORCED = 1 / 20
"""Part of the seeds in which an operator forces a promotion."""
WEAK_CONFIRMS = 1 / 5
"""Part of the seeds in which confirms of persistent messages do not always wait for all disks."""
SPOILT_COPIES = 1 / 10
"""Of those whose consistency checkpoints come to every queue soon, the part in which a copy differs."""
HOURS_APART = 4 / 5
"""Of the seeds in which messages live for seconds, the part in which wall clocks are wrong by hours."""
TWO_NETWORKS = {"pair": 1 / 2}
"""By authority the part of the seeds in which each node has an address on two networks; of others OTHERS."""
OTHERS = 1 / 5
SINGLE_ACTIVE = 1 / 2
"""Of the seeds in which a queue has two consumers, the part in which one of them is active."""
SHORTEST = 1.0
"""The shortest lease that a witness gives, in seconds."""
ONE_CLOCK = 1 / 5
"""Part of the seeds in which the monotonic clock of every node is the world's."""


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """Seconds until bytes arrive: `latency` and up to `spread` more, now and then (`slow`) much more. `cut`
    is the chance that a read ends short of what is there. `buffer`: bytes that kernels take for a reader that
    does not read. `retransmit`: longest time from the mending of a way to the arrival of what was lost on it;
    `give_up`: for how long, about, a kernel sends again what is not acknowledged. Both in seconds."""

    latency: float
    spread: float
    cut: float
    slow: float
    buffer: int = 65536
    retransmit: float = 1.0
    give_up: float = 4.0


@dataclass(frozen=True, slots=True)
class MachinePlan:
    """`sync_time`: seconds that a sync takes, about. `start_after`: when it is first switched on.
    `wall_error`: milliseconds by which its wall clock is wrong. `tick`: seconds from the first byte
    of a burst to the end of its tick; a busy node takes long, and handles much at once. `segment`: bytes
    after which its store begins a new file. `window`: messages of a queue that stay in memory while all
    others leave it; 0: all stay. `uptimes`: seconds that its monotonic clock shows more than the world's,
    from one start of its host to the next, and then from the first again; none: it is the world's."""

    name: str
    sync_time: float
    start_after: float
    wall_error: int = 0
    tick: float = 0.00005
    segment: int = 1 << 25
    window: int = 0
    uptimes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """How a joiner is fed (`ha.core.tuning`): with small numbers that takes many ticks. How much a
    consistency checkpoint lists: with small numbers it takes many to list all queues. From how many octets on
    a message goes ahead of its batch, in how large a window. And how many steps a client's input has in a
    turn."""

    snapshot_chunk: int = 1 << 18
    definitions_chunk: int = 500
    joiner_window: int = 4 << 20
    short_lag: int = 1 << 20
    quiesce_queues: int = 500
    quiesce_most: int = 100_000
    large_message: int = 1 << 20
    contents_window: int = 1 << 20
    share: int = 8_000

    @property
    def lists_all(self) -> bool:
        """Are all queues of a run listed, within less than a minute?"""
        return self.quiesce_queues > 1 and self.quiesce_most >= 100_000


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """Promotes `first` to begin with; looks about `every` so many seconds. `both`: now and then
    asks two nodes at once; `twice`: asks one node twice at once."""

    first: str
    every: float = 0.1
    both: bool = False
    twice: bool = False


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """The durations of `HaSettings`, in seconds."""

    ack_timeout: float = 2.0
    lease: float = 3.0
    backup_timeout: float = 5.0
    dequeue_lag: float = 0.01
    reconnect_grace: float = 10.0


@dataclass(frozen=True, slots=True)
class RegisterPlan:
    """`takes`: seconds that a request takes there, about. `patience`: after so many without an answer, a
    node's driver reports that the outcome is unknown."""

    takes: float = 0.0005
    patience: float = 1.0
    lease: float = 5.0
    """Under `etcd`: the length of the owner's lease there. Under `pair`: how long a node may be silent."""


@dataclass(frozen=True, slots=True)
class ControllerPlan:
    """A resource manager: asks each node about `every` so many seconds, waits `patience` for an answer, and
    acts when nobody has served for `silence`. `fences`: ends the old primary's machine first."""

    name: str
    every: float
    patience: float
    silence: float
    fences: bool


@dataclass(frozen=True, slots=True)
class PublisherPlan:
    """`cut_every`: seconds between two breaks of its connection, about; 0 for never. So in every actor."""

    name: str
    window: int
    burst: int
    interval: float
    frame_max: int
    heartbeat: int
    big: float
    """Chance of a body of up to 9,000 bytes."""
    persistent: float
    mandatory: bool
    cut_every: float = 0.0


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    name: str
    queue: str
    prefetch: int
    delay: float
    multiple: bool
    requeues: float
    rejects: float
    frame_max: int
    heartbeat: int
    restless: float = 0.0
    """Chance, at each settling, to cancel and to consume again with another prefetch."""
    cut_every: float = 0.0
    confirmed_only: bool = False
    """It asks for `x-confirmed-only`."""


@dataclass(frozen=True, slots=True)
class PollerPlan:
    """Polls `queue` with basic.get; keeps up to `keeps` messages; gives back that part of them."""

    name: str
    queue: str
    interval: float
    keeps: int
    requeues: float
    cut_every: float = 0.0


@dataclass(frozen=True, slots=True)
class TemporaryPlan:
    """Uses an `exclusive` queue, else an auto-delete one, about `interval` seconds long, again and again."""

    name: str
    exclusive: bool
    replicated: bool
    interval: float
    cut_every: float = 0.0
    expires: float = 0.0
    """Seconds: it is neither, and ends when it was not used for so long."""


@dataclass(frozen=True, slots=True)
class TrespasserPlan:
    """Publishes to an internal exchange, each time on a new connection."""

    name: str
    exchange: str
    interval: float


@dataclass(frozen=True, slots=True)
class ChurnerPlan:
    name: str
    interval: float
    cut_every: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Every field may be changed for another run; no two things may have one name."""

    seed: int
    nodes: int
    authority: str
    """`manual`, `pair`, `witness`, `register`, `etcd` or `pacemaker`."""
    on_backup_loss: str
    min_backups: int
    timing: TimingPlan
    link: LinkPlan
    network: NetworkPlan
    machines: tuple[MachinePlan, ...]
    operator: OperatorPlan
    register: RegisterPlan
    controllers: tuple[ControllerPlan, ...]
    """Of the `register` authority; under `manual` it is the operator who promotes."""
    grants: tuple[int, ...]
    """How many messages a publisher may send at a fault: one of these."""
    topology: Topology
    publishers: tuple[PublisherPlan, ...]
    consumers: tuple[ConsumerPlan, ...]
    churners: tuple[ChurnerPlan, ...]
    pollers: tuple[PollerPlan, ...]
    temporaries: tuple[TemporaryPlan, ...]
    rules: tuple[RulePlan, ...]
    faults: tuple[FaultPlan, ...]
    movers: tuple[MoverPlan, ...] = ()
    shifters: tuple[ShifterPlan, ...] = ()
    repeaters: tuple[RepeaterPlan, ...] = ()
    numberers: tuple[NumbererPlan, ...] = ()
    pacemaker: PacemakerPlan = field(default_factory=PacemakerPlan)
    trespassers: tuple[TrespasserPlan, ...] = ()
    registrar: float = 0.0
    """Seconds between two changes of users, about; 0: there are none."""
    consoles: float = 0.0
    """Seconds between two looks of an operator at the nodes; 0: nobody looks."""
    networks: int = 1
    """Between the nodes: each has an address in each."""
    confirm: str = "all-disks"
    """`ha.confirm`: what the confirm of a persistent message waits for."""
    levels: float = 0.0
    """Seconds between two changes of a policy with `ha-confirm`, about; 0: there is none."""
    last_man: str = "none"
    """`persist`: a primary alone has transient messages on its disk; or `none`."""

    def random(self, purpose: str) -> Random:
        """The source of what is drawn for `purpose` while the run goes on."""
        return Random(f"{self.seed}/{purpose}")


def draw_plan(seed: int) -> Plan:
    """The plan of a seed. Equal for equal seeds, in any process."""
    rng = Random(f"{seed}/plan")
    nodes = rng.choice((2,) * 12 + (3,) * 5 + (4, 4, 5))
    names = "ABCDE"[:nodes]
    topology = draw_topology(Random(f"{seed}/topology"))
    topology = draw_alternates(topology, Random(f"{seed}/alternates"))
    topology = draw_internal(topology, Random(f"{seed}/internal exchanges"))
    cut_every = rng.choice((0.0, 0.0, 0.1, 0.5))
    publishers = tuple(_publisher(rng, f"p{n + 1}") for n in range(rng.randint(1, 3)))
    consumers = tuple(
        _consumer(rng, f"c{n + 1}-{queue.name}", queue.name)
        for queue in topology.queues
        for n in range(rng.choice((0, 1, 1, 2)))
    )
    others = Random(f"{seed}/other clients")
    pollers = tuple(_poller(others, f"g{n + 1}", topology) for n in range(others.choice((0, 0, 1))))
    temporaries = tuple(_temporary(others, f"t{n + 1}") for n in range(others.choice((0, 0, 1, 2))))
    temporaries = tuple(_expiring(Random(f"{seed}/{t.name}/expires"), t) for t in temporaries)
    churners = tuple(ChurnerPlan(f"k{n + 1}", rng.choice((0.01, 0.1))) for n in range(rng.choice((0, 1, 2))))
    consumers = consumers[: MOST_CLIENTS - len(publishers) - len(churners) - len(pollers) - len(temporaries)]
    apart = cut_every * (len(publishers) + len(consumers) + len(churners) + len(pollers) + len(temporaries))
    network = _network(rng)
    timing = _timing(rng, slow=network.slow > 0)
    authority = rng.choice(("manual", "register"))
    if Random(f"{seed}/authority").random() < PACEMAKERS:
        authority = "pacemaker"  # of both others a third; their plans are what they were
    leasing = Random(f"{seed}/etcd")
    if authority == "register" and leasing.random() < ETCD:
        authority = "etcd"
        if nodes == 2 and Random(f"{seed}/witness").random() < WITNESSED:
            authority = "witness"
    if authority == "manual" and nodes == 2 and Random(f"{seed}/pair").random() < PAIRS:
        authority = "pair"
    ruled = draw_rule_users(Random(f"{seed}/rules"), Random(f"{seed}/policies"), cut_every=apart)
    rules = tuple(draw_more_rules(Random(f"{seed}/{user.name}/more rules"), user) for user in ruled)
    rules = (*rules, *draw_patient_user(Random(f"{seed}/patient user"), cut_every=apart))
    window = Random(f"{seed}/window").choice((0, 0, 1, 3, 20))
    segment = Random(f"{seed}/segments").choice((500, 3_000, 20_000, 1 << 25))
    plan = Plan(
        seed=seed,
        nodes=nodes,
        authority=authority,
        on_backup_loss=rng.choice(("continue", "continue", "block")),
        min_backups=rng.choice((0, 0, 0, 1)),
        timing=timing,
        link=_contents(
            _points(_parts(_link(rng), Random(f"{seed}/parts")), Random(f"{seed}/points")),
            Random(f"{seed}/contents"),
            Random(f"{seed}/budget"),
        ),
        network=network,
        machines=tuple(
            replace(machine, segment=segment, window=window)
            for machine in [_machine(rng, name) for name in names]
        ),
        operator=OperatorPlan(
            rng.choice(names),
            every=rng.choice((0.05, 0.1, 0.3)),
            both=rng.random() < 0.15,
            twice=rng.random() < 0.1,
        ),
        register=RegisterPlan(
            rng.choice((0.0003, 0.003, 0.03)),
            rng.choice((0.3, 1.0)),
            timing.lease * leasing.uniform(0.7, 2.0) + (SHORTEST if authority == "witness" else 0.0),
        ),
        controllers=_controllers(rng) if authority == "register" else (),
        grants=rng.choice(((3, 8, 20), (5, 10, 40), (1, 5, 60))),
        topology=topology,
        publishers=tuple(replace(p, cut_every=apart) for p in publishers),
        consumers=tuple(
            replace(c, cut_every=apart, confirmed_only=Random(f"{seed}/{c.name}/only").random() < 0.25)
            for c in consumers
        ),
        churners=tuple(replace(k, cut_every=apart) for k in churners),
        pollers=tuple(replace(p, cut_every=apart) for p in pollers),
        temporaries=tuple(replace(t, cut_every=apart) for t in temporaries),
        rules=rules,
        faults=draw_faults(
            Random(f"{seed}/faults"), authority=authority, nodes=nodes, all_durable=topology.all_durable
        ),
        movers=draw_movers(Random(f"{seed}/movers"), cut_every=apart),
        shifters=draw_shifters(Random(f"{seed}/shifters"), cut_every=apart),
        repeaters=draw_repeaters(Random(f"{seed}/repeaters"), cut_every=apart),
        numberers=draw_numberers(Random(f"{seed}/numberers"), cut_every=apart),
        pacemaker=draw_pacemaker(Random(f"{seed}/pacemaker"), nodes=nodes),
        trespassers=_trespassers(Random(f"{seed}/trespassers"), topology),
        registrar=Random(f"{seed}/registrar").choice((0.0, 0.0, 0.02, 0.2)),
    )
    plan = _taking_turns(plan, Random(f"{seed}/single active"))
    plan = replace(plan, last_man=Random(f"{seed}/last man").choice(("none", "persist")))
    levels = Random(f"{seed}/confirm levels")
    if levels.random() < WEAK_CONFIRMS:
        plan = _confirmed_early(plan, levels)
    plan = replace(plan, machines=_uptimes(Random(f"{seed}/uptimes"), plan.machines))
    if len(rules) > len(ruled):
        plan = replace(plan, machines=_wall_clocks(Random(f"{seed}/wall clocks"), plan.machines))
    latest = draw_latest_user(Random(f"{seed}/latest user"), cut_every=apart)
    delayed = draw_delayed_user(Random(f"{seed}/delayed user"), cut_every=apart)
    plan = replace(plan, rules=(*rules, *latest, *delayed))
    spoilt = Random(f"{seed}/spoilt copy")
    if spoilt.random() < SPOILT_COPIES and plan.link.lists_all:
        plan = replace(plan, faults=draw_spoilt_copy(spoilt, plan.faults))
    plan = _on_two_networks(plan, Random(f"{seed}/networks"))
    if authority in ("pair", "witness"):
        plan = _watched(plan, Random(f"{seed}/orders"))
    force = Random(f"{seed}/force")
    return _forced(plan, force) if force.random() < FORCED else plan


def _confirmed_early(plan: Plan, rng: Random) -> Plan:
    """By the setting, or by a policy that comes and goes, on disks that lag at times. Without those who count
    on a commit whenever all nodes have lost their memory."""
    slow = (replace(m, sync_time=max(m.sync_time, rng.choice((0.0, 0.03)))) for m in plan.machines)
    plan = replace(plan, movers=(), shifters=(), machines=tuple(slow))
    if rng.random() < 0.4:
        return replace(plan, confirm=rng.choice(("primary-disk", "all-memory")))
    return replace(plan, levels=rng.choice((0.02, 0.2)))


def _forced(plan: Plan, rng: Random) -> Plan:
    """Without those who go by all that they were ever answered: a force may undo some of it."""
    return replace(plan, movers=(), shifters=(), registrar=0.0, faults=draw_force(rng, plan.faults))


def _watched(plan: Plan, rng: Random) -> Plan:
    """By an operator, who may order the nodes to stand by."""
    plan = replace(plan, consoles=rng.choice((0.0, 0.002, 0.05)))
    return replace(plan, faults=draw_unseen(rng, plan.faults)) if rng.random() < UNSEEN else plan


def _on_two_networks(plan: Plan, rng: Random) -> Plan:
    """One of them is cut, once or twice."""
    if rng.random() >= TWO_NETWORKS.get(plan.authority, OTHERS):
        return plan
    return replace(plan, networks=2, faults=draw_cut_networks(rng, plan.faults))


def _taking_turns(plan: Plan, rng: Random) -> Plan:
    """Of one queue with two consumers, one is active. They cancel now and then."""
    users = Counter(consumer.queue for consumer in plan.consumers)
    shared = [queue.name for queue in plan.topology.queues if users[queue.name] > 1]
    if not shared or rng.random() >= SINGLE_ACTIVE:
        return plan
    chosen = rng.choice(shared)
    restless = rng.choice((0.0, 0.1, 0.3))
    return replace(
        plan,
        topology=replace(
            plan.topology,
            queues=tuple(replace(q, single_active=q.name == chosen) for q in plan.topology.queues),
        ),
        consumers=tuple(replace(c, restless=restless) if c.queue == chosen else c for c in plan.consumers),
    )


def _link(rng: Random) -> LinkPlan:
    return LinkPlan(
        snapshot_chunk=rng.choice((1, 200, 2000, 1 << 18)),
        joiner_window=rng.choice((1000, 4 << 20)),
        short_lag=rng.choice((1000, 1 << 20)),
    )


def _parts(link: LinkPlan, rng: Random) -> LinkPlan:
    return replace(link, definitions_chunk=rng.choice((1, 4, 500)))


def _contents(link: LinkPlan, rng: Random, budget: Random) -> LinkPlan:
    return replace(
        link, large_message=rng.choice((1, 60, 1 << 20)), contents_window=rng.choice((1, 300, 1 << 20)),
        share=budget.choice((1, 10, 200, 8_000)),
    )  # fmt: skip


def _points(link: LinkPlan, rng: Random) -> LinkPlan:
    return replace(link, quiesce_queues=rng.choice((500, 500, 3, 1)), quiesce_most=rng.choice((100_000, 10)))


def _network(rng: Random) -> NetworkPlan:
    return NetworkPlan(
        latency=rng.choice((0.0001, 0.0003, 0.001)),
        spread=rng.choice((0.0, 0.0005, 0.003)),
        cut=rng.choice((0.0, 0.1, 0.4)),
        slow=rng.choice((0.0, 0.0, 0.01)),
        buffer=rng.choice((2048, 65536)),
        retransmit=rng.choice((0.05, 0.4)),
        give_up=rng.choice((1.0, 4.0, 20.0)),
    )


def _timing(rng: Random, *, slow: bool) -> TimingPlan:
    """Short ones show more failovers in less time; not so short that a slow network means silence."""
    ack_timeout = rng.choice((1.0, 2.0) if slow else (0.5, 0.5, 1.0, 1.0, 2.0))
    return TimingPlan(
        ack_timeout=ack_timeout,
        lease=min(rng.choice((0.6, 1.0, 1.5, 3.0)) * ack_timeout, 3.0),
        backup_timeout=rng.choice((1.0, 2.5)) * ack_timeout,
        dequeue_lag=rng.choice((0.0, 0.01, 0.01, 0.1)),
        reconnect_grace=rng.choice((1.0, 10.0)),
    )


def _controllers(rng: Random) -> tuple[ControllerPlan, ...]:
    """One, or two that know nothing of each other. Only one alone may fence: what it says is then true of
    the record that it acts on."""
    count = rng.choice((1, 1, 2))
    plans = []
    for n in range(count):
        every = rng.choice((0.1, 0.1, 0.3))
        plans.append(
            ControllerPlan(
                f"controller{n + 1}",
                every=every,
                patience=rng.choice((0.1, 0.3, 1.0)),
                silence=1.5 * every + rng.choice((0.05, 0.3, 1.0)),
                fences=count == 1 and rng.random() < 0.4,
            )
        )
    return tuple(plans)


def _machine(rng: Random, name: str) -> MachinePlan:
    return MachinePlan(
        name,
        sync_time=rng.choice((0.0002, 0.002, 0.01)),
        start_after=rng.random() * rng.choice((0.01, 0.01, 0.5)),
        wall_error=rng.choice((0, 0, -100, 5_000)),
        tick=rng.choice((0.00005, 0.001, 0.005)),
    )


def _uptimes(rng: Random, machines: tuple[MachinePlan, ...]) -> tuple[MachinePlan, ...]:
    if rng.random() < ONE_CLOCK:
        return machines
    return tuple(
        replace(m, uptimes=tuple(rng.randrange(rng.choice((10, 1_000, 1_200_000))) for _ in range(5)))
        for m in machines
    )


def _wall_clocks(rng: Random, machines: tuple[MachinePlan, ...]) -> tuple[MachinePlan, ...]:
    """All hours apart. Not by less: what is over while copies are compared would spoil that."""
    if rng.random() >= HOURS_APART:
        return machines
    errors = rng.sample((0, -10_800_000, 10_800_000, -86_400_000, 86_400_000), len(machines))
    return tuple(replace(m, wall_error=error) for m, error in zip(machines, errors, strict=True))


def _publisher(rng: Random, name: str) -> PublisherPlan:
    return PublisherPlan(
        name,
        window=rng.choice((1, 5, 20, 100)),
        burst=rng.choice((1, 3, 10)),
        interval=rng.choice((0.002, 0.01, 0.05)),
        frame_max=rng.choice((0, 0, 4096)),
        heartbeat=rng.choice((0, 0, 2)),
        big=rng.choice((0.0, 0.05)),
        persistent=rng.choice((0.0, 0.5, 1.0)),
        mandatory=rng.random() < 0.3,
    )


def _consumer(rng: Random, name: str, queue: str) -> ConsumerPlan:
    return ConsumerPlan(
        name,
        queue,
        prefetch=rng.choice((0, 1, 10, 50)),
        delay=rng.choice((0.0, 0.003, 0.03)),
        multiple=rng.random() < 0.5,
        requeues=rng.choice((0.0, 0.0, 0.05)),
        rejects=rng.choice((0.0, 0.0, 0.02)),
        frame_max=rng.choice((0, 0, 4096)),
        heartbeat=rng.choice((0, 0, 2)),
        restless=rng.choice((0.0, 0.0, 0.05)),
    )


def _poller(rng: Random, name: str, topology: Topology) -> PollerPlan:
    return PollerPlan(
        name,
        rng.choice(topology.queues).name,
        interval=rng.choice((0.005, 0.02, 0.1)),
        keeps=rng.choice((0, 1, 5)),
        requeues=rng.choice((0.0, 0.1)),
    )


def _temporary(rng: Random, name: str) -> TemporaryPlan:
    return TemporaryPlan(
        name, rng.random() < 0.5, replicated=rng.random() < 0.7, interval=rng.choice((0.05, 0.3, 1.0))
    )


def _trespassers(rng: Random, topology: Topology) -> tuple[TrespasserPlan, ...]:
    """One of each internal exchange, of most of them."""
    names = [plan.name for plan in topology.exchanges if plan.internal and rng.random() < 0.7]
    return tuple(TrespasserPlan(f"i-{name}", name, rng.choice((0.05, 0.3))) for name in names)


def _expiring(rng: Random, plan: TemporaryPlan) -> TemporaryPlan:
    if plan.exclusive or rng.random() < 0.6:
        return plan
    return replace(plan, expires=rng.choice((0.05, 0.3, 1.0)))
