"""What a publisher does in any protocol: keeps each message until it is settled, sends what is in doubt
again, in order, before anything new, and keeps a ledger.

Role: the base of both kits' `Publisher`, which knows how a connection begins and how a message is sent on it,
and hears what became of it. Owner: the application, on one thread.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from understudy.client import forks
from understudy.client.brokers import Brokers, TimeUp
from understudy.client.ledgers import Pulse, SentLedger, new_incarnation, open_ledger

WINDOW = 500


class NotConfirmed(Exception):
    """`flush` ran out of time. The messages are still kept, and sent again if the connection is lost."""


@dataclass(slots=True)
class PublisherCounts:
    published: int = 0
    """Messages given to `publish`."""
    confirmed: int = 0
    returned: int = 0
    """Mandatory ones that the broker gave back: no queue wanted them. Not among the confirmed."""
    nacked: int = 0
    """Refused by the broker or a queue; not sent again."""
    resent: int = 0
    """Sent once more after a lost connection; each was in doubt at that time."""


class AnySession(Protocol):
    """What both kits' sessions, one for each connection, have in common."""

    @property
    def in_doubt(self) -> dict[int, Any]:
        """Messages, as the kit keeps them, in the order in which they were sent."""


KeptT = TypeVar("KeptT")
SessionT = TypeVar("SessionT", bound=AnySession)


