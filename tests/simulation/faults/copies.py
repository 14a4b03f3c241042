"""Events that a backup's copy of a queue cannot take, or loses, and what may come upon that."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from broker.model.history.records import Dequeue, EnqueueRun, Record
from tests.simulation.faults.nodes import break_links, draw_death
from tests.simulation.faults.plan import FaultPlan
from tests.simulation.faults.spoiling import spoil
from tests.simulation.harness.inspection import astray
from tests.simulation.harness.machines.machine import Machine

if TYPE_CHECKING:
    from tests.simulation.faults.injector import Saboteur

PEACE = 3
"""Of so many and three more, this many are left alone with it."""
GLANCE = 0.001
LOOKS = 300
LOOK = 0.05
"""Seconds between two looks whether a difference is mended."""
FIRST, FOUND = 2.0, 60.0
"""Seconds within which a dequeue has to come, and its lack to be found: points come every 5 s while history
moves, and may list but a few queues each."""


def bad_event(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """The next messages, or the next dequeues, raise there; then, sometimes, the primary, the backup or the
    link goes while the queue is fetched again."""
    pair = s.targets(rng)
    if pair is None or not s.world.topology.all_durable:
        return  # the other copy may be gone by then, and with it what is not durable
    primary, backup = pair
    if backup.role() != "ready":
        return
    spoil(
        backup.running.vhosts, rng.choice((EnqueueRun, EnqueueRun, Dequeue)), told=partial(_spoilt, s, backup)
    )
    s.clock.note(f"FAULT: the next event of {backup.name} is spoilt")
    then = rng.randrange(PEACE + 3)
    if then < 3:
        s.later(GLANCE, partial(_when_fetching, s, plan, rng, primary, backup, backup.life, then, LOOKS))


def _spoilt(s: Saboteur, backup: Machine, record: Record) -> None:
    backup.spoil()
    s.world.copies.spoilt(backup)


def _when_fetching(
    s: Saboteur, plan: FaultPlan, rng: Random, primary: Machine, backup: Machine, life: int, then: int,
    looks: int,
) -> None:  # fmt: skip
    if backup.life != life or backup.node is None or primary.node is None or not looks:
        return
    if not backup.running.core._local.replica.resetting:
        s.later(
            GLANCE, partial(_when_fetching, s, plan, rng, primary, backup, life, then, looks - 1)
        )  # fmt: skip
        return
    match then:
        case 0:
            s.later(plan.length, partial(s.kill_and_restart, primary, draw_death(rng), 0.2))
        case 1:
            s.later(plan.length, partial(s.kill_and_restart, backup, draw_death(rng), 0.2))
        case _:
            s.later(plan.length, partial(break_links, primary, backup, rng))


def spoil_copy(s: Saboteur, plan: FaultPlan, rng: Random) -> None:
    """The next dequeue is not applied there, without an error: a difference that only the nodes' own
    comparison finds, at a checkpoint. Nothing else happens until then: who does not know that its copy is
    wrong may be promoted, and what was acknowledged would come back. Of a queue without transactions, since
    these are looked into while they are made."""
    pair = s.world.pair()
    if pair is None:
        return
    primary, backup = pair
    s.alone = True
    vhosts, plain = backup.running.vhosts, {queue.name for queue in s.world.topology.queues}
    queues = [uuid for uuid, queue in vhosts.queues_by_uuid.items() if queue.name in plain]
    disarm = spoil(vhosts, Dequeue, *queues, silent=True, told=partial(_astray, s, backup))
    s.clock.note(f"FAULT: the next dequeue of {backup.name} is lost")
    s.world.grant()
    until = s.clock.now + FIRST
    s.later(LOOK, partial(_until_equal, s, primary, backup, backup.life, disarm, until))


def _astray(s: Saboteur, backup: Machine, record: Dequeue) -> None:
    backup.astray = record
    queue = backup.running.vhosts.queues_by_uuid.get(record.queue)
    title = queue.title if queue is not None else "a queue that is gone"
    s.clock.note(f"FAULT: {backup.name} does not apply a dequeue of {title}, and nobody is told")


def _until_equal(
    s: Saboteur, primary: Machine, backup: Machine, life: int, disarm: Callable[[], object], until: float
) -> None:
    """Without a dequeue there is nothing to wait for; nor where the queue or the message has gone since."""
    if backup.life == life and backup.node is not None and primary.node is not None:
        if backup.astray is None and s.clock.now < until:
            s.later(LOOK, partial(_until_equal, s, primary, backup, life, disarm, until))
            return
        disarm()
        if astray(backup):
            s.world.checkers.compared.differs(backup, s.clock.now - until, FOUND)
            s.later(LOOK, partial(_until_equal, s, primary, backup, life, disarm, until))
            return
    backup.astray = None
    s.alone_until_whole()
