"""The authority in a simulation: a linearizable compare-and-set register of one record, behind the virtual
network.

Each request is a packet to the host `register` and one back, either of which may be late or lost; at one
instant in between it takes effect, alone. A node's driver that hears nothing for `patience` reports the
outcome `unknown`: the request may have taken effect, or may yet. `history` keeps every record with the time
of its swap. It also keeps a lease of the record's owner, as etcd does: a swap begins it, and a read by the
owner renews it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from ha.adapter.authority_port import AuthorityOutcome, AuthorityRequest
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.network import Network
from tests.simulation.harness.plan import RegisterPlan

HOST = "register"

Record = dict[str, Any]


class Answered(Protocol):
    """Gets the outcome, what is held, a sentence, and whether the owner's lease has run out."""

    def __call__(
        self, outcome: AuthorityOutcome, record: Record | None, reason: str, owner_gone: bool = False, /
    ) -> None: ...


class Register:
    """Owner: World. `ask` is called by the drivers (machines), from their own hosts."""

    def __init__(
        self, clock: Clock, network: Network, plan: RegisterPlan, random: Callable[[str], Random]
    ) -> None:
        self.clock = clock
        self.network = network
        self.plan = plan
        self.random = random
        self.history: list[tuple[float, Record]] = []
        self.underway: dict[int, Record] = {}
        """Records that it was asked to hold and may yet, by the number of the question."""
        self.on_swap: Callable[[], None] = lambda: None
        self.slow_until = 0.0
        """Until then each request takes up to `slow_time` seconds more."""
        self.slow_time = 0.0
        self.lossy_until = 0.0
        """Until then questions and answers are lost, each with these chances."""
        self.lost_questions = self.lost_answers = 0.0
        self.asked = self.unknown = self.conflicts = 0
        self._sources: dict[str, Random] = {}
        self._owners: dict[str, list[Any]] = {}
        """By host: who it was, as the owner of a record."""
        self._leased_until = 0.0

    @property
    def record(self) -> Record | None:
        return self.history[-1][1] if self.history else None

    def could_answer(self, host: str) -> bool:
        """For the checkers: whether a packet of its gets there."""
        return not self.network.blocked(HOST, host)

    def ask(self, host: str, request: AuthorityRequest, answered: Answered) -> None:
        """Carry a request of a node on `host` there, and the answer back. `answered` is called once."""
        self.asked += 1
        rng = self._sources.get(host)
        if rng is None:
            rng = self._sources[host] = self.random(f"register/{host}")
        open_question = True
        number = self.asked
        if request.record is not None:
            self.underway[number] = request.record

        def settle(outcome: AuthorityOutcome, record: Record | None, owner_gone: bool = False) -> None:
            nonlocal open_question
            if open_question:
                open_question = False
                limit.cancel()
                if outcome == "unknown":
                    self.unknown += 1
                answered(outcome, record, "", owner_gone)

        def arrive() -> None:
            self.clock.after(self._work(rng), take_effect)

        def forget() -> None:
            self.underway.pop(number, None)

        def take_effect() -> None:
            forget()
            outcome, text = self._apply(host, request)
            if not self._loses(rng, self.lost_answers):
                record: Record | None = json.loads(text)
                gone = record is not None and self.clock.now >= self._leased_until
                self.network.datagram(HOST, host, rng, lambda: settle(outcome, record, gone))

        limit = self.clock.after(self.plan.patience, lambda: settle("unknown", None))
        if not self._loses(rng, self.lost_questions):
            self.network.datagram(host, HOST, rng, arrive, lost=forget)
        else:
            forget()

    def _apply(self, host: str, request: AuthorityRequest) -> tuple[AuthorityOutcome, str]:
        """The one instant of a request. Gives the outcome, and what is held after it."""
        held = self.record
        if request.kind == "read":
            if request.renews and held is not None and held["owner"] == self._owners.get(host):
                self._leased_until = self.clock.now + self.plan.lease
            return "done", json.dumps(held)
        version = None if held is None else (held["epoch"], held["revision"])
        if version != request.expected or request.record is None:
            self.conflicts += 1
            self.clock.note(f"register: {host} expected {request.expected}, but it holds {version}")
            return "conflict", json.dumps(held)
        text = json.dumps(request.record)
        record: Record = json.loads(text)
        self.history.append((self.clock.now, record))
        self._owners[host] = record["owner"]
        self._leased_until = self.clock.now + self.plan.lease
        self.on_swap()
        self._note(record, host)
        return "done", text

    def _note(self, record: Record, host: str = "") -> None:
        names = record.get("names", {})
        others = ", ".join(sorted(names.get(node, node[:8]) for node, _ in record["in_sync"])) or "nobody"
        self.clock.note(
            f"register: epoch {record['epoch']} revision {record['revision']}: "
            f"{names.get(record['owner'][0], host)}, in sync {others}"
        )

    def _work(self, rng: Random) -> float:
        slow = self.slow_time * rng.random() if self.clock.now < self.slow_until else 0.0
        return slow + self.plan.takes * (0.5 + rng.random())

    def _loses(self, rng: Random, chance: float) -> bool:
        return self.clock.now < self.lossy_until and rng.random() < chance
