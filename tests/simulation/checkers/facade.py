"""`Checkers`: all checkers of a run behind one door. Owner: World, which reports and never asks.

started(machine)             a process life began; called after `node.start`, before its first tick
killed(machine)              a process is about to end by kill or power cut: memory and disk are still there
output(machine, name, data)  a machine hands bytes of one connection to its kernel (`Machine.tap`)
tick(machine)                after each `end_tick`, when its output was handed on
heard(machine, sentence)     it has logged that
paused, resumed(machine)     the process is frozen: no tick, no timer, no read until it is resumed
isolated, rejoined(machine)  no byte passes between it and any other node or the register, until it does
declared()                   the topology is there, whoever is to hear of events is bound
tried(address)               a client asks a node to be let in, after its login
forced(machine, over)        an operator is about to promote it with `force_lossy`; `over`: it was refused
quiet_point(primary, backups)  nothing is on its way, `backups` are all ready and in the record
end(memory_lost, kept)       the queues are drained; `memory_lost`: instants at which no node was running,
                             or at which the last that was in sync went
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from tests.simulation.checkers.clients.acked import Acked22
from tests.simulation.checkers.clients.clients_see import Deliveries17and20and21and23
from tests.simulation.checkers.clients.commands import Commands6
from tests.simulation.checkers.clients.confirmed_only import ConfirmedOnly23
from tests.simulation.checkers.clients.confirms import Confirmed, Confirms2and3and5, Record4
from tests.simulation.checkers.clients.definitions import Definitions6, Temporaries18
from tests.simulation.checkers.clients.directory import Directory6
from tests.simulation.checkers.clients.events import Events27
from tests.simulation.checkers.clients.single_active import SingleActive21
from tests.simulation.checkers.clients.transactions import Transactions7
from tests.simulation.checkers.copies.compared import Compared13
from tests.simulation.checkers.copies.copies import check_copies_13and14, check_dequeues_16
from tests.simulation.checkers.copies.divergent import Divergent15
from tests.simulation.checkers.copies.remembered import Remembered15
from tests.simulation.checkers.copies.stored import check_kept_19, check_stored_19
from tests.simulation.checkers.facts import SERVING
from tests.simulation.checkers.faults import Alone26, CutOff28, Failed25, Frozen28, Held26, Troubles
from tests.simulation.checkers.link_ends import LinkEnds
from tests.simulation.checkers.messages.expiry import Dating, Expiry18
from tests.simulation.checkers.messages.ledgers import Ledgers29
from tests.simulation.checkers.messages.no_loss import check_no_loss_1
from tests.simulation.checkers.messages.numbers import Numbers1and2and24
from tests.simulation.checkers.messages.repeats import Repeats1and24
from tests.simulation.checkers.messages.rules import Rules18
from tests.simulation.checkers.messages.shifts import Shifts1and7
from tests.simulation.checkers.outputs import Confirm, OutputReader
from tests.simulation.checkers.primary.cold_start import ColdStarts12
from tests.simulation.checkers.primary.compatibility import Compatibility4
from tests.simulation.checkers.primary.forced import Forced1
from tests.simulation.checkers.primary.handovers import Handovers6
from tests.simulation.checkers.primary.one_primary import Backwards10, Serving8and9, check_whole_27
from tests.simulation.checkers.primary.own_accord import OwnAccord11
from tests.simulation.checkers.primary.promotions import Promotions11and19
from tests.simulation.checkers.records import Promotion, Records, Register
from tests.simulation.clients.mover import Mover
from tests.simulation.clients.numberer import Numberer
from tests.simulation.clients.registrar import Registrar
from tests.simulation.clients.repeater import Repeater
from tests.simulation.clients.rule_user import RuleUser
from tests.simulation.clients.shifter import Shifter
from tests.simulation.clients.workload import Publisher
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.inspection import RecordOnDisk, entries, keeps_transient, queues_of
from tests.simulation.harness.journal import Journal
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.network import Address
from tests.simulation.harness.plan import Plan

DEQUEUES = 30
"""Messages of a queue that the dequeues of 16 are tried on."""


KEPT = 0.25
"""Part of the runs in which the nodes keep ledgers."""
OFTEN = 4
"""A closer look at each so many ticks, also when nothing seems to have changed."""


class Checkers:
    """See the module. `counts` says what was looked into, for the report."""

    def __init__(
        self, clock: Clock, plan: Plan, machines: Sequence[Machine], journal: Journal,
        publishers: Mapping[str, Publisher], movers: Mapping[str, Mover],
        rule_users: Sequence[RuleUser], register: Register | None, registrar: Registrar,
        asked: Mapping[str, float], shifters: Sequence[Shifter], repeaters: Sequence[Repeater],
        numberers: Sequence[Numberer],
    ) -> None:  # fmt: skip
        self.clock = clock
        self.plan = plan
        self.machines = list(machines)
        self.journal = journal
        self.counts: Counter[str] = Counter()
        self.records = Records(clock, machines, register)
        by_itself = plan.authority == "pair"
        self.serving = Serving8and9(
            machines, journal, alone=by_itself or plan.authority == "manual", follows_silence=by_itself
        )  # fmt: skip
        self.backwards = Backwards10()
        self.confirms = Confirms2and3and5(machines, journal, self.records, Confirmed(publishers))
        self.ledgers = (
            Ledgers29(machines, journal, self.confirms) if plan.random("books").random() < KEPT else None
        )
        self.commands = Commands6(
            plan, lambda: clock.now, lambda machine: self.confirms.copies(machine)[0],
            federated=machines[0].settings.federation is not None,
        )  # fmt: skip
        self.confirmed_only = ConfirmedOnly23(machines, journal, self.confirms)
        self.record = Record4(journal, self.records, self.confirms)
        self.transactions = Transactions7(movers, journal, self.confirms)
        self.shifts = Shifts1and7(shifters, journal)
        self.repeats = Repeats1and24(repeaters, machines, journal)
        self.numbers = Numbers1and2and24(numberers, machines, journal, self.confirms)
        links = LinkEnds(clock)
        self.promotions = Promotions11and19(
            machines, self.records, journal, links, plan.timing, follows_silence=by_itself
        )  # fmt: skip
        self.own_accord = OwnAccord11(clock, machines, self.records, asked) if by_itself else None
        self.deliveries = Deliveries17and20and21and23(journal)
        self.single_active = SingleActive21(journal)
        self.troubles = Troubles(machines, register)
        self.acked = Acked22(journal, self.records, self.troubles, plan)
        self.cold_starts = ColdStarts12(clock, plan, machines, register)
        self.cut_off = CutOff28(plan, machines, register)
        self.definitions = Definitions6(journal, self.confirms)
        self.directory = Directory6(registrar)
        self.temporaries = Temporaries18(self.records, journal, plan.timing.reconnect_grace)
        self.divergent = Divergent15(self.records, journal)
        self.remembered = Remembered15()
        self.forces = Forced1(machines, journal, self.divergent)
        for machine in machines:
            if register is None:
                machine.on_dial_output, machine.on_dial_ended = links.said, links.ended
        self.events = Events27(self.records)
        self.compared = Compared13()
        self.compatibility = Compatibility4(machines)
        self.dating = Dating(plan)
        self.rules = Rules18(rule_users, journal, self.dating)
        self.expiry = Expiry18(clock, [user for user in rule_users if user.plan.timed], self.dating)
        self.failed = Failed25()
        self.held = Held26(plan, self.troubles)
        self.alone = Alone26(plan, clock, self.records, journal)
        self.frozen = Frozen28(plan)
        self.handovers = Handovers6(clock)
        self.confirms.on_confirm.append(lambda m, message: self.held.confirm(m, message, clock.now))
        self.confirms.on_confirm.append(self.alone.confirm)
        self.records.on_change.append(self.alone.changed)
        self.records.on_promotion.append(self._promoted)
        self._ticks = 0
        self._seen: dict[str, object] = {}
        """What of each machine last made a closer look worth while."""
        self._reader = OutputReader(self._served, self.transactions.answered, self._answered)
        self._random = plan.random("checkers")
        self._primaries: set[str] = set()
        """The names of all that ever were primary."""
        self._keeping: dict[str, int | None] = {}
        """The life in which each last said that transient messages are on its disk."""
        self._kept: set[str] = set()
        """The names of those that had transient messages on disk when they died last."""
        self._unsettled: set[int] = set()
        """Epochs whose primary died before all that it began with was on its disk."""

    def started(self, machine: Machine) -> None:
        self.records.started(machine)
        self.commands.started(machine)
        self.remembered.started(machine)
        self.compared.started(machine)
        self.divergent.started(machine)
        self.expiry.started(machine)
        if self.own_accord is not None:
            self.own_accord.back(machine)

    def killed(self, machine: Machine) -> None:
        self.troubles.resumed(machine, self.clock.now)
        self.troubles.happened(self.clock.now)
        self.frozen.killed(machine)
        self.acked.ended(machine, self.clock.now)
        self.remembered.dies(machine)
        self.divergent.contents.note(machine)
        self.promotions.dies(machine, self.divergent.dropped(machine))
        self.records.died(machine)
        if self.own_accord is not None:
            self.own_accord.left(machine)
        if self.journal.binding:
            self.cold_starts.killed(machine)
        (self._kept.add if keeps_transient(machine) else self._kept.discard)(machine.name)
        epoch = machine.running.core.epoch
        if machine.role() in SERVING and machine.store is not None and machine.store.durable < (epoch, 0):
            self._unsettled.add(epoch)

    def _lags(self, record: RecordOnDisk) -> bool:
        """May what was confirmed under that record be on no disk of its members? Under `primary-disk` it is
        on the primary's, once that has had the time to write what it began with."""
        if record.confirm == "primary-disk":
            return record.epoch in self._unsettled
        return record.confirm == "all-memory"

    def output(self, machine: Machine, connection: str, data: bytes) -> None:
        self._reader.output(machine, connection, data)
        self.handovers.output(machine, connection, data)

    def tick(self, machine: Machine) -> None:
        core = machine.running.core
        backup = core.backup
        now = (
            machine.life, core.status, backup is not None and backup.linked,
            machine.running.vhosts.generation, self.records.file(machine),
        )  # fmt: skip
        self._ticks += 1
        if now != self._seen.get(machine.name):
            self._seen[machine.name] = now
            self.records.look(machine)
            self.backwards.tick(machine)
            self.divergent.tick(machine)
            self.compatibility.tick(machine)
            self.promotions.tick(machine)
            if self.own_accord is not None:
                self.own_accord.tick(machine)
            self.held.tick(machine, self.clock.now)
            self.temporaries.tick(machine)
            self.dating.tick(machine)
        elif self._ticks % OFTEN == 0:
            self.backwards.tick(machine)
        keeps = machine.life if keeps_transient(machine) else None
        if keeps != self._keeping.get(machine.name):
            self._keeping[machine.name] = keeps
            if keeps is not None:
                check_kept_19(machine)
                self.counts["primaries alone with transient messages on disk"] += 1
        if machine.spoilt and machine.role() == "ready":
            machine.spoilt = False
        self.expiry.tick(machine)
        self.troubles.look(self.clock.now, calm=self.journal.binding)
        self.cut_off.look(machine, self.clock.now)
        self.frozen.ticked(machine, self.clock.now)
        self.handovers.ticked(machine)
        self.acked.ticked(machine, self.clock.now)
        self.temporaries.look(machine)
        self.remembered.tick(machine)
        self.forces.tick(machine)
        self.numbers.tick(machine)

    def heard(self, machine: Machine, sentence: str) -> None:
        """The process has logged that."""
        self.compared.heard(machine, sentence)
        self.divergent.heard(machine, sentence)
        self.promotions.heard(machine, sentence)
        self.numbers.heard(machine, sentence)
        if self.own_accord is not None:
            self.own_accord.heard(machine, sentence)

    def paused(self, machine: Machine) -> None:
        self.acked.frozen = self.clock.now
        self.troubles.paused(machine, self.clock.now)
        self.frozen.paused(machine, self.clock.now)
        self.expiry.paused(machine)
        if self.own_accord is not None:
            self.own_accord.left(machine)

    def resumed(self, machine: Machine) -> None:
        self.acked.frozen = self.clock.now
        self.troubles.resumed(machine, self.clock.now)
        self.frozen.resumed(machine, self.clock.now)
        self.temporaries.resumed()
        if self.own_accord is not None:
            self.own_accord.back(machine)

    def declared(self) -> None:
        self.events.declared()

    def forced(self, machine: Machine, *, over: bool = False) -> None:
        self.promotions.force(machine.name, over=over)
        self.forces.force(machine, over=over)

    def tried(self, address: Address) -> None:
        """A client has logged in at a node, and asked to be let in."""
        if self.own_accord is not None:
            self.own_accord.tried(address)

    def quiet_point(self, primary: Machine, backups: Sequence[Machine]) -> None:
        check_whole_27(primary, backups, self.machines)
        self.directory.look(primary, "at rest")
        for backup in backups:
            was_primary = backup.name in self._primaries
            mended = backup.name in self.compared.mended
            check_copies_13and14(primary, backup, was_primary=was_primary, mended=mended)
            self.repeats.compare(primary, backup)
            self.counts["copies compared"] += 1
            self.counts["copies of an old primary compared"] += was_primary
        for machine in (primary, *backups):
            check_stored_19(machine)
        self.temporaries.quiet(primary, self.clock.now, self.troubles.cut)
        self.events.quiet(primary, backups)
        self.transactions.look(primary, quiet=True)
        self.shifts.look(primary)
        self.repeats.look(primary)
        self.numbers.look(primary)
        self.rules.quiet(primary, self.clock.now)
        for name, queue in sorted(queues_of(primary).items()):
            held = entries(queue)[:DEQUEUES]
            if len(held) > 1:
                check_dequeues_16(name, held, self._random)
                self.counts["queues dequeued in another order"] += 1

    def end(self, memory_lost: Sequence[float], kept: Container[float] = ()) -> None:
        check_no_loss_1(self.journal, list(memory_lost), kept)
        self.confirmed_only.end(memory_lost, kept)
        primary = next((m for m in self.machines if m.role() in SERVING), None)
        if primary is not None:
            self.forces.end(primary, memory_lost)
        if self.ledgers is not None and primary is not None:
            self.ledgers.check_lossy_11(self.promotions.lossy)
            self.ledgers.balance(primary)
            self.counts["ids in balanced ledgers"] = self.ledgers.ids
        self.counts["messages held when promoted by force"] = self.forces.checked
        self.counts["promotions that had to be called lossy"] = len(self.promotions.lossy)
        self.counts["confirms looked into"] = self.confirms.checked
        self.counts["deliveries that could be confirmed looked into"] = self.confirmed_only.checked
        self.counts["such messages looked for after a promotion"] = self.confirmed_only.looked
        self.counts["copies in the record looked into"] = self.record.checked
        self.counts["definitions looked for after a promotion"] = self.definitions.checked
        self.counts["publishes to an internal exchange refused"] = self.journal.trespasses
        self.counts["users looked for on a primary"] = self.directory.checked
        self.counts["temporary queues ended"] = self.temporaries.ended
        self.counts["messages in quarantine"] = self.divergent.exported
        self.counts["messages in quarantine read"] = self.divergent.contents.checked
        self.counts["ends of history looked for after a start"] = self.remembered.checked
        self.counts["cold starts tried in another order"] = self.cold_starts.tried
        self.counts["looks at a primary cut off for its lease"] = self.cut_off.checked
        if self.own_accord is not None:
            self.counts["takeovers judged by who had come"] = self.own_accord.checked
        self.counts["deliveries while another consumer waited its turn"] = self.single_active.checked
        self.counts["turns of a single active consumer"] = self.single_active.taken_over
        self.counts["acked messages that came back"] = self.acked.checked
        self.counts["commits looked into"] = self.transactions.commits
        self.counts["transactions looked into"] = self.transactions.checked
        self.counts["moved messages looked into"] = self.shifts.checked
        self.counts["messages with ids looked into"] = self.repeats.checked
        self.counts["batches compared with the command table"] = self.commands.checked
        self.counts["answers traced to their batches"] = self.commands.answers
        self.counts["numbered messages looked into"] = self.numbers.checked
        self.counts["numbered messages left out"] = self.numbers.left_out
        self.counts["messages under rules looked into"] = self.rules.checked
        self.counts["messages whose time was over"] = self.expiry.checked
        self.counts["dead letters looked into"] = self.rules.deaths.checked
        self.counts["configurations compared"] = self.compatibility.checked
        self.counts["confirms held for long"] = self.held.checked
        self.counts["confirms with fewer backups than wanted"] = self.alone.checked
        self.counts["events of membership looked into"] = self.events.checked
        self.counts["queues fetched again"] = self.compared.found
        self.counts["handovers to a target that runs"] = self.handovers.checked
        self.counts["freezes longer than the lease"] = self.frozen.checked

    # -- inside

    def _answered(self, machine: Machine, connection: str, answer: str) -> None:
        if self.journal.binding:
            self.records.look(machine)
            self.commands.answered(machine, connection, answer)

    def _served(self, machine: Machine, connection: str, confirms: list[Confirm], answers: int) -> None:
        self.records.look(machine)
        self.serving.served(machine, connection, confirms)
        self.failed.served(machine, connection, confirms)
        self.frozen.served(machine, self.clock.now)
        self.cut_off.served(machine, self.clock.now)
        if answers:
            self.definitions.answered(machine, connection, answers)
        if confirms:
            self.confirms.served(machine, connection, confirms)
            self.numbers.served(machine, connection, confirms)

    def _promoted(self, promotion: Promotion) -> None:
        how = self.promotions.how[-1]
        self.counts[f"promotions, {how}"] += 1
        self._primaries.add(promotion.machine.name)
        self.temporaries.last_promotion = self.clock.now
        self.rules.promoted_at = self.clock.now
        self.dating.promoted(promotion.machine, self.clock.now)
        self.definitions.promoted(promotion, cold=how == "cold")
        self.directory.look(promotion.machine, "just promoted")
        self.divergent.promoted(promotion, forced=how == "forced")
        self.events.promoted(promotion)
        if how == "cold":
            kept = promotion.machine.name in self._kept
            lagging = promotion.before is not None and self._lags(promotion.before)
            self.journal.cold_start(kept=kept, lagging=lagging)
            self.counts["cold starts whose disks may lack what was confirmed"] += lagging
            self.counts["cold starts with transient messages on disk"] += kept
        self.confirmed_only.promoted(promotion.machine)
        self.transactions.look(promotion.machine)
        self.shifts.look(promotion.machine)
        self.repeats.look(promotion.machine)
        self.numbers.look(promotion.machine)
