"""Cases of an operator's work: maintenance mode, a rolling upgrade, a node that comes back with an old
store.
"""

from __future__ import annotations

import shutil

from tests.cluster.faults import BROKER
from tests.cluster.images import NEXT
from tests.cluster.machine import Machine
from tests.cluster.play import Play

_ENVIRONMENT = "/opt/understudy/bin"


def maintenance(play: Play) -> None:
    """Pacemaker keeps its hands off: no monitor runs. The primary goes on with its record by itself: its
    backup's broker dies, is excluded, and messages are confirmed alone.
    """
    with play.round("maintenance mode, and kill -9 of the backup's broker") as made:
        primary, backup = play.primary(), play.backup()
        primary.run("crm_attribute", "--type", "crm_config", "--name", "maintenance-mode", "--update", "true")
        play.site.until(lambda: play.site.managed() is False, "maintenance mode")
        made.fault = backup.kill(BROKER)
        play.goes_on()
        assert not backup.pids(BROKER), "started again in maintenance mode"
        primary.run("crm_attribute", "--type", "crm_config", "--name", "maintenance-mode", "--delete")
        play.site.until(lambda: play.site.managed() is True, "the end of maintenance mode")


def rolling_upgrade(play: Play) -> None:
    """The backup first, then the primary, as docs/runbook.md says; clients go on throughout."""
    for machine in (play.backup(), play.primary()):
        with play.round(f"upgrade of {'the backup' if machine is play.backup() else 'the primary'}"):
            old = _version(machine)
            _standby(play, machine)
            wheel = machine.run("sh", "-c", "ls /opt/wheels/*next*.whl")[1]
            machine.run(
                f"{_ENVIRONMENT}/pip",
                "install",
                "--quiet",
                "--no-index",
                "--no-deps",
                "--force-reinstall",
                wheel,
            )
            machine.run("understudy", "agent", "install")
            machine.run("crm_standby", "--node", machine.name, "--delete")
        assert _version(machine) == old + NEXT


def _version(machine: Machine) -> str:
    ask = "from importlib.metadata import version; print(version('understudy-amqp'))"
    return machine.run(f"{_ENVIRONMENT}/python", "-c", ask)[1]


def old_store(play: Play) -> None:
    """A node's store is what it was some failovers ago (its identity is not: whole disks are not put back, as
    docs/how-to/backup-restore.md says). What it lacks it gets, and what it alone knows is not believed.
    """
    backup = play.backup()
    store, old = backup.disk.mount / "data" / "store", play.folder / "old"
    with play.round("a store is put aside"):
        _standby(play, backup)
        shutil.copytree(store, old)
        backup.run("crm_standby", "--node", backup.name, "--delete")
    for machine in (play.primary(), backup):
        with play.round("switchover: standby of the primary"):
            _standby(play, machine)
            machine.run("crm_standby", "--node", machine.name, "--delete")
    with play.round("it comes back with the old store"):
        _standby(play, backup)
        shutil.rmtree(store)
        shutil.copytree(old, store)
        backup.run("chown", "-R", "understudy:understudy", "/var/lib/understudy/data/store")
        backup.run("crm_standby", "--node", backup.name, "--delete")
    heir = backup
    with play.round("switchover: to the node of the old store"):
        primary = play.other(heir)
        _standby(play, primary)
        play.until_role(heir, "Promoted")
        primary.run("crm_standby", "--node", primary.name, "--delete")


def _standby(play: Play, machine: Machine) -> None:
    machine.run("crm_standby", "--node", machine.name, "--update", "on")
    play.site.until(lambda: not machine.pids(BROKER), f"the broker's end on {machine.name}")
