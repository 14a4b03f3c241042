"""Republishes messages of a quarantine, with confirms, in batches. Each batch is noted before it is sent, and
again when its results are known.

Owner: `understudy quarantine republish`. Nothing is resent automatically. If the connection is lost, the run
ends. Messages sent without a confirm are then in doubt until the operator has them republished.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import amqp
from amqp.exceptions import AMQPError

from broker.model.octets import as_octets, is_unicode
from broker.model.values import ROOT
from understudy.client import ClientTls, ConnectFailed
from understudy.client.failover import LOST, Failover
from understudy.client.ledgers import Pulse, SentLedger, new_incarnation, open_ledger
from understudy.ledger.writer import LedgerError
from understudy.quarantine.journal import Notes, NotesError
from understudy.quarantine.message import ORIGIN_HEADER, Message
from understudy.shared.text import shown

BATCH = 500
"""Messages between two notes. After a crash at most this many are in doubt."""
GRACE = 5.0
"""Longest wait of an interrupted run for the confirms of sent messages, in seconds."""
_NAME = "understudy-quarantine"
_FRAME_HEAD = 8 + 12
"""Octets of a content header frame without its properties."""
_Message: Any = amqp.Message


class Stopped(Exception):
    """The run ends early. `str()` is one line."""


@dataclass(slots=True)
class RepublishOutcome:
    """The results of a run over `wanted` messages."""

    wanted: int
    before: int = 0
    """Number of messages left out, because an earlier run republished them."""
    last_at: str = ""
    """Time of the last note about them, in UTC; "" if there are none."""
    confirmed: int = 0
    noted: int = 0
    """Number of confirmed messages with a note, which prevents a second publish."""
    in_doubt: int = 0
    """Number of messages sent without a confirm, or with a confirm that could not be noted."""
    refused: dict[str, int] = field(default_factory=dict)
    """Number of refused messages, by reason."""
    why: str = ""
    """The reason of an early end; otherwise empty."""

    @property
    def not_sent(self) -> int:
        doubtful = self.in_doubt - (self.confirmed - self.noted)
        return self.wanted - self.confirmed - doubtful - sum(self.refused.values())


class _Raw(_Message):  # type: ignore[misc]
    """A message whose properties are already encoded."""

    def __init__(self, body: bytes, properties: bytes) -> None:
        super().__init__(body)
        self._octets = properties

    def _serialize_properties(self) -> bytes:
        return self._octets


class _Session:
    """One connection to one virtual host, and its messages whose result is not yet known."""

    def __init__(self, failover: Failover, ledger: Path | None) -> None:
        self._failover = failover
        self._life = new_incarnation()
        writer = open_ledger(ledger, _NAME, "producer", self._life)
        self._ledger, self._pulse = SentLedger(writer), Pulse(writer)
        self._name = ""
        self._channel: Any = None
        self._tag = 0
        self._sequence = 0
        self._returned: dict[str, str] = {}
        """Reason of a return, by origin. A return comes before the confirm of the same message."""
        self.unsettled: dict[int, Message] = {}
        self.settled: list[tuple[Message, str]] = []
        """Each message with the reason of its refusal; empty if the broker took it."""

    def open(self, given_up: Callable[[], bool]) -> None:
        """Connect if there is no connection. Raises ConnectFailed once `given_up()`, and py-amqp's errors."""
        if self._failover.connected:
            return
        name = f"{_NAME}.{self._life}.{self._failover.connects + 1}"
        properties = {"producer": name, "connection_name": _NAME}
        self._channel = channel = self._failover.connect(properties, given_up=given_up)
        channel.events["basic_ack"].add(self._acked)
        channel.events["basic_nack"].add(self._nacked)
        channel.events["basic_return"].add(self._back)
        channel.confirm_select()
        self._name, self._tag = f"{name}/{channel.channel_id}", 0

    @property
    def room(self) -> int:
        """Largest size of properties in octets, once the session is open."""
        return self._failover.frame_max - _FRAME_HEAD

    def there(self, exchange: str, queue: str) -> bool:
        """Does the exchange exist? With the default exchange: does the queue exist?"""
        if not is_unicode(queue) or "\0" in queue:
            return False  # a routing key that cannot be a name
        channel = self._failover.connection.channel()
        try:
            if exchange:
                channel.exchange_declare(exchange, "direct", passive=True)
            else:
                channel.queue_declare(queue, passive=True)
            channel.close()
        except amqp.exceptions.NotFound:
            channel.collect()  # frees its number: there are 2,047
            return False
        except amqp.exceptions.ResourceLocked:
            pass  # another connection's exclusive queue, which accepts messages all the same
        return True

    def send(self, message: Message, exchange: str, key: str, properties: bytes) -> None:
        self._tag, self._sequence = self._tag + 1, self._sequence + 1
        self.unsettled[self._tag] = message  # before the send: an interrupt leaves it in doubt
        self._ledger.sent(self._name, exchange, key, self._tag, self._sequence)
        self._channel.basic_publish(_Raw(message.body, properties), exchange, as_octets(key), mandatory=True)

    def wait(self, timeout: float) -> None:
        self._ledger.write()
        self._failover.wait(timeout, self._pulse)

    def close(self) -> None:
        try:
            self._failover.close()
        finally:
            self._ledger.close()

    def _acked(self, tag: int, multiple: bool) -> None:
        self._settle(tag, multiple, "confirmed")

    def _nacked(self, tag: int, multiple: bool) -> None:
        self._settle(tag, multiple, "nacked")

    def _settle(self, tag: int, multiple: bool, outcome: str) -> None:
        tags = [t for t in self.unsettled if t == tag or (multiple and t < tag)]
        outcomes: list[tuple[int, str]] = []
        for each in tags:
            message = self.unsettled.pop(each)
            why = self._returned.pop(message.origin, "")
            outcomes.append((each, "returned" if why and outcome == "confirmed" else outcome))
            self.settled.append((message, "refused by the broker" if outcome == "nacked" else why))
        for of, run in groupby(outcomes, key=lambda entry: entry[1]):
            in_order = [each for each, _ in run]
            self._ledger.settled(self._name, in_order[0], in_order[-1], of)

    def _back(self, error: Any, _exchange: str, _routing_key: str, message: Any) -> None:
        headers = message.properties.get("application_headers") or {}
        self._returned[str(headers.get(ORIGIN_HEADER))] = shown(str(error.reply_text).lower()) or "returned"


