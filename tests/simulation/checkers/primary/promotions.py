"""Who may become primary: only a life that the record names, save by bootstrap and cold start (11, 19)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from tests.simulation.checkers.facts import SERVING, position_on_disk
from tests.simulation.checkers.link_ends import LinkEnds
from tests.simulation.checkers.records import Promotion, Records
from tests.simulation.harness.inspection import RecordOnDisk, Who
from tests.simulation.harness.journal import Journal, Violation
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.plan import TimingPlan

LATELY = 2.0
"""Seconds for which the answer of a node that has died since may still count."""


LOSSY = "force-lossy"
PROMOTED = re.compile(r"promoted in epoch (\d+) \(([a-z-]+)\)")


def _how(promotion: Promotion) -> str:
    before = promotion.before
    if before is None:
        return "bootstrap"
    if promotion.who in before.in_sync:
        return "member"
    return "owner" if promotion.who == before.owner else "cold"


class Promotions11and19:
    """11: a promotion that nobody forced is of a life in the record of that moment, or of its owner, or a
    bootstrap (there was no record), or a cold start (of those in the record nobody lives; every one of
    their nodes has come up; none of them has more on its disk).
    Where nobody arbitrates (`manual`), one in the record has to have seen the end of its primary: that
    answers and does not serve, or has stepped down, or its link was closed, and not by silence, while the
    last acknowledgement was younger than `ack_timeout`. Under `pair` it may have gone silent, if the old
    primary is dead then, or stopped.
    19: nor is the copy one that was being changed when its node stopped; and one that is, and that no record
    counts on, is marked so on its disk.

    11: nor is one told as anything but lossy that was forced, and would have been wrong unforced.

    Judged from the register or from all disks, whatever the node itself was told. Beside a forced promotion,
    until all are whole again, there may be two lines of records, and who is in either may go on with it.
    """

    def __init__(
        self, machines: Sequence[Machine], records: Records, journal: Journal, links: LinkEnds,
        timing: TimingPlan, *, follows_silence: bool,
    ) -> None:  # fmt: skip
        self.follows_silence = follows_silence
        self.machines = machines
        self.journal = journal
        self.records = records
        self.links = links
        self.timing = timing
        self._served: set[Who] = set()
        self._stepped_down: set[Who] = set()
        self._forced: Counter[str] = Counter()
        """Of each host, how many requests to promote it with `force_lossy` are open."""
        self.how: list[str] = []
        """Of each promotion: `member`, `owner`, `cold`, `bootstrap` or `forced`."""
        self.lossy: dict[int, str] = {}
        """Epochs begun by a promotion that would have been wrong unforced, and why."""
        self.told: dict[int, str] = {}
        """What whoever began an epoch calls it in its log."""
        records.on_promotion.append(self.promoted)

    def force(self, host: str, *, over: bool = False) -> None:
        """An operator asks; `over`: it was refused. A second one may be, while the first is decided."""
        self._forced[host] = max(0, self._forced[host] + (-1 if over else 1))

    def tick(self, machine: Machine) -> None:
        who = self.records.who(machine)
        if machine.role() in SERVING:
            self._served.add(who)
            self._owned_up(machine)
        elif who in self._served:
            self._stepped_down.add(who)

    def dies(self, machine: Machine, dropped: bool) -> None:
        """`dropped`: in the middle of a catch-up, it has let go of some of what it held."""
        record = self.records.of(machine)
        if not dropped or record is None or record.incomplete or self.records.who(machine) in record.in_sync:
            return
        raise Violation(19, f"{machine.name} dies in its catch-up, and its copy is not marked incomplete")

    def promoted(self, promotion: Promotion) -> None:
        self._served.discard(promotion.who)
        self._stepped_down.discard(promotion.who)
        if self._forced.pop(promotion.machine.name, 0):
            if "forced" not in self.how:  # from then on there may be two lines of records
                self._may_owe(promotion)
            self.how.append("forced")
            return
        self.how.append(_how(promotion))
        self._judge(promotion, cold=self.journal.binding)

    def _judge(self, promotion: Promotion, *, cold: bool) -> None:
        """As one that nobody forced. `cold`: cold starts too."""
        own, before = promotion.own, promotion.before
        # What a member of the record is told while it catches up spoils its disk only, and not what it goes
        # back to; so of a process that owns the record since then, and was kept from serving by it.
        if own is not None and own.incomplete and promotion.who not in own.everybody:
            raise Violation(19, f"{promotion.machine.name} is promoted with a copy marked incomplete")
        how = _how(promotion)
        if before is None:
            self._bootstrap(promotion)
        elif how == "member" and self.records.register is None:
            self._member(promotion, before)
        elif how == "cold" and cold:
            self._cold(promotion, before)

    # -- what is told of a forced one

    def heard(self, machine: Machine, sentence: str) -> None:
        """A node logs that it serves, and why it may."""
        if found := PROMOTED.match(sentence):
            self.told[int(found[1])] = found[2]

    def _may_owe(self, promotion: Promotion) -> None:
        try:
            self._judge(promotion, cold=True)
        except Violation as why:
            self.lossy[promotion.record.epoch] = str(why)

    def _owned_up(self, machine: Machine) -> None:
        """It serves now."""
        epoch = machine.running.core.epoch
        if epoch in self.lossy and self.told.get(epoch) != LOSSY:
            raise Violation(
                11, f"{machine.name} was promoted by force, and calls it {self.told.get(epoch)}: "
                f"{self.lossy[epoch]}",
            )  # fmt: skip

    def _bootstrap(self, promotion: Promotion) -> None:
        for machine in self.machines:
            if machine.life == 0:
                raise Violation(
                    11, f"{promotion.machine.name} founds the cluster, and {machine.name} never ran"
                )

    def _member(self, promotion: Promotion, before: RecordOnDisk) -> None:
        old = self.records.lives[before.owner]
        steps_down = old.died is None and old.machine.role() not in SERVING
        if steps_down or before.owner in self._stepped_down:
            return
        if old.machine.life > old.number:
            again = self.records.lives[self.records.who(old.machine)]
            if again.died is None or promotion.at - again.died <= LATELY + self.timing.lease:
                return  # it was asked before the lease was waited out
        link = self.links.of(promotion.machine)
        why = "no link of it ended" if link is None else link.lacks(old.machine.name, self.timing.ack_timeout)
        if self.follows_silence and link is not None and not link.answered:
            why = "" if old.died is not None or old.machine.paused else why
        if why:
            raise Violation(
                11, f"{promotion.machine.name} is promoted unforced in place of {old.machine.name}, and {why}"
            )

    def _cold(self, promotion: Promotion, before: RecordOnDisk) -> None:
        node, name = promotion.who[0], promotion.machine.name
        nodes = {who[0] for who in before.everybody}
        if node not in nodes:
            raise Violation(
                11, f"{name} is promoted, and the record of epoch {before.epoch} has no such node"
            )
        for who in sorted(before.everybody):
            life = self.records.lives[who]
            if life.died is None and not life.machine.spoilt:
                raise Violation(
                    11, f"{name} is promoted from cold, and {life.machine.name} of the record runs on"
                )
            machine = life.machine
            if machine is promotion.machine:
                continue
            again = self.records.lives[self.records.who(machine)]
            if life.died is None:
                continue
            late = again.died is not None and promotion.at - again.died > LATELY
            if late or (again is life and not machine.spoilt):  # one that cannot trust its copy answers so
                raise Violation(11, f"{name} is promoted from cold, and {machine.name} of the record is down")
            theirs, mine = (
                position_on_disk(disk, promotion.record.epoch)
                for disk in (machine.disk, promotion.machine.disk)
            )
            record = self.records.of(machine)
            if theirs > mine and not (record is not None and record.incomplete):
                raise Violation(
                    11, f"{name} is promoted from cold with position {mine}, and {machine.name} has {theirs}"
                )
