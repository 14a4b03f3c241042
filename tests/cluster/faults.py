"""Faults, each of them one round: done, waited for, repaired, and the pair is whole again.

Called by the cases, one at a time, and drawn one after another by one of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.cluster.configuration import HOST, LOGIN, PORT
from tests.cluster.play import Play

BROKER = r"understudy serve"
HELD = 4.0
"""Seconds: longer than the lease, `ack_timeout`, and the token."""

Fault = Callable[[Play], None]


def broker_killed(play: Play) -> None:
    primary, heir = play.primary(), play.backup()
    with play.round("kill -9 of the primary's broker") as made:
        made.fault = primary.kill(BROKER)
    play.forget_failures(heir)


def backups_broker_killed(play: Play) -> None:
    with play.round("kill -9 of the backup's broker") as made:
        made.fault = play.backup().kill(BROKER)


def corosync_killed(play: Play) -> None:
    with play.round("kill -9 of the primary's corosync") as made:
        made.fault = play.primary().kill(r"^corosync -f")
        play.until_fenced(made.fault)


def pacemakerd_killed(play: Play) -> None:
    """Nothing is to happen: it is started again, and finds its children alive."""
    epoch = play.epoch()
    primary = play.primary()
    with play.round("kill -9 of the primary's pacemakerd") as made:
        made.fault = primary.kill(r"^pacemakerd -f")
        play.site.until(lambda: bool(primary.pids(r"^pacemakerd -f")), "pacemakerd to be there again")
    assert play.epoch() == epoch and not play.switch.fenced(made.fault), "a failover without need"


def primary_powered_off(play: Play) -> None:
    with play.round("power-off of the primary") as made:
        primary = play.primary()
        made.fault = time.time()
        primary.power_off()
        play.until_fenced(made.fault)


def backup_powered_off(play: Play) -> None:
    with play.round("power-off of the backup") as made:
        backup = play.backup()
        made.fault = time.time()
        backup.power_off()
        play.until_fenced(made.fault)


def both_powered_off(play: Play) -> None:
    with play.round("power-off of both") as made:
        made.fault = time.time()
        for machine in play.machines.values():
            machine.power_off()
        for machine in play.machines.values():
            machine.power_on()


def primary_frozen(play: Play) -> None:
    with play.round("freeze of the primary") as made:
        made.fault = time.time()
        play.primary().freeze()
        play.until_fenced(made.fault)


def partition(play: Play) -> None:
    """The pair's machines do not reach each other; clients reach both."""
    a, b = play.machines.values()
    with play.round("partition of the pair") as made:
        made.fault = time.time()
        a.drop(f"in ip saddr {b.address}", f"out ip daddr {b.address}")
        play.until_fenced(made.fault)
        a.mend()


def one_way(play: Play) -> None:
    """What the primary sends does not come to the backup; the other way it does."""
    primary, backup = play.primary(), play.backup()
    with play.round("one way only, from backup to primary") as made:
        made.fault = time.time()
        backup.drop(f"in ip saddr {primary.address}")
        play.until_fenced(made.fault)
        backup.mend()


def severed_from_clients(play: Play) -> None:
    """The primary serves, and nobody gets to it: not what a pair can help. Nothing is promoted."""
    epoch = play.epoch()
    primary = play.primary()
    with play.round("the primary cut off from its clients") as made:
        made.fault = time.time()
        primary.drop(f"in ip saddr {HOST} tcp dport {PORT}", f"out ip daddr {HOST} tcp sport {PORT}")
        play.pause(HELD)
        primary.mend()
    assert play.epoch() == epoch, "a promotion that helps nobody"


def standby(play: Play) -> None:
    """The planned switchover that an operator makes before work on a machine."""
    primary = play.primary()
    with play.round("switchover: standby of the primary"):
        primary.run("crm_standby", "--node", primary.name, "--update", "on")
        play.until_role(play.other(primary), "Promoted")
        primary.run("crm_standby", "--node", primary.name, "--delete")


def move(play: Play) -> None:
    primary, heir = play.primary(), play.backup()
    with play.round("switchover: the role is moved"):
        primary.run(
            "crm_resource", "--resource", "understudy-clone", "--move", "--promoted", "--node", heir.name
        )
        play.until_role(heir, "Promoted")
        primary.run("crm_resource", "--resource", "understudy-clone", "--clear")


def switchover(play: Play) -> None:
    """By the broker's own command: refused, since Pacemaker would undo it."""
    primary, epoch = play.primary(), play.epoch()
    asked = ("understudy", "switchover", "-b", f"{primary.address}:{PORT}")
    with play.round("switchover by the broker's own command, refused"):
        code, words = primary.run(*asked, "--user", LOGIN.user, "--password", LOGIN.password, check=False)
        assert code == 1 and "Pacemaker decides who serves here" in words, words
    assert play.epoch() == epoch


DRAWN: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        broker_killed,
        backups_broker_killed,
        corosync_killed,
        pacemakerd_killed,
        primary_powered_off,
        backup_powered_off,
        both_powered_off,
        primary_frozen,
        partition,
        one_way,
        severed_from_clients,
        standby,
        move,
    )
}  # fmt: skip """Those of which a row is drawn."""
