"""The cases: each a site of its own, faults under load, and what must hold besides the play's own checks.

Called by `test_cases`, one after another. Continuous integration plays those with `smoke`, one round each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.cluster import cases_disk, cases_upkeep, faults
from tests.cluster.configuration import Flavour
from tests.cluster.faults import BROKER
from tests.cluster.machine import Machine
from tests.cluster.phases import Round
from tests.cluster.play import Play

_PAIR = Flavour()
QDEVICE = Flavour(qdevice=True)
ROW = 20
"""Faults in a row."""


@dataclass(slots=True, frozen=True)
class Case:
    play: Callable[[Play], None]
    flavour: Flavour = _PAIR
    rounds: int = 1
    """How often `play` is called."""
    smoke: bool = False
    target: float | None = None
    """Seconds: the client kit's median time without a confirm is to be shorter, on a machine that is idle."""


def fencing_fails(play: Play) -> None:
    """Nobody knows whether the primary is off: nothing is promoted until it is known."""
    with play.round("power-off of the primary, and fencing fails") as made:
        primary, heir = play.primary(), play.backup()
        play.switch.broken = True
        made.fault = time.time()
        primary.power_off()
        play.site.until(lambda: _attempts(play, made.fault) >= 2, "fencing to be tried twice")
        play.pause(faults.HELD)
        assert play.watch.first(heir.name, lambda sample: sample.serves, made.fault) is None, (
            "promoted unfenced"
        )
        assert play.site.status(heir.name)["status"] in ("ready", "joining")
        play.switch.broken = False
        play.until_promoted(heir, made.fault)


def _attempts(play: Play, since: float) -> int:
    return sum(each.asked >= since and not each.ok for each in play.switch.requests)


def frozen_and_thawed(play: Play) -> None:
    """A zombie: frozen for longer than its lease while fencing fails, then let go. It may go on, or be
    fenced; it never serves beside another one.
    """
    with play.round("freeze of the primary past its lease, unfenced, and thaw") as made:
        primary = play.primary()
        play.switch.broken = True
        made.fault = time.time()
        primary.freeze()
        play.site.until(lambda: _attempts(play, made.fault) >= 1, "fencing to be tried")
        play.pause(faults.HELD)
        primary.thaw()
        play.switch.broken = False
        play.pause(faults.HELD)  # a request for fencing that is under way, with its delay, comes yet


def promotion_killed(play: Play) -> None:
    """The agent dies while it promotes: Pacemaker takes it for failed, and recovers."""
    with play.round("the agent killed in mid-promote") as made:
        heir = play.backup()
        made.fault = play.primary().kill(BROKER)
        heir.kill_when_seen("ocf/resource.d/understudy/understudy promote")


def cold_start(first: str | None) -> Callable[[Play], None]:
    """Both were off; `first` starts first, and the other one once that one runs. None: together."""

    def play(stage: Play) -> None:
        with stage.round(f"cold start of both, {first or 'both'} first") as made:
            for machine in stage.machines.values():
                machine.power_off()
            made.fault = time.time()
            for name in sorted(stage.machines, key=lambda name: name != first):
                stage.machines[name].power_on()
                if first is not None and name == first:
                    stage.site.until(lambda: stage.site.monitor(first) is not None, f"Pacemaker on {first}")

    return play


def one_alone(play: Play) -> None:
    """With two votes of two, one that has not seen the other goes nowhere, whatever its store says."""
    with play.round("cold start of one alone, which waits for the other") as made:
        for machine in play.machines.values():
            machine.power_off()
        made.fault = time.time()
        play.machines["a"].power_on()
        play.site.until(lambda: play.site.monitor("a") is not None, "Pacemaker on a")
        play.pause(faults.HELD)
        assert play.watch.first("a", lambda sample: sample.serves, made.fault) is None, "it serves alone"
        play.machines["b"].power_on()


def one_alone_with_a_third_vote(play: Play) -> None:
    """With qnetd's vote one node may go on alone, if it is the only one of the record. While the record names
    the other one too, that one is waited for: what it holds is not known.
    """
    with play.round("cold start of the last primary alone, then of the other one") as made:
        primary = _all_off_but_this_one(play, made)
        play.site.until(lambda: bool(play.site.status(primary.name)), f"the broker on {primary.name}")
        play.pause(faults.HELD)
        assert play.watch.first(primary.name, lambda sample: sample.serves, made.fault) is None, "it serves"
        play.switch.stays_off = False
        play.other(primary).power_on()
    with play.round("cold start of the last primary alone, the other one being out of the record") as made:
        play.switch.stays_off = True
        play.backup().power_off()
        play.until_fenced(made.fault)
        play.goes_on()
        primary = _all_off_but_this_one(play, made)
        play.until_promoted(primary, made.fault)
        play.switch.stays_off = False
        play.other(primary).power_on()


def _all_off_but_this_one(play: Play, made: Round) -> Machine:
    """The primary, which starts again."""
    primary = play.primary()
    play.switch.stays_off = True
    for machine in play.machines.values():
        machine.power_off()
    made.fault = time.time()
    primary.power_on()
    return primary


def row_of_faults(play: Play) -> None:
    """Drawn from the run's seed."""
    rng = random.Random(play.seed)
    drawn = [rng.choice(sorted(faults.DRAWN)) for _ in range(ROW)]
    print(f"seed {play.seed}: {', '.join(drawn)}")
    for name in drawn:
        faults.DRAWN[name](play)


CASES: dict[str, Case] = {
    "broker-killed": Case(faults.broker_killed, rounds=4, smoke=True, target=3.0),
    "backups-broker-killed": Case(faults.backups_broker_killed),
    "corosync-killed": Case(faults.corosync_killed),
    "pacemakerd-killed": Case(faults.pacemakerd_killed),
    "primary-powered-off": Case(faults.primary_powered_off, rounds=3, target=8.0),
    "backup-powered-off": Case(faults.backup_powered_off),
    "both-powered-off": Case(faults.both_powered_off),
    "primary-frozen": Case(faults.primary_frozen),
    "frozen-and-thawed": Case(frozen_and_thawed),
    # The node with the primary is to win: a change of sides takes longer.
    "partition": Case(faults.partition, rounds=3, smoke=True, target=6.0),
    "one-way": Case(faults.one_way),
    "severed-from-clients": Case(faults.severed_from_clients),
    "full-disk": Case(cases_disk.full),
    "hanging-disk": Case(cases_disk.hanging),
    "fencing-fails": Case(fencing_fails),
    "promotion-killed": Case(promotion_killed),
    "maintenance": Case(cases_upkeep.maintenance),
    "switchover": Case(faults.standby, rounds=3),
    "switchover-by-move": Case(faults.move, rounds=3, smoke=True, target=1.0),
    "switchover-refused": Case(faults.switchover),
    "rolling-upgrade": Case(cases_upkeep.rolling_upgrade),
    "old-store": Case(cases_upkeep.old_store),
    "cold-start-together": Case(cold_start(None)),
    "cold-start-a-first": Case(cold_start("a")),
    "cold-start-b-first": Case(cold_start("b")),
    "cold-start-one-alone": Case(one_alone),
    "qdevice-primary-powered-off": Case(faults.primary_powered_off, QDEVICE, rounds=3, target=8.0),
    "qdevice-partition": Case(faults.partition, QDEVICE),
    "qdevice-fencing-fails": Case(fencing_fails, QDEVICE),
    "qdevice-one-alone": Case(one_alone_with_a_third_vote, QDEVICE),
    "row-of-faults": Case(row_of_faults),
}
