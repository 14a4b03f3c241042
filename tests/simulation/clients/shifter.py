"""A client whose messages an operator moves from queue to queue and back, and what it knows of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, Surroundings
from tests.simulation.clients.session import Session
from tests.simulation.clients.shifter_plan import ShifterPlan
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.operator import Question, Reply


class Shifter(Actor):
    """Publishes persistent messages with confirms into one of two durable queues, which nobody consumes, and
    asks the node that serves to move some. It sends nothing twice, so each key is there once at most.

    `safe`: keys whose confirm it has heard; `sent`: when each was published.
    """

    def __init__(self, around: Surroundings, plan: ShifterPlan, machines: Sequence[Machine]) -> None:
        super().__init__(around, plan.name, cut_every=plan.cut_every)
        self.plan = plan
        self.queues = f"{plan.name}-left", f"{plan.name}-right"
        self.sent: dict[str, float] = {}
        self.safe: set[str] = set()
        self.moves = 0
        """Messages that were moved, by the answers."""
        self._machines = machines
        self._outstanding: dict[int, str] = {}
        self._tag = 0
        self._asking = False

    @property
    def finished(self) -> bool:
        return self.finishing and not self._outstanding and not self._asking

    def begin(self, session: Session) -> None:
        for queue in self.queues:
            session.call("queue.declare", lambda *_: None, queue=queue, durable=True)
        session.call("confirm.select", partial(self._selected, session))

    def _selected(self, session: Session, *_: object) -> None:
        self._tag = 0
        self._later(session)

    def disconnected(self) -> None:
        self._outstanding = {}

    def _later(self, session: Session) -> None:
        self.clock.after(self.plan.interval * (0.5 + self.rng.random()), partial(self._next, session))

    def _next(self, session: Session) -> None:
        if session is not self.session or not session.alive or self.finishing:
            return
        if self.rng.random() < 0.5 and len(self.sent) < self.plan.messages:
            self._publish(session)
        elif not self._asking:
            self._move(session)
        self._later(session)

    def _publish(self, session: Session) -> None:
        out: list[bytes] = []
        for _ in range(self.rng.randint(1, self.plan.batch)):
            key = f"{self.name}:{len(self.sent) + 1}"
            self._tag += 1
            self.sent[key] = self.clock.now
            self._outstanding[self._tag] = key
            out.append(
                wire.publish(
                    1, "", self.rng.choice(self.queues), f"<{key}>".encode(), persistent=True,
                    frame_max=session.frame_max,
                )
            )  # fmt: skip
        self.journal.operations += len(out)
        session.send(b"".join(out))

    def _move(self, session: Session) -> None:
        """Some messages go from one queue to the other."""
        (machine,) = (found for found in self._machines if found.address == session.address)
        source, target = self.rng.sample(self.queues, 2)
        args: dict[str, object] = {
            "name": source,
            "to": target,
            "count": self.rng.randint(1, self.plan.moved),
        }
        self._asking = True
        self.journal.operations += 1
        self.clock.detail(f"{self.name} has messages moved from {source} to {target}")
        Question(
            self.clock,
            self.around.network,
            machine,
            "move",
            self._moved,
            asker="operator of queues",
            args=args,
        )

    def _moved(self, reply: Reply | None) -> None:
        self._asking = False
        if reply is not None and reply.get("ok"):
            self.moves += int(reply["moved"])

    def confirmed(self, session: Session, tag: int, multiple: bool, nacked: bool) -> None:
        if session is not self.session:
            return
        for each in [t for t in self._outstanding if t <= tag] if multiple else [tag]:
            self.safe.add(self._outstanding.pop(each))
