"""A publisher that loses nothing it was asked to publish, as long as its own process lives.

Each message is kept until the broker confirms it. When the connection is lost, the publisher finds the broker
that serves now and sends again, in order, all that is in doubt, before anything new: so order holds for each
queue, and a message is there at least once.

Every connection is a new session, `NAME.LIFE.K`, told to the broker in the client property `producer`; within
it a message is known by its publish tag. The ledger says which of the publisher's own numbers went out under
which tags. One thread; py-amqp is not thread safe and neither is this.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import amqp

from understudy.client.failover import (
    LOST,
    Addresses,
    Failover,
    Pulse,
    declare_all,
    new_incarnation,
    open_ledger,
)
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT

WINDOW = 500
SEQUENCE_HEADER = "x-producer-sequence"
"""Header of mandatory messages: a returned one is known again by it."""
_LEDGER_INTERVAL = 0.05


class NotConfirmed(Exception):
    """`flush` ran out of time. The messages are still kept, and sent again if the connection is lost."""


@dataclass(slots=True)
class _Kept:
    """One message in doubt."""

    sequence: int
    exchange: str
    routing_key: str
    mandatory: bool
    message: Any
    returned: bool = False


@dataclass(slots=True)
class _Run:
    """Messages of one session and one route with adjacent tags and sequences, for one line of the ledger."""

    session: str
    route: str
    first_tag: int
    last_tag: int
    first_sequence: int


@dataclass(slots=True)
class PublisherCounts:
    published: int = 0
    """Messages given to `publish`."""
    confirmed: int = 0
    returned: int = 0
    """Mandatory ones that the broker gave back: no queue wanted them. Not among the confirmed."""
    nacked: int = 0
    """Refused by the broker; not sent again."""
    resent: int = 0
    """Sent once more after a lost connection; each was in doubt at that time."""


@dataclass(slots=True)
class _Session:
    """One connection's worth of tags."""

    name: str
    channel: Any
    last_tag: int = 0
    in_doubt: OrderedDict[int, _Kept] = field(default_factory=OrderedDict)


