"""A publisher, independent of the protocol: it keeps each message until the message is settled.

After a lost connection it resends the messages in doubt, in order, before any new message. It keeps a ledger.

Role: the base of both kits' `Publisher`. The subclass opens the connection, sends each message and reports
its outcome. Owner: the application, on one thread.
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
    """`flush` ran out of time. The publisher keeps the messages, and resends them if the connection is
    lost."""


@dataclass(slots=True)
class PublisherCounts:
    published: int = 0
    """Messages given to `publish`."""
    confirmed: int = 0
    returned: int = 0
    """Mandatory messages that the broker returned: no queue matched. Not counted as confirmed."""
    nacked: int = 0
    """Refused by the broker or a queue; not resent."""
    resent: int = 0
    """Messages resent after a lost connection, because they were in doubt."""


class AnySession(Protocol):
    """The common part of both kits' sessions. A session is one connection's worth of messages."""

    @property
    def in_doubt(self) -> dict[int, Any]:
        """The unsettled messages by tag, in the order in which they were sent."""


KeptT = TypeVar("KeptT")
SessionT = TypeVar("SessionT", bound=AnySession)


class PublisherBase(ABC, Generic[KeptT, SessionT]):
    """Each kit implements the abstract methods and `publish`, and removes settled messages from a session's
    `in_doubt`.
    """

    failover: Brokers
    _lost: ClassVar[type[Exception] | tuple[type[Exception], ...]]
    """Exceptions that mean a lost connection."""

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
        """Messages to send or resend, in order."""
        self._news: deque[Callable[[], None]] = deque()
        """Calls of the application's callbacks that are still due."""
        self._telling = False
        self._errors: deque[Exception] = deque()
        """Exceptions that are still to be raised to the application, once each."""
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
        """The number of messages without a known outcome, sent or still to be sent."""
        return len(self._waiting) + (len(self._session.in_doubt) if self._session else 0)

    def connect(self, timeout: float | None = None) -> None:
        """Connect now rather than at the first `publish`. Raises ConnectFailed after `timeout` seconds."""
        self._refuse_if_closed()
        self._ready(None if timeout is None else time.monotonic() + timeout)

    def poll(self, timeout: float = 0.0) -> None:
        """Handle the broker's confirms and returns. Waits up to `timeout` seconds for the first one.

        Reconnects where needed. A connection attempt that has begun is finished, within `connect_timeout`.
        """
        self._wait(timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until no message is in doubt.

        Raises NotConfirmed after `timeout` seconds, even while no broker serves. A connection attempt that
        has begun is finished, within `connect_timeout`. Raises Refused for a refused message without a
        callback, once all other messages are confirmed.
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
        """Close, and seal the ledger. Does not wait for messages in doubt: call `flush` first."""
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
        """Called in each forked child: connection, ledger and messages in doubt belong to the parent.

        Methods that publish, connect or wait raise RuntimeError in the child.
        """
        self._abandoned = True
        self._session = None
        self._waiting.clear()
        self._news.clear()
        self._errors.clear()
        self._ledger.abandon()
        self.failover.abandon()

    # -- implemented by each kit ---------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, deadline: float | None) -> SessionT:
        """Connect. `deadline` is a time of `time.monotonic`. Raises `_lost`, ConnectFailed, and errors that
        no retry can cure."""

    @abstractmethod
    def _send_waiting(self) -> None:
        """Send messages of `_waiting`, in order, as long as the broker accepts them. Raises `_lost`."""

    @abstractmethod
    def _wait_for_input(self, timeout: float) -> None:
        """Handle input that arrives within `timeout` seconds. Raises `_lost`."""

    @property
    def _hindrance(self) -> str:
        """Why the broker confirms nothing more, if known: the end of an error sentence."""
        return ""

    def _write(self) -> None:
        """Write all gathered records to the ledger."""
        self._ledger.write()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the publisher is closed")
        if self._abandoned:
            raise RuntimeError(f"the publisher {forks.REFUSAL}")

    # -- for `publish` -------------------------------------------------------------------------------------

    def _wait_for_room(self) -> None:
        """Wait for room in the window. Callbacks run meanwhile; they may publish or close."""
        while self.in_doubt >= self._window:
            self._wait(1.0)
        self._refuse_if_closed()

    # -- connection ----------------------------------------------------------------------------------------

    def _connection_name(self) -> str:
        """The name of the next connection. It is unique over all lives of this publisher."""
        return f"{self.name}.{self._life}.{self.failover.connects + 1}"

    def _ready(self, deadline: float | None) -> None:
        """Connect if needed, and send all waiting messages that the broker accepts now."""
        while True:
            try:
                if self._session is None:
                    self._session = self._begin(deadline)
                self._send_waiting()
            except self._lost:
                self._lose()
            except BaseException:  # the frame or session may be incomplete: do not use the connection again
                self._lose()
                raise
            if self._session is not None:
                return

    def _is_given_up(self) -> bool:
        self._pulse.beat()
        return self._given_up()

    def _lose(self) -> None:
        """Drop the connection, and queue all messages in doubt, in order, for a resend."""
        session = self._session
        if session is not None:
            again = deque(session.in_doubt.values())
            count = len(again)
            again.extend(self._waiting)
            self._session, self._waiting = None, again  # one statement: an interrupt loses or doubles nothing
            self.counts.resent += count
        self.failover.drop()
        self._write()

    def _tell(self) -> None:
        """Run the callbacks that are due, then raise a pending error, unless a `flush` is under way.

        Callbacks never run inside py-amqp or Proton: their exceptions would look like a lost connection. If
        one raises, the rest run next time. A callback may publish and flush; callbacks that result from this
        run after it has returned.
        """
        if self._telling:
            return
        self._telling = True
        try:
            while self._news:
                try:
                    self._news[0]()
                finally:  # after the call: an interrupt must not lose a callback
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
        """Like `_wait`, but leave the callbacks for later."""
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
