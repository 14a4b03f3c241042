"""A publisher of one cluster whose messages go to others: it sends again what was not confirmed."""

from __future__ import annotations

from functools import partial

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, Surroundings
from tests.simulation.clients.session import Session

EXCHANGE = "fed"
WINDOW = 10


class Sender(Actor):
    """Each message says its number and its attempt, which ascend as it sends them."""

    def __init__(self, around: Surroundings, cluster: str) -> None:
        super().__init__(around, "sender")
        self.cluster = cluster
        self.interval = self.rng.choice((0.02, 0.1, 0.4))
        self.numbers = self.attempts = 0
        self.confirmed_ones: set[int] = set()
        self.doubtful: list[int] = []
        """Numbers to be sent again, before anything new."""
        self._outstanding: dict[int, int] = {}
        """Number of the message, by delivery tag."""
        self._tag = 0

    @property
    def finished(self) -> bool:
        return self.finishing and not self._outstanding and not self.doubtful

    def begin(self, session: Session) -> None:
        session.call("confirm.select", partial(self._selected, session))

    def _selected(self, session: Session, *_: object) -> None:
        self._tag = 0
        self._work(session)

    def disconnected(self) -> None:
        self.doubtful = [*self._outstanding.values(), *self.doubtful]
        self._outstanding = {}

    def _work(self, session: Session) -> None:
        if session is not self.session or not session.alive:
            return
        if len(self._outstanding) < WINDOW and (self.doubtful or not self.finishing):
            self._send(session)
        self.clock.after(self.interval * (0.5 + self.rng.random()), partial(self._work, session))

    def _send(self, session: Session) -> None:
        if self.doubtful:
            number = self.doubtful.pop(0)
        else:
            self.numbers += 1
            number = self.numbers
        self.attempts += 1
        self._tag += 1
        self._outstanding[self._tag] = number
        body = f"<{self.cluster}:{number}:{self.attempts}>".encode()
        session.send(
            wire.publish(
                1, EXCHANGE, f"k.{self.cluster}", body, persistent=True, frame_max=session.frame_max,
                mandatory=False,
            )
        )  # fmt: skip

    def confirmed(self, session: Session, tag: int, multiple: bool, nacked: bool) -> None:
        if session is not self.session:
            return
        tags = [t for t in self._outstanding if t <= tag] if multiple else [tag]
        numbers = [self._outstanding.pop(t) for t in tags]
        if nacked:
            self.doubtful = [*numbers, *self.doubtful]
        else:
            self.confirmed_ones.update(numbers)
