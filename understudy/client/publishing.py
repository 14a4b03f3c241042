"""A publisher, independent of the protocol: it keeps each message until the message is settled.

After a lost connection it resends the messages in doubt, in order, before any new message. It keeps a ledger.
With `exactly_once`, each message has a number that the broker knows it by, also over processes (`numbering`).

Role: the base of both kits' `Publisher`. The subclass opens the connection, sends each message and reports
its outcome. Owner: the application, on one thread.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from understudy.client import forks
from understudy.client.brokers import Brokers, TimeUp
from understudy.client.ledgers import Pulse, SentLedger, new_incarnation, open_ledger
from understudy.client.numbering import HIGHEST, SPAN, Fenced, NotExactlyOnce, Numbers
from understudy.shared.text import shown

WINDOW = 500
FIRST_EPOCH = 0
"""Epoch in which a publisher without a file registers once. A broker that knows the publisher refuses it."""


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


class AnyKept(Protocol):
    """The common part of both kits' messages in doubt."""

    @property
    def sequence(self) -> int: ...


KeptT = TypeVar("KeptT", bound=AnyKept)
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
        exactly_once: bool = False,
    ) -> None:
        if window < 1:
            raise ValueError("window must be at least 1")
        if exactly_once and ledger_dir is None:
            raise ValueError("exactly_once needs ledger_dir: the publisher's numbers are kept in that folder")
        if exactly_once and window > SPAN:
            raise ValueError(f"window is at most {SPAN} with exactly_once: a broker knows no more numbers")
        self.name = name
        self.counts = PublisherCounts()
        self.failover = failover
        self._window = window
        self._given_up = given_up
        self._life = new_incarnation()
        ledger = open_ledger(ledger_dir, name, "producer", self._life)
        self._numbers: Numbers | None = None
        if exactly_once:
            try:
                self._numbers = Numbers(str(ledger_dir), name, self._life)
            except BaseException:
                if ledger is not None:
                    ledger.close()
                raise
        self._last = 0 if self._numbers is None else self._numbers.unused_from - 1
        """Number of the last message that was accepted."""
        self._ledger = SentLedger(ledger)
        self._pulse = Pulse(ledger, ledger_heartbeat)
        self._session: SessionT | None = None
        self._waiting: deque[KeptT] = deque()
        """Messages to send or resend, in order."""
        self._news: deque[tuple[int, Callable[[], None]]] = deque()
        """Calls of the application's callbacks that are still due, each with the number of its message."""
        self._telling = False
        self._errors: deque[tuple[int, Exception]] = deque()
        """Exceptions that are still to be raised to the application, once each, with the number of their
        message."""
        self._flushing = False
        self._closed = False
        self._abandoned = False
        self._fenced: Fenced | None = None
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

    @property
    def next_number(self) -> int:
        """Number of the next message."""
        return self._last + 1

    @property
    def keep_from(self) -> int:
        """The next process may `resume` at this number: until then, the application keeps its messages from
        this one on. It rises in steps, as the file is written."""
        return self.next_number if self._numbers is None else self._numbers.next_number

    def resume(self, at: int | None = None) -> int:
        """Go on at the first message whose outcome the last process of this publisher may not have known.
        Returns its number. All messages before it are confirmed, or were reported as refused or returned.

        The application then publishes its messages again from that number on, in the same order. The broker
        leaves out those that it has. `at`: the number, if the application knows better. To be called before
        the first `publish`, and only with `exactly_once`.

        Without this call, the next number is one that no process has used: no message is taken for another.
        """
        self._refuse_if_closed()
        numbers = self._numbers
        if numbers is None:
            raise RuntimeError("resume needs exactly_once=True")
        if self.counts.published:
            raise RuntimeError("resume comes before the first publish")
        if at is not None and not 1 <= at < HIGHEST:
            raise ValueError(f"a message has a number from 1 to 2^53, not {at}")
        if at is None and not numbers.known:
            return self.next_number
        self._disconnect()
        numbers.go_on_at(numbers.next_number if at is None else at)
        if not numbers.known:
            numbers.create()
        self._last = numbers.next_number - 1
        return self.next_number

    def skip(self, count: int = 1) -> None:
        """Leave out numbers: those of messages that the application does not publish again after `resume`.

        The next message then waits until no other is in doubt, and goes out on a new connection."""
        if not 1 <= count < HIGHEST - self._last:
            raise ValueError(f"count is at least 1, and no number is above 2^53; not {count}")
        self._last += count

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
        try:
            self._tell()
        finally:
            if self._numbers is not None and self.counts.published and self._fenced is None:
                self._numbers.close(self._oldest(), self._last + 1)

    def abandon(self) -> None:
        """Called in each forked child: connection, ledger and messages in doubt belong to the parent.

        Methods that publish, connect or wait raise RuntimeError in the child.
        """
        self._abandoned = True
        self._session = None
        self._waiting.clear()
        self._news.clear()
        self._errors.clear()
        self._numbers = None
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
        if self._fenced is not None:
            raise self._fenced

    # -- for `publish` -------------------------------------------------------------------------------------

    def _wait_for_room(self) -> None:
        """Wait for room in the window. Callbacks run meanwhile; they may publish or close."""
        while self.in_doubt >= self._window or not self._has_number():
            self._wait(1.0)
        self._refuse_if_closed()

    # -- numbers -------------------------------------------------------------------------------------------

    def _has_number(self) -> bool:
        """Whether the next message may be sent under its number. Raises NotExactlyOnce."""
        numbers = self._numbers
        if numbers is None or self.next_number < numbers.limit:
            return True
        try:
            numbers.make_room(self._oldest())
        except Fenced as fenced:
            self._fenced = fenced
            raise
        if self.next_number < numbers.limit:
            return True
        if not self.in_doubt:  # only what is still to be reported stands in the way
            if self._errors:
                raise self._errors.popleft()[1]
            raise RuntimeError(f"a callback publishes {SPAN} messages while others wait to be reported")
        return False

    def _oldest(self) -> int:
        """The first number whose outcome the application may not know; the next one if it knows all.

        A callback that runs now has its message in hand."""
        in_doubt = () if self._session is None else self._session.in_doubt.values()
        told = 1 if self._telling else 0
        return min(
            (
                *(kept.sequence for kept in in_doubt),
                *(kept.sequence for kept in self._waiting),
                *(number for number, _ in tuple(self._news)[told:]),
                *(number for number, _ in self._errors),
            ),
            default=self.next_number,
        )

    def _first_due(self) -> int:
        """Number of the first message on a new connection."""
        return self._waiting[0].sequence if self._waiting else self.next_number

    def _claim(self) -> dict[str, Any]:
        """What the client tells the broker of its numbers; nothing without `exactly_once`."""
        numbers = self._numbers
        if numbers is None:
            return {}
        return told_of(self.name, numbers.epoch, self._first_due())

    def _is_new(self) -> bool:
        """Whether the publisher has no file, and must ask a broker first whether it is known there."""
        return self._numbers is not None and not self._numbers.known

    def _refusal_of_numbers(self, fences: bool, reason: str) -> NotExactlyOnce:
        """The exception for a producer that the broker refuses. `fences`: it refuses the process."""
        numbers = self._numbers
        assert numbers is not None
        if not numbers.known:
            return NotExactlyOnce(
                f"the broker refuses {shown(self.name)} as a new publisher: {reason}. If {numbers.path} was"
                " there before, bring it back (no older copy), or call `resume(at=N)`, where N is the first"
                " number that may be unconfirmed (`understudy list producers` helps), or use another name"
            )
        if fences:
            self._fenced = Fenced(
                f"publisher {shown(self.name)} may not go on: {reason}. The outcome is not known from number"
                f" {self._oldest()} on; the newer process publishes those again: end this one"
            )
            return self._fenced
        return NotExactlyOnce(
            f"the broker refuses the numbers of publisher {shown(self.name)}: {reason}. Call `resume(at=N)`,"
            " where N is the first number that may be unconfirmed"
        )

    def _check_broker(self, told: object) -> None:
        """`told`: what the broker says of itself. Raises NotExactlyOnce."""
        if not (isinstance(told, Mapping) and told.get("producer_numbers")):
            raise NotExactlyOnce(
                f"the broker at {self.failover.described} does not know the numbers of publishers: it cannot"
                " leave out what is sent again; use a newer one, or leave exactly_once out"
            )

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

    def _disconnect(self) -> None:
        """Close the connection in order. No message is in doubt."""
        self._session = None
        self.failover.close()

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
                    self._news[0][1]()
                finally:  # after the call: an interrupt must not lose a callback
                    if self._news:
                        self._news.popleft()
        finally:
            self._telling = False
        if self._errors and not self._flushing:
            raise self._errors.popleft()[1]

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


def told_of(name: str, epoch: int, number: int) -> dict[str, Any]:
    """A producer's properties, of a connection or a link. `number`: of the first message."""
    return {"producer_id": name, "producer_epoch": epoch, "producer_next": number}
