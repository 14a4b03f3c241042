"""What may go wrong in a run, as plain values: which faults there are, and how a seed's are drawn.

`faults` does them. What a fault decides only when it happens it draws from a source of its own name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from random import Random


class Fault(enum.Enum):
    KILL_PRIMARY = "kill the primary"
    KILL_BACKUP = "kill a backup"
    KILL_BACKUP_TWICE = "kill a backup, and again while it joins"
    KILL_ALL = "kill all backups, then the primary"
    """The last failure comes when nobody else is left: only what is on disk must survive."""
    CRASH_IN_WRITE = "crash a machine in the middle of a write"
    STOP_PROCESS = "stop a process for a while (SIGSTOP)"
    SWITCH_OVER = "demote the primary"
    KILL_EXPECTED = "kill the primary, then a backup while it links to the new one"
    DEMOTE_NEW_PRIMARY = "kill the primary, and demote the new one at once"
    CUT_LINK = "cut a link"
    SLOW_DISK = "slow down a disk"
    FAIL_DISK = "fail a disk"
    ROT_DISK = "change a byte on the disk of a killed backup"
    STEP_CLOCK = "step a wall clock"
    STALL_READER = "a client stops reading"
    ASK_PROMOTION = "an impatient operator asks for a promotion"
    PARTITION = "cut hosts off from others"
    USURP = "cut the primary off from those who may be, or make, another"
    SLOW_REGISTER = "slow down the register"
    LOSE_ANSWERS = "lose questions to the register, or its answers"
    HAND_OVER = "switch over to a backup, and perhaps something happens meanwhile"
    BAD_EVENT = "give a backup an event that its copy cannot take"
    MISCONFIGURE = "start a backup with another configuration, and later with its own"
    POWER_OFF = "take the power of a host"
    SPLIT_IN_WRITE = "split the cluster in the middle of a write of the record"
    HANG_CIB = "a CIB daemon hangs"
    FAIL_CIBADMIN = "commands of the cluster fail, or are late"
    KILL_HELPER = "kill the helper that asks the CIB"
    FREEZE_HOST = "freeze a whole host"
    KILL_CLUSTER = "kill the cluster's processes of a host"
    BREAK_SWITCH = "break the power switch, when somebody is to be fenced"
    MAINTAIN = "put the cluster into maintenance mode"
    STOP_CONTROLLER = "a resource manager does nothing"
    EDIT_CIB = "somebody changes the configuration of the cluster"
    FORCE = "an operator forces a promotion"
    HANG_DISK = "the disk of a backup hangs"
    STOP_TARGET = "stop a backup for a while, and kill the primary meanwhile"
    KILL_NEW_PRIMARY = "kill the primary, and the new one while members of its record catch up"
    CUT_NETWORK = "cut one of two networks between the nodes"
    ORDER_PASSIVE = "an operator orders nodes to stand by, while none serves"
    KILL_UNSEEN = "kill the primary while no client gets through to any node"
    SPOIL_COPY = "a backup does not apply a dequeue, and nobody is told"


CUTS = frozenset(
    (
        Fault.PARTITION,
        Fault.USURP,
        Fault.SPLIT_IN_WRITE,
        Fault.BREAK_SWITCH,
        Fault.FORCE,
        Fault.CUT_NETWORK,
        Fault.ORDER_PASSIVE,
        Fault.KILL_UNSEEN,
    )
)
"""In which ways between hosts are cut: what was under way there comes late, once they are mended."""


class When(enum.Enum):
    """What must be so before a fault happens."""

    WHOLE = "every node is up, and all but the primary are ready"
    PAIR = "there is a primary, and a ready backup in its record"
    ANY = "anything"


NEEDS = {
    Fault.KILL_ALL: When.WHOLE,
    Fault.ROT_DISK: When.WHOLE,
    Fault.SPOIL_COPY: When.WHOLE,
    Fault.SLOW_DISK: When.ANY,
    Fault.STEP_CLOCK: When.ANY,
    Fault.STALL_READER: When.ANY,
    Fault.ASK_PROMOTION: When.ANY,
    Fault.SLOW_REGISTER: When.ANY,
    Fault.LOSE_ANSWERS: When.ANY,
    Fault.EDIT_CIB: When.ANY,
}
"""PAIR, where nothing is said."""

MANUAL = {
    Fault.KILL_PRIMARY: 6,
    Fault.KILL_BACKUP: 2,
    Fault.KILL_BACKUP_TWICE: 2,
    Fault.CRASH_IN_WRITE: 2,
    Fault.STOP_PROCESS: 2,
    Fault.SWITCH_OVER: 2,
    Fault.KILL_EXPECTED: 1,
    Fault.DEMOTE_NEW_PRIMARY: 1,
    Fault.CUT_LINK: 2,
    Fault.SLOW_DISK: 1,
    Fault.FAIL_DISK: 2,
    Fault.ROT_DISK: 1,
    Fault.STEP_CLOCK: 1,
    Fault.STALL_READER: 1,
    Fault.ASK_PROMOTION: 2,
}
"""What the `manual` authority is to survive, with weights: crashes and broken connections, no partition."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """One fault. It falls into traffic: after `share` of what the publishers were last granted was sent, and
    `pause` seconds later. `length`: seconds that it lasts (how long a killed node is down)."""

    name: str
    kind: Fault
    when: When
    share: float
    pause: float
    length: float


REGISTER = MANUAL | {
    Fault.STOP_PROCESS: 4,
    Fault.PARTITION: 10,
    Fault.USURP: 10,
    Fault.SLOW_REGISTER: 2,
    Fault.LOSE_ANSWERS: 2,
}
"""With an arbiter also partitions, and several failures at once."""

PACEMAKER = MANUAL | {
    Fault.STOP_PROCESS: 3,
    Fault.PARTITION: 8,
    Fault.USURP: 5,
    Fault.POWER_OFF: 5,
    Fault.SPLIT_IN_WRITE: 6,
    Fault.HANG_CIB: 3,
    Fault.FAIL_CIBADMIN: 3,
    Fault.KILL_HELPER: 2,
    Fault.FREEZE_HOST: 3,
    Fault.KILL_CLUSTER: 3,
    Fault.BREAK_SWITCH: 3,
    Fault.MAINTAIN: 2,
    Fault.STOP_CONTROLLER: 2,
    Fault.EDIT_CIB: 3,
}
"""What a cluster of the nodes themselves adds, or makes otherwise."""

WEIGHTS = {
    "manual": MANUAL, "pair": MANUAL, "register": REGISTER, "etcd": REGISTER, "witness": REGISTER,
    "pacemaker": PACEMAKER,
}  # fmt: skip
OFTEN = {
    "etcd": (Fault.PARTITION, Fault.STOP_PROCESS),
    "witness": (Fault.PARTITION, Fault.STOP_PROCESS),
    "register": (Fault.PARTITION, Fault.USURP),
    "pacemaker": (Fault.PARTITION, Fault.USURP, Fault.SPLIT_IN_WRITE, Fault.POWER_OFF),
}
"""One of these is there mostly."""


def draw_faults(rng: Random, *, authority: str, nodes: int, all_durable: bool) -> tuple[FaultPlan, ...]:
    """One to four faults, of kinds that were drawn first: so that rare ones meet."""
    weights = WEIGHTS[authority]
    arbitrated = authority not in ("manual", "pair")
    kinds = {kind: weight for kind, weight in weights.items() if rng.random() < 0.5}
    if arbitrated and rng.random() < 0.7:
        often = rng.choice(OFTEN[authority])
        kinds[often] = weights[often]
    if arbitrated and not all_durable:
        # Whoever is to end, nobody knows when, may become the last that has what is not durable.
        kinds.pop(Fault.FAIL_DISK, None)
        kinds.pop(Fault.CRASH_IN_WRITE, None)
    if Fault.CUT_LINK in kinds and not arbitrated:
        # A link that is cut while both ends live, and a promotion in haste: nobody but a register can judge.
        kinds.pop(Fault.ASK_PROMOTION, None)
    if rng.random() < 0.8 or not kinds:
        kinds[Fault.KILL_PRIMARY] = weights[Fault.KILL_PRIMARY]
    chosen = rng.choices(list(kinds), list(kinds.values()), k=rng.choice((1, 1, 2, 2, 3, 4)))
    if all_durable and rng.random() < 0.3:
        chosen.insert(rng.randint(0, len(chosen)), Fault.KILL_ALL)
    overlap = rng.choice((0.0, 0.5, 0.9)) if arbitrated else 0.0
    plans = [
        FaultPlan(
            f"f{n + 1}",
            kind,
            When.ANY if kind not in NEEDS and rng.random() < overlap else NEEDS.get(kind, When.PAIR),
            share=rng.choice((0.0, 0.2, 0.5, 0.9, 1.0)),
            pause=rng.choice((0.0, 0.001, 0.02)) * rng.random(),
            length=rng.choice((0.01, 0.2, 0.2, 1.0, 1.0, 4.0)) * (0.5 + rng.random()),
        )
        for n, kind in enumerate(chosen)
    ]
    if rng.random() < 0.35:
        # Drawn last of all, so that the others are what they were.
        when = When.ANY if rng.random() < overlap else When.PAIR
        share, pause, length = rng.random(), 0.02 * rng.random(), rng.choice((0.01, 0.2, 1.0)) * rng.random()
        hand_over = FaultPlan("switchover", Fault.HAND_OVER, when, share, pause, length)
        plans.insert(rng.randint(0, len(plans)), hand_over)
    if rng.random() < 0.2:
        share, length = rng.random(), rng.choice((0.0, 0.001, 0.02, 0.3)) * rng.random()
        bad_event = FaultPlan("bad event", Fault.BAD_EVENT, When.PAIR, share, 0.0, length)
        plans.insert(rng.randint(0, len(plans)), bad_event)
    if rng.random() < 0.1:
        share, length = rng.random(), rng.choice((0.2, 1.0, 3.0)) * (0.5 + rng.random())
        other = FaultPlan("configuration", Fault.MISCONFIGURE, When.PAIR, share, 0.0, length)
        plans.insert(rng.randint(0, len(plans)), other)
    if not arbitrated and rng.random() < 0.15:
        share, length = rng.random(), rng.choice((1.1, 1.5, 3.0))
        stop_target = FaultPlan("stopped heir", Fault.STOP_TARGET, When.PAIR, share, 0.0, length)
        plans.insert(rng.randint(0, len(plans)), stop_target)
    if rng.random() < 0.12:
        share, pause = 0.9 * rng.random(), 0.02 * rng.random()
        hang_disk = FaultPlan("hung disk", Fault.HANG_DISK, When.PAIR, share, pause, 0.0)
        plans.insert(rng.randint(0, len(plans)), hang_disk)
    if nodes > 2 and rng.random() < 0.2:
        share, pause, length = rng.random(), 0.02 * rng.random(), rng.choice((0.2, 1.0, 4.0)) * rng.random()
        kill_new_primary = FaultPlan("dead heir", Fault.KILL_NEW_PRIMARY, When.WHOLE, share, pause, length)
        plans.insert(rng.randint(0, len(plans)), kill_new_primary)
    return tuple(plans)


def draw_spoilt_copy(rng: Random, faults: tuple[FaultPlan, ...]) -> tuple[FaultPlan, ...]:
    """The same, and a copy among them that differs."""
    plans = list(faults)
    spoilt = FaultPlan("spoilt copy", Fault.SPOIL_COPY, When.WHOLE, rng.random(), 0.02 * rng.random(), 0.0)
    plans.insert(rng.randint(0, len(plans)), spoilt)
    return tuple(plans)


def draw_cut_networks(rng: Random, faults: tuple[FaultPlan, ...]) -> tuple[FaultPlan, ...]:
    """The same, and one or two cuts of one network among them."""
    plans = list(faults)
    for n in range(rng.choice((1, 2))):
        share, pause, length = (
            rng.random(),
            0.02 * rng.random(),
            rng.choice((0.2, 1.0, 4.0)) * (0.5 + rng.random()),
        )
        cut = FaultPlan(f"network{n + 1}", Fault.CUT_NETWORK, When.PAIR, share, pause, length)
        plans.insert(rng.randint(0, len(plans)), cut)
    return tuple(plans)


def draw_unseen(rng: Random, faults: tuple[FaultPlan, ...]) -> tuple[FaultPlan, ...]:
    """The same, and among them the end of a primary that no client sees, perhaps with an order after it."""
    plans = list(faults)
    share, pause, length = rng.random(), 0.02 * rng.random(), rng.choice((0.01, 0.2, 1.0)) * rng.random()
    kind = rng.choice((Fault.ORDER_PASSIVE, Fault.KILL_UNSEEN))
    order = FaultPlan("unseen", kind, When.PAIR, share, pause, length)
    plans.insert(rng.randint(0, len(plans)), order)
    return tuple(plans)


def draw_force(rng: Random, faults: tuple[FaultPlan, ...]) -> tuple[FaultPlan, ...]:
    """The same, and one or two forced promotions among them."""
    plans = list(faults)
    for n in range(rng.choice((1, 1, 2))):
        share, pause, length = rng.random(), 0.02 * rng.random(), rng.choice((0.2, 1.0, 4.0)) * rng.random()
        force = FaultPlan(f"force{n + 1}", Fault.FORCE, When.PAIR, share, pause, length)
        plans.insert(rng.randint(0, len(plans)), force)
    return tuple(plans)
