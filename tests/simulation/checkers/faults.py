"""Under faults: a failed disk ends the confirms (25); a lost backup does not, unless the policy says so (26);
nor does the frozen past come true (28).
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.checkers.facts import SERVING
from tests.simulation.checkers.outputs import Confirm
from tests.simulation.checkers.records import Records, Register
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.inspection import RecordOnDisk
from tests.simulation.harness.journal import Journal, Message, Violation
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Cut
from tests.simulation.harness.plan import Plan


class Failed25:
    """25: a node one of whose writes or syncs has failed serves nothing from then on."""

    def served(self, machine: Machine, connection: str, confirms: list[Confirm]) -> None:
        if machine.disk.failures:
            raise Violation(25, f"{machine.name} serves {connection} after a write or sync has failed")


UNASKED = float("inf")
"""Until when the lease cannot be renewed, if nobody has been asked."""


class Frozen28:
    """28: a primary that was frozen for longer than its lease serves nothing before an answer can have
    reached it: it asks at the end of its first tick at the earliest, and no peer and no authority answers
    sooner than there and back."""

    def __init__(self, plan: Plan) -> None:
        self.lease = plan.timing.lease
        self.round_trip = 2 * plan.network.latency
        self.checked = 0
        self._frozen: dict[str, float] = {}
        self._quiet_until: dict[str, float] = {}

    def paused(self, machine: Machine, now: float) -> None:
        self._frozen[machine.name] = now

    def resumed(self, machine: Machine, now: float) -> None:
        since = self._frozen.pop(machine.name, now)
        if now - since > self.lease and machine.role() in SERVING:
            self._quiet_until[machine.name] = UNASKED
            self.checked += 1

    def ticked(self, machine: Machine, now: float) -> None:
        """Its output, questions included, has left."""
        if self._quiet_until and self._quiet_until.get(machine.name) == UNASKED:
            self._quiet_until[machine.name] = now + self.round_trip

    def killed(self, machine: Machine) -> None:
        self._frozen.pop(machine.name, None)
        self._quiet_until.pop(machine.name, None)

    def served(self, machine: Machine, now: float) -> None:
        until = self._quiet_until.get(machine.name) if self._quiet_until else None
        if until is None:
            return
        if now < until:
            raise Violation(
                28,
                f"{machine.name} serves after a freeze longer than its lease, and nothing that it asked "
                f"since can have been answered",
            )
        del self._quiet_until[machine.name]


class CutOff28:
    """28: nor does a primary serve that neither a peer nor the register has been able to send anything to
    for longer than its lease."""

    def __init__(self, plan: Plan, machines: Sequence[Machine], register: Register | None) -> None:
        self.lease = plan.timing.lease
        self.machines = machines
        self.register = register
        self.network = machines[0].network
        self.checked = 0
        self._since: dict[str, tuple[float, list[Cut]]] = {}

    def look(self, machine: Machine, now: float) -> None:
        """After each tick: what was cut off before may have been heard of until then."""
        if self.register is None or not (self.network.troubled or self._since):
            return
        if not self._alone(machine):
            self._since.pop(machine.name, None)
        elif self._since.get(machine.name, (now, None))[1] != self.network.cuts:
            self._since[machine.name] = now, list(self.network.cuts)
        elif machine.role() in SERVING and now - self._since[machine.name][0] > self.lease:
            self.checked += 1

    def served(self, machine: Machine, now: float) -> None:
        since, cuts = self._since.get(machine.name, (now, None))
        if now - since > self.lease and cuts == self.network.cuts and self._alone(machine):
            raise Violation(28, f"{machine.name} serves {now - since:.3f} s after it was cut off from all")

    def _alone(self, machine: Machine) -> bool:
        blocked = self.network.blocked
        if self.register is None or self.register.could_answer(machine.name):
            return False
        return all(
            other is machine or other.node is None or other.paused or blocked(other.name, machine.name)
            for other in self.machines
        )


class Troubles:
    """When something last happened that may hold up confirms, or acks: for the checkers that judge delays."""

    def __init__(self, machines: Sequence[Machine], register: Register | None = None) -> None:
        self.network = machines[0].network
        self.register = register
        self.last = -1e9
        self.cut = -1e9
        """When packets were last kept from anywhere, or the register was slow or deaf."""
        self.times: list[float] = []
        self._frozen_at: dict[str, float] = {}
        self._freezes: list[tuple[str, float, float]] = []

    def paused(self, machine: Machine, now: float) -> None:
        self._frozen_at[machine.name] = now
        self.happened(now)

    def resumed(self, machine: Machine, now: float) -> None:
        """Or killed in its sleep."""
        since = self._frozen_at.pop(machine.name, None)
        if since is not None:
            self._freezes.append((machine.name, since, now))

    def frozen(self, machine: Machine, start: float, end: float) -> float:
        """For how many seconds of that time it was."""
        freezes = self._freezes + [(name, since, end) for name, since in self._frozen_at.items()]
        return sum(
            max(0.0, min(end, until) - max(start, since))
            for name, since, until in freezes if name == machine.name
        )  # fmt: skip

    def happened(self, now: float) -> None:
        """A life ended, or a process froze."""
        self.last = now
        self.times.append(now)

    def look(self, now: float, *, calm: bool) -> None:
        """`calm`: nobody has forced anything."""
        register = self.register
        if (
            self.network.troubled
            or not calm
            or (register is not None and now < max(register.slow_until, register.lossy_until))
        ):
            self.cut = self.last = now

    def between(self, start: float, end: float) -> int:
        """How many such instants there were."""
        count = 0
        for time in reversed(self.times):
            if time < start:
                break
            count += time <= end
        return count


class Held26:
    """26: with `continue`, a confirm waits at most `ack_timeout` for each node that has ended or frozen
    since, once more for a link that broke, `backup_timeout` after a promotion, and the time that disks,
    network and authority take."""

    SLACK = 1.5

    def __init__(self, plan: Plan, troubles: Troubles) -> None:
        self.on = plan.on_backup_loss == "continue" and not plan.min_backups
        self.timing = plan.timing
        self.troubles = troubles
        self.promoted_at = -1e9
        """When somebody last began to serve: its record may have been made a lease before."""
        self.longest = 0.0
        self.checked = 0
        self._serving: set[tuple[str, int]] = set()

    def tick(self, machine: Machine, now: float) -> None:
        """After each change of a status."""
        life = machine.name, machine.life
        if machine.role() not in SERVING:
            self._serving.discard(life)
        elif life not in self._serving:
            self._serving.add(life)
            self.promoted_at = now

    def confirm(self, machine: Machine, message: Message, now: float) -> None:
        waited = now - message.last_sent
        settings = machine.settings
        if settings.on_backup_loss == "block" or settings.min_backups:
            return  # it is configured to another policy than the rest
        if not self.on or waited <= self.timing.ack_timeout or message.last_sent <= self.troubles.cut:
            return
        since = message.last_sent - self.timing.ack_timeout
        limit = self.timing.ack_timeout * (1 + self.troubles.between(since, now)) + self.SLACK
        if self.promoted_at >= message.last_sent - self.timing.backup_timeout:
            limit += self.timing.backup_timeout
        limit += self.troubles.frozen(machine, since, now)
        limit += 2 * machine.slow.longest(message.last_sent)  # a sync that had begun, and its own
        self.checked += 1
        self.longest = max(self.longest, waited)
        if waited > limit:
            raise Violation(
                26, f"{machine.name} confirms {message.key} {waited:.3f} s after it was sent, "
                f"later than {limit:g} s",
            )  # fmt: skip


class Alone26:
    """26: nothing that is published while fewer are in the record than `min_backups`, or nobody under
    `block`, is confirmed, whoever serves and whatever came before."""

    def __init__(self, plan: Plan, clock: Clock, records: Records, journal: Journal) -> None:
        self.wanted = max(plan.min_backups, plan.on_backup_loss == "block")
        self.clock = clock
        self.records = records
        self.journal = journal
        self.since: float | None = None
        """When the record got too small."""
        self.checked = 0
        self._newest: RecordOnDisk | None = None

    def changed(self, machine: Machine) -> None:
        """Some disk has another record."""
        old, new = self._newest, self.records.truth()
        if new is None or (old is not None and new.version <= old.version):
            return
        self._newest = new
        if len(new.in_sync) >= self.wanted:
            self.since = None
        elif self.since is None:
            self.since = self.clock.now

    def confirm(self, machine: Machine, message: Message) -> None:
        if self.since is None or not self.journal.must_hold_in(message):
            return
        self.checked += 1
        if message.last_sent > self.since:
            raise Violation(
                26, f"{machine.name} confirms {message.key}, sent {message.last_sent - self.since:.3f} s "
                "after the record got smaller than the policy wants it",
            )  # fmt: skip
