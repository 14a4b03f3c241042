"""One primary: who serves, when, and in which epoch (8, 9, 10)."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.checkers.facts import SERVING
from tests.simulation.checkers.outputs import Confirm
from tests.simulation.harness.journal import Journal, Violation
from tests.simulation.harness.machines.machine import Machine


class Serving8and9:
    """8: one node serves clients in an epoch, and none once a later epoch has served. 9: no process life
    serves in an epoch of another one, nor in one that is older than what was served.

    Serving is what leaves the machine, not what the node thinks. With `alone`, a node that merely thinks so
    while another one serves is an objection too: crashes only, and an operator who knows who runs. When that
    one forces a promotion, two may serve, each in an epoch of its own, until they have met. With
    `follows_silence` a node that is stopped may think so until it wakes.
    """

    def __init__(
        self, machines: Sequence[Machine], journal: Journal, *, alone: bool, follows_silence: bool = False
    ) -> None:  # fmt: skip
        self.follows_silence = follows_silence
        self.machines = machines
        self.journal = journal
        self.alone = alone
        self.newest = 0
        self.owners: dict[int, tuple[str, int]] = {}

    def served(self, machine: Machine, connection: str, confirms: list[Confirm]) -> None:
        # The one that it has begun to serve in. What leaves at the end of a tick in which it stepped down is
        # of that one, too, whatever it has heard of since.
        epoch = machine.running.vhost.history.epoch
        who = (machine.name, machine.life)
        owner = self.owners.get(epoch)
        two_may = self.alone and not self.journal.binding
        if owner is None:
            if epoch < self.newest and not two_may:
                raise Violation(9, f"{machine.name} serves in epoch {epoch} after epoch {self.newest}")
            self.owners[epoch] = who
            self.newest = max(self.newest, epoch)
        elif owner[0] != machine.name:
            raise Violation(8, f"{machine.name} and {owner[0]} both serve in epoch {epoch}")
        elif owner != who:
            raise Violation(9, f"life {who[1]} of {who[0]} serves in epoch {epoch} of life {owner[1]} again")
        elif epoch < self.newest and not two_may:
            other = self.owners[self.newest][0]
            raise Violation(
                8, f"{machine.name} still serves in epoch {epoch}, and {other} in epoch {self.newest}"
            )
        if self.alone and not two_may and not self.follows_silence:
            for rival in self.machines:
                if rival is not machine and rival.role() in SERVING:
                    raise Violation(8, f"{machine.name} serves while {rival.name} is {rival.role()}")


def check_whole_27(primary: Machine, backups: Sequence[Machine], machines: Sequence[Machine]) -> None:
    """27: at a quiet point one node serves, every other one is ready, and no confirm waits for a ghost: the
    guards of the primary are the backups that there are."""
    for machine in machines:
        role = machine.role()
        if role != ("active" if machine is primary else "ready"):
            raise Violation(27, f"{machine.name} is {role} beside the primary {primary.name}")
    serving = primary.running.core.primary
    guarded = {b.name for b in serving.backups.values()} if serving is not None else set()
    if guarded != {backup.name for backup in backups}:
        raise Violation(
            27, f"{primary.name} waits for {sorted(guarded)}, and has {[b.name for b in backups]}"
        )


class Backwards10:
    """10: neither the epoch that a node knows of nor the position of its copy goes back within a life, save
    by a join, which makes the copy anew; and none serves at the end of a tick in which it knew of a higher
    epoch."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int, tuple[int, int], str]] = {}

    def tick(self, machine: Machine) -> None:
        node = machine.running
        core, role = node.core, machine.role()
        epoch = core.epoch
        position: tuple[int, int] = (epoch, 0)
        if role == "ready":
            position = node.replica.position
        elif role in SERVING:
            position = (epoch, node.vhost.history.n)
            for member in core.membership.members.values():
                if member.epoch > epoch:
                    raise Violation(
                        10, f"{machine.name} serves in epoch {epoch} and knows of epoch {member.epoch}"
                    )
        last = self._seen.get(machine.name)
        if last is not None and last[0] == machine.life:
            if epoch < last[1]:
                raise Violation(10, f"{machine.name} goes back from epoch {last[1]} to {epoch}")
            if role == last[3] and position < last[2]:
                raise Violation(
                    10, f"{machine.name}, {role}, goes back from position {last[2]} to {position}"
                )
        self._seen[machine.name] = (machine.life, epoch, position, role)
