"""A client that publishes where clients may not: to an internal exchange."""

from __future__ import annotations

from functools import partial

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, Surroundings
from tests.simulation.clients.session import Arguments, Session
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.plan import TrespasserPlan

ACCESS_REFUSED = 403


class Trespasser(Actor):
    """Each publish costs it its channel. One that is confirmed, or returned, was taken: the exchange is not
    what was declared (6)."""

    expected_codes = frozenset({0, 320, ACCESS_REFUSED})

    def __init__(self, around: Surroundings, plan: TrespasserPlan) -> None:
        super().__init__(around, plan.name)
        self.exchange, self.interval = plan.exchange, plan.interval

    def begin(self, session: Session) -> None:
        session.call("confirm.select", partial(self._selected, session))

    def _selected(self, session: Session, *_: object) -> None:
        self.clock.after(self.interval * (0.5 + self.rng.random()), partial(self._publish, session))

    def _publish(self, session: Session) -> None:
        if session is not self.session or not session.alive:
            return
        self.journal.operations += 1
        body = f"<{self.name}>".encode()
        session.send(wire.publish(1, self.exchange, "a", body, persistent=True, frame_max=4096))

    def lost(self, session: Session, code: int, why: str) -> None:
        self.journal.trespasses += code == ACCESS_REFUSED
        super().lost(session, code, why)

    def confirmed(self, session: Session, tag: int, multiple: bool, nacked: bool) -> None:
        self._taken()

    def returned(self, session: Session, arguments: Arguments, body: bytes) -> None:
        self._taken()

    def _taken(self) -> None:
        raise Violation(6, f"a publish of {self.name} to the internal exchange {self.exchange} is taken")
