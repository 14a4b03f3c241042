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
    """The backup first, then the primary, as docs/OPERATIONS.md says; clients go on throughout."""
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
    ask = "from importlib.metadata import version; print(version('understudy'))"
    return machine.run(f"{_ENVIRONMENT}/python", "-c", ask)[1]


def old_store(play: Play) -> None:
    """A copy of the store that is some failovers old is put back: it is brought up to date, and nothing that
    it alone knows, or no longer knows, is believed.
    """
    backup = play.backup()
    data, old = backup.disk.mount / "data", play.folder / "old"
    with play.round("a store is put aside"):
        _standby(play, backup)
        shutil.copytree(data, old, ignore=shutil.ignore_patterns("ledger"))
        backup.run("crm_standby", "--node", backup.name, "--delete")
    for machine in (play.primary(), backup):
        with play.round("switchover: standby of the primary"):
            _standby(play, machine)
            machine.run("crm_standby", "--node", machine.name, "--delete")
    with play.round("it comes back with the old store"):
        _standby(play, backup)
        owner = data.stat()
        for path in data.iterdir():
            if path.name != "ledger":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(old, data, dirs_exist_ok=True)
        backup.run("chown", "-R", f"{owner.st_uid}:{owner.st_gid}", "/var/lib/understudy/data")
        backup.run("crm_standby", "--node", backup.name, "--delete")


def _standby(play: Play, machine: Machine) -> None:
    machine.run("crm_standby", "--node", machine.name, "--update", "on")
    play.site.until(lambda: not machine.pids(BROKER), f"the broker's end on {machine.name}")
