"""What a client was told of definitions is true after a failover (6), and temporary queues end once (18)."""

from __future__ import annotations

from broker.model.records import Bind
from broker.model.values import Scope
from tests.simulation.checkers.facts import SERVING
from tests.simulation.checkers.records import Promotion
from tests.simulation.inspection import vhost_of
from tests.simulation.journal import Journal, Thing, Violation
from tests.simulation.machine import Machine


def present(machine: Machine) -> set[Thing]:
    """Every queue, exchange and binding of a node, as clients name them."""
    vhost = vhost_of(machine)
    found: set[Thing] = {("queue", name) for name in vhost.queues}
    found |= {("exchange", name) for name in vhost.exchanges}
    for record in vhost.definitions(Scope.LINK):
        if isinstance(record, Bind):
            found.add(("binding", record.source, record.target, record.routing_key))
    return found


class Definitions6:
    """6: of what has got its declare-ok, bind-ok, unbind-ok or delete-ok, all is so on a node just promoted.

    A cold start keeps what is durable. What is asked for and not answered may be either way.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.checked = 0

    def promoted(self, promotion: Promotion, *, cold: bool) -> None:
        there = present(promotion.machine)
        for thing, known in self.journal.definitions.items():
            if known is None or (cold and not known.durable):
                continue
            self.checked += 1
            if known.exists != (thing in there):
                what = "lacks" if known.exists else "still has"
                raise Violation(
                    6, f"{promotion.machine.name}, just promoted, {what} {' '.join(thing)}, against "
                    f"the answer that a client got at {known.at:.6f}",
                )  # fmt: skip


class Temporaries18:
    """18: an auto-delete or exclusive queue ends on the primary first, and never comes back there; it does
    end once its client is gone for good.

    A backup that loses one, which whoever serves still has, has decided by itself.
    """

    def __init__(self, machines: list[Machine], journal: Journal, grace: float) -> None:
        self.machines = machines
        self.journal = journal
        self.grace = grace
        self.ended = 0
        self.last_promotion = 0.0
        self._seen: dict[str, tuple[int, int, dict[bytes, str]]] = {}
        self._over: set[tuple[str, int, bytes]] = set()

    def tick(self, machine: Machine) -> None:
        vhost = vhost_of(machine)
        seen = self._seen.get(machine.name)
        if seen is not None and seen[0] == machine.life and seen[1] == vhost.generation:
            return
        now = {q.uuid: q.name for q in vhost.queues.values() if q.auto_delete or q.exclusive}
        serving = machine.role() in SERVING
        if seen is not None and seen[0] == machine.life:
            for uuid in seen[2].keys() - now.keys():
                if serving:
                    self.ended += 1
                    self._over.add((machine.name, machine.life, uuid))
                else:
                    self._followed(machine, uuid, seen[2][uuid])
            for uuid in now.keys() - seen[2].keys():
                if serving and (machine.name, machine.life, uuid) in self._over:
                    raise Violation(18, f"{now[uuid]} has ended on {machine.name}, and is there again")
        self._seen[machine.name] = (machine.life, vhost.generation, now)

    def _followed(self, machine: Machine, uuid: bytes, name: str) -> None:
        for other in self.machines:
            if other.role() in SERVING and uuid in vhost_of(other).queues_by_uuid:
                raise Violation(18, f"{machine.name} ends {name} by itself: the primary {other.name} has it")

    def quiet(self, primary: Machine, now: float, cut: float) -> None:
        """Nothing is on its way. Clients get `grace` after a promotion to come back for their queues.

        `cut`: when packets were last kept from anywhere, so that a broker may not know who has gone.
        """
        for name, temporary in self.journal.temporaries.items():
            if temporary.over_at is None or name not in vhost_of(primary).queues:
                continue
            since = temporary.over_at
            if temporary.opened_at <= cut:
                continue
            if temporary.opened_at <= self.last_promotion:
                since = max(since, self.last_promotion + self.grace)
            if now > since + 0.4:
                raise Violation(18, f"{name} is still there {now - since:.3f} s after it should have ended")