class Publisher:
    """Publishes with confirms over a list of brokers.

    `window`: messages in doubt at most; `publish` waits when it is full. `declare`: kombu queues and
    exchanges declared on each new connection. `on_return(sequence, code, text)` and `on_nack(sequence)` are
    called from within the other methods. Connects when first needed. While idle, call `poll` every few
    seconds, or the broker will miss the heartbeats, and so will whoever watches the ledger.
    """

    def __init__(
        self,
        addresses: Addresses,
        name: str,
        ledger_dir: str | os.PathLike[str] | None = None,
        *,
        window: int = WINDOW,
        declare: Iterable[Any] = (),
        on_return: Callable[[int, int, str], None] | None = None,
        on_nack: Callable[[int], None] | None = None,
        given_up: Callable[[], bool] = lambda: False,
        ledger_heartbeat: float = LEDGER_HEARTBEAT,
        **connection: Any,
    ) -> None:
        """`connection`: user, password, virtual_host, retry, connect_timeout, heartbeat, tls as
        `Failover` takes them.

        `given_up` is asked while no broker serves; once it says True, ConnectFailed is raised.
        `ledger_heartbeat`: seconds that the ledger is silent at most while one of the methods is at work.
        """
        if window < 1:
            raise ValueError("window must be at least 1")
        self.name = name
        self.counts = PublisherCounts()
        self.failover = Failover(addresses, **connection)
        self._window = window
        self._declare = tuple(declare)
        self._on_return = on_return
        self._on_nack = on_nack
        self._given_up = given_up
        self._life = new_incarnation()
        self._ledger = open_ledger(ledger_dir, name, "producer", self._life)
        self._pulse = Pulse(self._ledger, ledger_heartbeat)
        self._run: _Run | None = None
        self._ledger_at = 0.0
        self._session: _Session | None = None
        self._resend: deque[_Kept] = deque()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None:
            self.flush()
        self.close()

    @property
    def in_doubt(self) -> int:
        """Messages sent or to be sent again, and not yet confirmed."""
        return len(self._resend) + (len(self._session.in_doubt) if self._session else 0)

    def connect(self, timeout: float | None = None) -> None:
        """Connect now rather than at the first `publish`, and declare. Raises ConnectFailed after `timeout`
        seconds.
        """
        self._ready(None if timeout is None else time.monotonic() + timeout)

    def publish(
        self,
        body: bytes | str,
        routing_key: str,
        exchange: str = "",
        *,
        mandatory: bool = False,
        persistent: bool = True,
        headers: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> int:
        """Take charge of one message; waits only while the window is full or no broker serves.

        Returns its number in this publisher's life, from 1. `properties` are AMQP's: content_type,
        message_id, and so on.
        """
        if self._closed:
            raise RuntimeError("the publisher is closed")
        sequence = self.counts.published + 1
        if mandatory:
            headers = {**(headers or {}), SEQUENCE_HEADER: sequence}
        if headers:
            properties["application_headers"] = dict(headers)
        message = amqp.Message(body, delivery_mode=2 if persistent else 1, **properties)
        kept = _Kept(sequence, exchange, routing_key, mandatory, message)
        while self.in_doubt >= self._window:
            self._wait(1.0)
        self.counts.published = sequence
        self._resend.append(kept)
        self._ready(None)
        return sequence

    def poll(self, timeout: float = 0.0) -> None:
        """Handle confirms that have arrived, waiting up to `timeout` seconds for one; reconnects where
        needed.
        """
        self._wait(timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until nothing is in doubt. Raises NotConfirmed after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.in_doubt:
            left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if left <= 0:
                raise NotConfirmed(f"{self.in_doubt} messages are not confirmed yet")
            self._wait(left)
        self._write_ledger()

    def close(self) -> None:
        """Close without waiting for what is in doubt (`flush` does); the ledger is sealed."""
        if self._closed:
            return
        self._closed = True
        self.failover.close()
        self._write_ledger()
        if self._ledger is not None:
            self._ledger.close()

    # -- connection ----------------------------------------------------------------------------------------

    def _ready(self, deadline: float | None) -> None:
        """Return with a connection on which all that was waiting to be sent is sent."""
        while self._session is None or self._resend:
            try:
                if self._session is None:
                    self._begin(deadline)
                self._send_waiting()
            except LOST:
                self._lose()
            except BaseException:  # a half-written frame, a half-made channel: not to be used again
                self._lose()
                raise

    def _is_given_up(self) -> bool:
        self._pulse.beat()
        return self._given_up()

    def _begin(self, deadline: float | None) -> None:
        name = f"{self.name}.{self._life}.{self.failover.connects + 1}"
        channel = self.failover.connect(
            {"producer": name, "connection_name": self.name}, deadline=deadline, given_up=self._is_given_up
        )
        session = _Session(name=f"{name}/{channel.channel_id}", channel=channel)
        channel.events["basic_ack"].add(self._acked)
        channel.events["basic_nack"].add(self._nacked)
        channel.events["basic_return"].add(self._returned)
        self._session = session
        declare_all(self._declare, channel)
        channel.confirm_select()

    def _send_waiting(self) -> None:
        session = self._session
        assert session is not None
        waiting = self._resend
        publish = session.channel.basic_publish
        while waiting:
            kept = waiting.popleft()
            tag = session.last_tag = session.last_tag + 1
            session.in_doubt[tag] = kept
            self._note_sent(session, tag, kept)
            publish(kept.message, kept.exchange, kept.routing_key, kept.mandatory)

    def _lose(self) -> None:
        """The connection is gone: all that is in doubt waits, in order, to be sent again."""
        session, self._session = self._session, None
        self.failover.drop()
        if session is not None:
            self.counts.resent += len(session.in_doubt)
            self._resend.extendleft(reversed(session.in_doubt.values()))
        self._write_ledger()

    def _wait(self, timeout: float) -> None:
        self._write_ledger()
        try:
            self._ready(None)
            self.failover.wait(timeout, self._pulse)
        except LOST:
            self._lose()
        except BaseException:
            self._lose()
            raise

    # -- what the broker says ------------------------------------------------------------------------------

    def _acked(self, tag: int, multiple: bool) -> None:
        first, last = self._settle(tag, multiple, "confirmed")
        if last >= first:
            self.failover.serving()

    def _nacked(self, tag: int, multiple: bool) -> None:
        self._settle(tag, multiple, "nacked")

    def _settle(self, tag: int, multiple: bool, outcome: str) -> tuple[int, int]:
        """Forget the messages that `tag` answers, and note what became of them, in ranges of one outcome."""
        session = self._session
        if session is None:
            return tag, tag - 1
        in_doubt = session.in_doubt
        first = next(iter(in_doubt), tag + 1) if multiple else tag
        run_first, run_outcome = first, ""
        for each in range(first, tag + 1):
            kept = in_doubt.pop(each, None)
            this = "" if kept is None else "returned" if kept.returned and outcome == "confirmed" else outcome
            if this != run_outcome:
                self._note_settled(session, run_first, each - 1, run_outcome)
                run_first, run_outcome = each, this
            if kept is not None and this == "nacked" and self._on_nack is not None:
                self._on_nack(kept.sequence)
        self._note_settled(session, run_first, tag, run_outcome)
        return first, tag

    def _returned(self, error: Any, _exchange: str, _routing_key: str, message: Any) -> None:
        sequence = (message.properties.get("application_headers") or {}).get(SEQUENCE_HEADER)
        if self._session is None:
            return
        for kept in self._session.in_doubt.values():
            if kept.sequence == sequence:
                kept.returned = True
                if self._on_return is not None:
                    self._on_return(kept.sequence, error.reply_code, error.reply_text)
                return

    # -- the books -----------------------------------------------------------------------------------------

    def _note_sent(self, session: _Session, tag: int, kept: _Kept) -> None:
        """Before the bytes leave, so that no confirm is ever ahead of its `sent`."""
        if self._ledger is None:
            return
        route = f"{kept.exchange}|{kept.routing_key}"
        run = self._run
        if run is not None:
            due = run.first_sequence + tag - run.first_tag
            if (
                kept.sequence == due
                and tag == run.last_tag + 1
                and (run.route, run.session) == (route, session.name)
            ):
                run.last_tag = tag
                return
            self._end_run()
        self._run = _Run(session.name, route, tag, tag, kept.sequence)
        if time.monotonic() - self._ledger_at > _LEDGER_INTERVAL:
            self._ledger_at = time.monotonic()
            self._ledger.flush()

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None and self._ledger is not None:
            self._ledger.record(
                "sent",
                prod=run.session,
                first=run.first_tag,
                last=run.last_tag,
                pfirst=run.first_sequence,
                name=run.route,
            )

    def _note_settled(self, session: _Session, first: int, last: int, outcome: str) -> None:
        count = last - first + 1
        if count <= 0 or not outcome:
            return
        setattr(self.counts, outcome, getattr(self.counts, outcome) + count)
        if self._ledger is not None:
            self._end_run()
            self._ledger.record(outcome, prod=session.name, first=first, last=last)

    def _write_ledger(self) -> None:
        if self._ledger is not None:
            self._end_run()
            self._ledger.flush()
