"""What a client was told of definitions is true after a failover (6), and temporary queues end once (18)."""

from __future__ import annotations

from tests.simulation.checkers.clients.confirms import Confirms2and3and5
from tests.simulation.checkers.facts import SERVING
from tests.simulation.checkers.records import Promotion, Records
from tests.simulation.harness.inspection import vhost_of
from tests.simulation.harness.journal import Journal, Thing, Violation
from tests.simulation.harness.machines.machine import Machine


def is_there(machine: Machine, thing: Thing) -> bool:
    vhost = vhost_of(machine)
    match thing:
        case ("queue", name):
            return name in vhost.queues
        case ("exchange", name):
            return name in vhost.exchanges
        case (_, source, target, key):
            exchange = vhost.exchanges.get(source)
            return exchange is not None and any(
                b.target.name == target and b.routing_key == key for b in exchange.bindings.values()
            )
    raise ValueError(f"no such thing: {thing}")


class Definitions6:
    """6: when a declare-ok, bind-ok, unbind-ok or delete-ok leaves the primary, it is so on every backup in
    the record; and of what has got one, all is so on a node just promoted, where exchanges are internal that
    were declared so, and no others.

    A cold start keeps what is durable. What is asked for and not answered may be either way.
    """

    def __init__(self, journal: Journal, confirms: Confirms2and3and5) -> None:
        self.journal = journal
        self.confirms = confirms
        self.checked = 0

    def answered(self, machine: Machine, connection: str, count: int) -> None:
        """So many answers leave. Only clients that say what they ask for are looked at."""
        asked = self.journal.requests.get(connection)
        if asked is None:
            return
        copies, _ = self.confirms.copies(machine)
        for _ in range(min(count, len(asked))):
            things, exists = asked.popleft()
            for thing in things:
                self.checked += 1
                wrong = next((c for c in copies if is_there(c, thing) is not exists), None)
                # What was asked for since may have undone it.
                wrong = wrong if self.journal.binding else None
                if wrong is not None and not any(thing in later for later, _ in asked):
                    raise Violation(
                        6, f"{machine.name} answers that {' '.join(thing)} is "
                        f"{'' if exists else 'not '}there, against {wrong.name}",
                    )  # fmt: skip

    def promoted(self, promotion: Promotion, *, cold: bool) -> None:
        if not self.journal.binding:
            return
        for thing, known in self.journal.definitions.items():
            if known is None or (cold and not known.durable):
                continue
            self.checked += 1
            if known.exists and self._changed(promotion.machine, thing):
                raise Violation(
                    6, f"{promotion.machine.name}, just promoted, has another idea of who may publish to "
                    f"{thing[1]} than its declaration",
                )  # fmt: skip
            if known.exists != is_there(promotion.machine, thing):
                what = "lacks" if known.exists else "still has"
                raise Violation(
                    6, f"{promotion.machine.name}, just promoted, {what} {' '.join(thing)}, against "
                    f"the answer that a client got at {known.at:.6f}",
                )  # fmt: skip

    def _changed(self, machine: Machine, thing: Thing) -> bool:
        """Is this an exchange that is internal, and was not declared so, or the other way round?"""
        exchange = vhost_of(machine).exchanges.get(thing[1]) if thing[0] == "exchange" else None
        return exchange is not None and exchange.internal is not self.journal.topology.internal(thing[1])


LONGEST_CUT = 10.0
"""Seconds; more than any cut lasts."""
LATE = 0.05
"""Seconds after which it is seen at the latest that a node serves."""