@dataclass(slots=True, frozen=True)
class Way:
    """Where and as whom to publish. A message goes to the queue with the original queue's name, unless `to`
    or `route` is set."""

    brokers: str
    user: str
    password: str
    timeout: float
    """Longest wait for a broker, and for the confirms of a batch, in seconds."""
    to: str | None = None
    """One queue for all messages."""
    route: bool = False
    """Publish to the original exchange with the original routing key."""
    ledger: Path | None = None
    tls: ClientTls | None = None


class Republishing:
    """One run. `stopping` is polled: it returns the reason to end early, or an empty string."""

    def __init__(
        self, notes: Notes, outcome: RepublishOutcome, way: Way, stopping: Callable[[], str]
    ) -> None:
        self._notes = notes
        self._outcome = outcome
        self._way = way
        self._stopping = stopping

    def run(self, messages: list[Message], progress: Callable[[int], None]) -> None:
        """Publish the messages in order, over one connection for each virtual host. Everything that can be
        checked is checked before the first message is sent. `outcome.why` holds the reason of an early end.
        Call it within `notes.writing()`."""
        groups = [(vhost, list(group)) for vhost, group in groupby(messages, key=lambda m: m.vhost)]
        try:
            there = [(vhost, self._checked(vhost, group)) for vhost, group in groups]
            for vhost, group in there:
                session = self._session(vhost, self._way.ledger)
                try:
                    for at in range(0, len(group), BATCH):
                        self._batch(session, group[at : at + BATCH])
                        progress(min(BATCH, len(group) - at))
                finally:
                    session.close()
            if self._outcome.not_sent:
                self._outcome.why = self._stopping()
        except KeyboardInterrupt:
            self._outcome.why = self._stopping() or "interrupted"
        except (Stopped, ConnectFailed, NotesError, LedgerError, AMQPError, OSError, ValueError) as error:
            self._outcome.why = self._stopping() or shown(" ".join(str(error).split())) or repr(error)

    def _session(self, vhost: str, ledger: Path | None = None) -> _Session:
        failover = Failover(
            self._way.brokers,
            user=self._way.user,
            password=self._way.password,
            tls=self._way.tls,
            virtual_host=vhost,
        )
        return _Session(failover, ledger)

    def _open(self, session: _Session) -> None:
        until = time.monotonic() + self._way.timeout
        session.open(lambda: bool(self._stopping()) or time.monotonic() > until)

    def _checked(self, vhost: str, messages: list[Message]) -> list[Message]:
        """The messages whose destination exists. Raises Stopped if the operator named a destination that does
        not exist."""
        session = self._session(vhost)
        try:
            self._open(session)
            places = set(map(self._place, messages))
            missing = {place for place in places if not session.there(*place)}
        finally:
            session.close()
        if missing and (self._way.route or self._way.to is not None):
            exchange, queue = min(missing)
            what = f"exchange {exchange!r}" if exchange else f"queue {queue!r}"
            raise Stopped(f"{what}{_in_vhost(vhost)} does not exist")
        for message in messages:
            if self._place(message) in missing:
                self._refuse(message, "does not exist")
        return [message for message in messages if self._place(message) not in missing]

    def _place(self, message: Message) -> tuple[str, str]:
        """What must exist: an exchange, or a queue by its name."""
        exchange, key = self._target(message)
        return (exchange, "") if exchange else ("", key)

    def _batch(self, session: _Session, batch: list[Message]) -> None:
        if why := self._stopping():
            raise Stopped(why)
        self._open(session)
        sendable = []
        for message in batch:
            properties = message.republished(self._way.user, route=self._way.route)
            if len(properties) > session.room:
                self._refuse(message, "its headers and properties do not fit into a frame")
            else:
                sendable.append((message, properties))
        session.settled, session.unsettled = [], {}
        self._notes.begin([message for message, _ in sendable], self._way.brokers)
        sent = 0
        try:
            for message, properties in sendable:
                if self._stopping():
                    break
                sent += 1
                session.send(message, *self._target(message), properties)
            self._wait(session)
        except LOST as error:
            raise Stopped(f"the connection was lost: {error}") from error
        finally:
            self._settle(session, [message for message, _ in sendable[sent:]])

    def _wait(self, session: _Session) -> None:
        """Wait for the confirms of all sent messages; only briefly if the run is to end."""
        began = time.monotonic()
        while session.unsettled:
            most = min(GRACE, self._way.timeout) if self._stopping() else self._way.timeout
            left = began + most - time.monotonic()
            if left <= 0:
                raise Stopped(f"no confirm within {most:g} s")
            session.wait(min(left, 0.5))

    def _settle(self, session: _Session, not_sent: list[Message]) -> None:
        """Note the results of a batch."""
        outcome = self._outcome
        confirmed = [message for message, why in session.settled if not why]
        refused = [(message, why) for message, why in session.settled if why]
        for message, why in refused:
            self._refuse(message, why)
        outcome.confirmed += len(confirmed)
        outcome.in_doubt += len(session.unsettled) + len(confirmed)
        self._notes.settle(confirmed, [message for message, _ in refused] + not_sent, self._way.brokers)
        outcome.noted += len(confirmed)
        outcome.in_doubt -= len(confirmed)

    def _target(self, message: Message) -> tuple[str, str]:
        """Exchange and routing key."""
        if self._way.route:
            return message.exchange, message.routing_key
        return "", self._way.to or message.name

    def _refuse(self, message: Message, why: str) -> None:
        exchange, key = self._target(message)
        place = f"exchange {exchange!r}, key {key!r}" if exchange else f"queue {key!r}"
        reason = f"{place}{_in_vhost(message.vhost)}: {why}"
        self._outcome.refused[reason] = self._outcome.refused.get(reason, 0) + 1


def _in_vhost(vhost: str) -> str:
    return "" if vhost == ROOT else f" in vhost {vhost!r}"