class PublisherBase(ABC, Generic[KeptT, SessionT]):
    """Each kit gives what is abstract here and `publish`, and takes out of a session's `in_doubt` what is
    settled.
    """

    failover: Brokers
    _lost: ClassVar[type[Exception] | tuple[type[Exception], ...]]
    """What is raised when a connection is gone."""

    def __init__(
        self,
        failover: Brokers,
        name: str,
        ledger_dir: str | os.PathLike[str] | None,
        *,
        window: int,
        given_up: Callable[[], bool],
        ledger_heartbeat: float,
    ) -> None:
        if window < 1:
            raise ValueError("window must be at least 1")
        self.name = name
        self.counts = PublisherCounts()
        self.failover = failover
        self._window = window
        self._given_up = given_up
        self._life = new_incarnation()
        ledger = open_ledger(ledger_dir, name, "producer", self._life)
        self._ledger = SentLedger(ledger)
        self._pulse = Pulse(ledger, ledger_heartbeat)
        self._session: SessionT | None = None
        self._waiting: deque[KeptT] = deque()
        """What is to be sent, or sent again, in order."""
        self._news: deque[Callable[[], None]] = deque()
        """What the application's callbacks are still to be told."""
        self._telling = False
        self._errors: deque[Exception] = deque()
        """What the application is still to be told by raising it, once each."""
        self._flushing = False
        self._closed = False
        self._abandoned = False
        forks.mind(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        try:
            if kind is None and not self._closed:
                self.flush()
        finally:
            self.close()

    @property
    def in_doubt(self) -> int:
        """Messages sent or to be sent, of which is not known what became of them."""
        return len(self._waiting) + (len(self._session.in_doubt) if self._session else 0)

    def connect(self, timeout: float | None = None) -> None:
        """Connect now rather than at the first `publish`. Raises ConnectFailed after `timeout` seconds."""
        self._refuse_if_closed()
        self._ready(None if timeout is None else time.monotonic() + timeout)

    def poll(self, timeout: float = 0.0) -> None:
        """Handle what the broker has said of messages, waiting up to `timeout` seconds for something;
        reconnects where needed. A try to connect that has begun is finished, within `connect_timeout`.
        """
        self._wait(timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until nothing is in doubt. Raises NotConfirmed after `timeout` seconds, also while no broker
        serves; a try to connect that has begun is finished, within `connect_timeout`. Raises Refused, where
        nobody else is told of it, once all the others are confirmed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        before, self._flushing = self._flushing, True
        try:
            self._tell()
            self._wait_for_all(deadline)
        finally:
            self._flushing = before
        self._write()
        self._tell()

    def _wait_for_all(self, deadline: float | None) -> None:
        while self.in_doubt:
            left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if left <= 0:
                raise NotConfirmed(f"{self.in_doubt} messages are not confirmed yet{self._hindrance}")
            self._wait(left)

    def close(self) -> None:
        """Close without waiting for what is in doubt (`flush` does); the ledger is sealed."""
        if self._closed:
            return
        self._closed = True
        try:
            self.failover.close()
        finally:
            self._write()
            self._ledger.close()
        self._tell()

    def abandon(self) -> None:
        """Called in each child of a fork: connection, ledger and what is in doubt belong to the parent. What
        would publish, connect or wait there raises RuntimeError.
        """
        self._abandoned = True
        self._session = None
        self._waiting.clear()
        self._news.clear()
        self._errors.clear()
        self._ledger.abandon()
        self.failover.abandon()

    # -- what each kit gives -------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, deadline: float | None) -> SessionT:
        """Connect. `deadline` is on the clock of `time.monotonic`; raises `_lost`, ConnectFailed, and what
        will not heal."""

    @abstractmethod
    def _send_waiting(self) -> None:
        """Send as much of `_waiting`, in order, as the broker takes now. Raises `_lost`."""

    @abstractmethod
    def _wait_for_input(self, timeout: float) -> None:
        """Handle what comes within `timeout` seconds. Raises `_lost`."""

    @property
    def _hindrance(self) -> str:
        """Why no more is confirmed, if that is known: the end of a sentence."""
        return ""

    def _write(self) -> None:
        """What is known goes into the ledger."""
        self._ledger.write()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the publisher is closed")
        if self._abandoned:
            raise RuntimeError(f"the publisher {forks.REFUSAL}")

    # -- for `publish` -------------------------------------------------------------------------------------

    def _wait_for_room(self) -> None:
        """In the window. Callbacks are called meanwhile, and may publish, or close."""
        while self.in_doubt >= self._window:
            self._wait(1.0)
        self._refuse_if_closed()

    # -- connection ----------------------------------------------------------------------------------------

    def _connection_name(self) -> str:
        """Of the one that is to be made: no other has it, in any life of this publisher."""
        return f"{self.name}.{self._life}.{self.failover.connects + 1}"

    def _ready(self, deadline: float | None) -> None:
        """Return with a connection on which all is sent that the broker takes now."""
        while True:
            try:
                if self._session is None:
                    self._session = self._begin(deadline)
                self._send_waiting()
            except self._lost:
                self._lose()
            except BaseException:  # a half-written frame, a half-made session: not to be used again
                self._lose()
                raise
            if self._session is not None:
                return

    def _is_given_up(self) -> bool:
        self._pulse.beat()
        return self._given_up()

    def _lose(self) -> None:
        """The connection is gone: all that is in doubt waits, in order, to be sent again."""
        session = self._session
        if session is not None:
            again = deque(session.in_doubt.values())
            count = len(again)
            again.extend(self._waiting)
            self._session, self._waiting = None, again  # at once: an interrupt loses or doubles nothing
            self.counts.resent += count
        self.failover.drop()
        self._write()

    def _tell(self) -> None:
        """Call the callbacks: never from within py-amqp or Proton, where what they raise would be taken for a
        lost connection. What is left when one raises is told next time. A callback may publish and flush:
        what comes of that is told once it has returned, not from within. Then raise what is to be raised, but
        not while others are waited for.
        """
        if self._telling:
            return
        self._telling = True
        try:
            while self._news:
                try:
                    self._news[0]()
                finally:  # not before: an interrupt would leave it untold
                    if self._news:
                        self._news.popleft()
        finally:
            self._telling = False
        if self._errors and not self._flushing:
            raise self._errors.popleft()

    def _wait(self, timeout: float) -> None:
        self._hear(timeout)
        self._tell()

    def _hear(self, timeout: float) -> None:
        """`_wait`, but what is heard is told later."""
        self._refuse_if_closed()
        self._write()
        until = time.monotonic() + timeout
        try:
            self._ready(until)
            self._wait_for_input(max(0.0, until - time.monotonic()))
        except TimeUp:
            pass  # no broker serves
        except self._lost:
            self._lose()
        except BaseException:
            self._lose()
            raise