class Temporaries18:
    """18: an auto-delete or exclusive queue ends on the primary first, and never comes back there; it does
    end once its client is gone for good.

    A backup that loses one, which whoever serves still has, has decided by itself.
    """

    def __init__(self, records: Records, journal: Journal, grace: float) -> None:
        self.records = records
        self.journal = journal
        self.grace = grace
        self.ended = 0
        self.last_promotion = self.last_fenced = 0.0
        self.serves_since: dict[str, float] = {}
        """Of each machine: an old primary may serve on while a new one has begun to."""
        self._seen: dict[str, tuple[int, int, dict[bytes, str], bool]] = {}
        self._over: set[tuple[str, int, bytes]] = set()

    def look(self, machine: Machine) -> None:
        """While its output is fenced or its input paused, nobody's time is over, and begins anew later."""
        broker = machine.running.broker
        if broker.output_fenced or broker.input_paused:
            self.last_fenced = self.journal.clock.now

    def resumed(self) -> None:
        """Whoever was stopped heard of nobody's end meanwhile."""
        self.last_fenced = self.journal.clock.now

    def tick(self, machine: Machine) -> None:
        vhost = vhost_of(machine)
        seen = self._seen.get(machine.name)
        serving = machine.role() in SERVING
        if seen is not None and (seen[0], seen[1], seen[3]) == (machine.life, vhost.generation, serving):
            return
        if serving and (seen is None or not seen[3]):
            # Long after its promotion, perhaps: it may have waited for a lease.
            self.last_promotion = self.serves_since[machine.name] = self.journal.clock.now
        now = {
            q.uuid: q.name
            for q in vhost.queues.values()
            if q.auto_delete or q.exclusive or "x-expires" in q.arguments
        }
        if not self.journal.binding:
            self._over.clear()
        elif seen is not None and seen[0] == machine.life:
            gone = seen[2].keys() - now.keys()
            if gone and seen[3] and not serving:
                self._stepped_down(machine, [seen[2][uuid] for uuid in gone])
            for uuid in gone:
                if serving or seen[3]:
                    if serving and (seen[3] or not self._ended_elsewhere(uuid)):
                        self._waited_for(machine, seen[2][uuid])
                    self.ended += 1
                    self._over.add((machine.name, machine.life, uuid))
                else:
                    self._followed(machine, uuid, seen[2][uuid])
            for uuid in now.keys() - seen[2].keys():
                if serving and (machine.name, machine.life, uuid) in self._over:
                    raise Violation(18, f"{now[uuid]} has ended on {machine.name}, and is there again")
        self._seen[machine.name] = (machine.life, vhost.generation, now, serving)

    def _ended_elsewhere(self, uuid: bytes) -> bool:
        """A primary has ended it: others follow, perhaps in the very tick in which they are promoted."""
        return any(over == uuid for _, _, over in self._over)

    def _waited_for(self, machine: Machine, name: str) -> None:
        """Whoever is promoted gives clients time to come back, or a queue its time without use again."""
        temporary, since = self.journal.temporaries.get(name), self.serves_since[machine.name]
        if temporary is None or temporary.asked_at > since:
            return
        waited = self.journal.clock.now - since
        if waited < (temporary.lasts or self.grace) - LATE:
            raise Violation(18, f"{machine.name} ends {name} {waited:.3f} s after it began to serve, unasked")

    def _stepped_down(self, machine: Machine, names: list[str]) -> None:
        """That its clients go then is the node's doing: whoever serves next decides."""
        for name in names:
            temporary = self.journal.temporaries.get(name)
            if temporary is not None and not temporary.ending:
                raise Violation(18, f"{machine.name} steps down and ends {name}, which is in use")

    def _followed(self, machine: Machine, uuid: bytes, name: str) -> None:
        record = self.records.truth()
        owner = self.records.lives[record.owner] if record is not None else None
        if owner is None or owner.died is not None or owner.machine.role() not in SERVING:
            return
        if self._ended_elsewhere(uuid):
            return  # as whom it followed, and this node may not know a newer one yet
        if uuid in vhost_of(owner.machine).shared.queues_by_uuid:
            raise Violation(
                18, f"{machine.name} ends {name} by itself: the primary {owner.machine.name} has it"
            )

    def quiet(self, primary: Machine, now: float, cut: float) -> None:
        """Nothing is on its way. Clients get `grace` after a promotion to come back for their queues.

        `cut`: when packets were last kept from anywhere, so that a broker may not know who has gone.
        """
        for name, temporary in self.journal.temporaries.items():
            if temporary.over_at is None or name not in vhost_of(primary).queues:
                continue
            since = temporary.over_at + temporary.lasts
            if temporary.opened_at <= cut:
                continue
            if any(cut - LONGEST_CUT <= torn <= cut for torn in temporary.torn):
                continue  # its end may have been kept from the broker, which has that connection still
            if temporary.opened_at <= self.last_promotion:
                since = max(since, self.last_promotion + max(self.grace, temporary.lasts))
            since = max(since, self.last_fenced + temporary.lasts)
            if now > since + 0.4:
                raise Violation(18, f"{name} is still there {now - since:.3f} s after it should have ended")
