"""A publisher that loses no message that it accepted, as long as its own process lives.

It keeps each message until the broker confirms it. After a lost connection it connects to the broker that now
serves, and resends all messages in doubt, in order, before any new message. Each queue thus keeps its order,
and receives each message at least once; with `exactly_once`, once.

Every connection is a new session, `NAME.LIFE.K`. The broker learns the name from the client property
`producer`. Within a session the publish tag identifies a message. The ledger records which sequence of the
publisher went out under which tag. One thread only: like py-amqp, this class is not thread safe.
"""

from __future__ import annotations

import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import amqp
from amqp.exceptions import AccessRefused, AMQPError, ChannelError, FrameError

from understudy.client.brokers import Addresses, ConnectFailed
from understudy.client.failover import LOST, Failover, declare_all
from understudy.client.publishing import FIRST_EPOCH, WINDOW, PublisherBase, told_of
from understudy.client.refusals import Refused, is_of_a_publish
from understudy.client.transport import Lost
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT

SEQUENCE_HEADER = "x-producer-sequence"
"""Header of mandatory messages: identifies a message that the broker returns."""
HEAR_EVERY = 0.05
"""Longest time, in seconds, that calls of `publish` only send; then one of them also reads confirms."""
_AROUND_PROPERTIES = 8 + 12
"""Octets around the properties in their single frame: frame overhead, class, weight and body size."""
_LARGEST_PROPERTIES = 131072 - _AROUND_PROPERTIES
"""Octets of properties that fit into a frame of the usual size."""
_Message: Any = amqp.Message


class _Encoded(_Message):  # type: ignore[misc]
    """A message that is encoded once, when the application publishes it.

    py-amqp encodes while it sends, and reports a message that cannot be encoded as a broken connection. The
    publisher would then resend the message forever, and block all later ones.
    """

    def __init__(self, body: bytes | str, **properties: Any) -> None:
        """Raises ValueError and TypeError for a message that cannot be encoded."""
        try:
            if isinstance(body, str):
                body = body.encode(properties.setdefault("content_encoding", "utf-8"))
            super().__init__(body if type(body) is bytes else bytes(memoryview(body)), **properties)
            self._encoded = super()._serialize_properties()
        except (AMQPError, struct.error, LookupError, AttributeError) as error:
            raise ValueError(f"cannot be sent: {str(error).strip()}") from None
        if len(self._encoded) > _LARGEST_PROPERTIES:
            raise ValueError("cannot be sent: headers and properties do not fit into a frame")

    @property
    def octets_of_properties(self) -> int:
        return len(self._encoded)

    def _serialize_properties(self) -> Any:
        return self._encoded


@lru_cache(maxsize=512)
def _check_route(exchange: str, routing_key: str) -> None:
    """Raises ValueError and TypeError for names that do not fit into a frame."""
    for name in (exchange, routing_key):
        if not isinstance(name, str):
            raise TypeError(f"exchange and routing key are str, not {type(name).__name__}")
        if len(name.encode()) > 255:
            raise ValueError(f"cannot be sent: longer than 255 octets: {name[:40]!r}...")


@dataclass(slots=True)
class _Kept:
    """One message in doubt."""

    sequence: int
    exchange: str
    routing_key: str
    mandatory: bool
    message: Any
    returned: Callable[[], None] | None = None
    """Set once the broker returned the message on the current connection: calls `on_return`."""


@dataclass(slots=True)
class _Session:
    """One connection, with its own series of tags."""

    name: str
    channel: Any
    room: int
    """Most octets that the properties of a message may have."""
    first: int = 0
    """Number of the first message, which the broker knows; 0 if messages have no numbers."""
    last_tag: int = 0
    unsent: int = 0
    in_doubt: OrderedDict[int, _Kept] = field(default_factory=OrderedDict)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _nobody_asked(_sequence: int, _code: int, _text: str) -> None:
    """Stands in for `on_return` where the application gave none."""


class Publisher(PublisherBase[_Kept, _Session]):
    """Publishes with confirms over a list of brokers.

    `window`: most messages in doubt; `publish` waits while the window is full. `declare`: kombu queues and
    exchanges to declare on each new connection. `exactly_once`: messages have numbers, so that no queue takes
    one twice, also after a restart of the application; see `resume`. It needs `ledger_dir`.

    `on_return(sequence, code, text)`: no queue matched a mandatory message. `on_nack(sequence)`: a queue
    refused the message. `on_refused(refused)`: the broker refused it for its exchange, size or properties,
    and closed the channel. Without `on_refused`, the publisher raises Refused, once.

    A returned or refused message is not resent, and does not block others. The methods of the publisher call
    the callbacks, once for each message, after the outcome is in the ledger. `publish` does so before it
    accepts its own message. An exception of a callback leaves that method, and has no other effect. Callbacks
    may publish and flush.

    The publisher connects when first needed. While idle, call `poll` every few seconds. Otherwise the broker
    and the watcher of the ledger miss heartbeats.
    """

    failover: Failover
    _lost = LOST
    _hear_every = HEAR_EVERY

    def __init__(
        self,
        addresses: Addresses,
        name: str,
        ledger_dir: str | os.PathLike[str] | None = None,
        *,
        window: int = WINDOW,
        exactly_once: bool = False,
        declare: Iterable[Any] = (),
        on_return: Callable[[int, int, str], None] | None = None,
        on_nack: Callable[[int], None] | None = None,
        on_refused: Callable[[Refused], None] | None = None,
        given_up: Callable[[], bool] = lambda: False,
        ledger_heartbeat: float = LEDGER_HEARTBEAT,
        **connection: Any,
    ) -> None:
        """`connection`: user, password, virtual_host, retry, connect_timeout, heartbeat and tls, as for
        `Failover`.

        `given_up` is called while no broker serves, and about once a second while `publish` waits for a
        broker that accepts no messages. If it returns True, ConnectFailed is raised. `ledger_heartbeat`:
        longest silence of the ledger, in seconds, while a method runs.
        """
        super().__init__(
            Failover(addresses, **connection), name, ledger_dir,
            window=window, given_up=given_up, ledger_heartbeat=ledger_heartbeat, exactly_once=exactly_once,
        )  # fmt: skip
        self._declare = tuple(declare)
        self._on_return = on_return
        self._on_nack = on_nack
        self._on_refused = on_refused
        self._alone_until = 0
        """Messages up to this sequence are sent one by one: the broker refused one of them, and did not say
        which one."""
        self._heard_at = 0.0

    @property
    def blocked(self) -> str:
        """Why the broker accepts no messages from publishers (`low on memory`), as of its last frame; empty
        if it accepts them."""
        return self.failover.blocked

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
        """Accept one message, and return once it is sent.

        Waits only while the window is full, no broker serves, or the broker accepts no more: it does not
        read, or it blocks publishers, for example under a memory alarm.

        Returns the message's number, from 1: in this publisher's life, or with `exactly_once` in all of them.
        `properties` are those of AMQP:
        content_type, message_id, and so on. Raises ValueError and TypeError for a message that cannot be
        sent, and Refused for an earlier message; in both cases this message is not accepted. After
        ConnectFailed or an interrupt it may have been accepted (see `counts.published`); the next call then
        sends it.
        """
        self._refuse_if_closed()
        _check_route(exchange, routing_key)
        headers = dict(headers or {})
        self._wait_for_room()
        sequence = self.next_number  # after the wait: a callback may have published
        if mandatory:
            headers[SEQUENCE_HEADER] = sequence
        if headers:
            properties["application_headers"] = headers
        message = _Encoded(body, delivery_mode=2 if persistent else 1, **properties)
        kept = _Kept(sequence, exchange, routing_key, mandatory, message)
        self._last = sequence
        self.counts.published += 1
        self._waiting.append(kept)
        self._ready(None)
        while self._waiting or self.failover.unsent:
            self._give_up_if_held_up()
            self._hear(1.0)
        if time.monotonic() - self._heard_at >= self._hear_every:
            self._hear(0)
        return sequence

    def _wait_for_room(self) -> None:
        """Wait for room in the window and at the broker, and until all earlier messages are sent."""
        self._tell()
        if self._waiting:
            self._ready(None)
        while (
            self.in_doubt >= self._window or self._waiting or self.failover.held_up or not self._has_number()
        ):
            self._give_up_if_held_up()
            self._wait(1.0)
        self._refuse_if_closed()

    def _give_up_if_held_up(self) -> None:
        if self.failover.held_up and self._is_given_up():
            why = self.blocked or "it does not read"
            raise ConnectFailed(f"gave up while the broker accepted no messages: {why}")

    @property
    def _hindrance(self) -> str:
        return f": the broker accepts no messages now ({self.blocked})" if self.blocked else ""

    # -- connection ----------------------------------------------------------------------------------------

    def _begin(self, deadline: float | None) -> _Session:
        if self._is_new():
            self._register(deadline)
        name = self._connection_name()
        claim = self._claim()
        channel = self._open(name, claim, deadline)
        room = self.failover.frame_max - _AROUND_PROPERTIES
        session = _Session(f"{name}/{channel.channel_id}", channel, room, first=claim.get("producer_next", 0))
        channel.events["basic_ack"].add(self._acked)
        channel.events["basic_nack"].add(self._nacked)
        channel.events["basic_return"].add(self._returned)
        declare_all(self._declare, channel)
        self._select(channel, claim)
        return session

    def _open(self, name: str, claim: Mapping[str, Any], deadline: float | None) -> Any:
        told = {"producer": name, "connection_name": self.name, **claim}
        channel = self.failover.connect(told, deadline=deadline, given_up=self._is_given_up)
        if claim:
            self._check_broker(self.failover.server_properties)
        return channel

    def _select(self, channel: Any, claim: Mapping[str, Any]) -> None:
        """Select confirms. The broker then accepts the claim, or refuses it. Raises NotExactlyOnce."""
        try:
            channel.confirm_select()
        except ChannelError as error:
            if not claim:
                raise
            fences = isinstance(error, AccessRefused)
            raise self._refusal_of_numbers(fences, _one_line(error.reply_text)) from None

    def _register(self, deadline: float | None) -> None:
        """Register as new, and make the file. A broker that knows the publisher refuses that."""
        claim = told_of(self.name, FIRST_EPOCH, 1)
        self._select(self._open(self._connection_name(), claim, deadline), claim)
        self.failover.drop(outage=False)
        assert self._numbers is not None
        self._numbers.create()

    def _send_waiting(self) -> None:
        session = self._session
        assert session is not None
        waiting = self._waiting
        publish = session.channel.basic_publish
        while waiting and not self.failover.held_up:
            alone = self._alone_until
            if alone and session.in_doubt and next(iter(session.in_doubt.values())).sequence <= alone:
                return
            kept = waiting[0]
            if session.first and kept.sequence != session.first + session.last_tag:
                if session.in_doubt:
                    return
                self.failover.drop(outage=False)
                raise Lost("the numbers go on elsewhere")  # on a new connection, which says where
            if kept.message.octets_of_properties > session.room:
                self._give_up_too_large(session, kept)
                continue
            kept.returned = None  # a return on an earlier connection no longer counts
            tag = session.last_tag = session.last_tag + 1
            session.in_doubt[tag] = kept  # before it leaves `waiting`: an interrupt loses nothing
            waiting.popleft()
            self._ledger.sent(session.name, kept.exchange, kept.routing_key, tag, kept.sequence)
            publish(kept.message, kept.exchange, kept.routing_key, kept.mandatory)

    def _wait_for_input(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        try:
            self.failover.wait(timeout, self._pulse)
            while self._waiting and (left := until - time.monotonic()) > 0:
                self._send_waiting()
                self.failover.wait(left, self._pulse)
        except AMQPError as error:
            if self._session is None or not is_of_a_publish(error):
                raise
            self._give_up_refused(self._session, error)
            self.failover.drop(outage=False)  # no outage: the broker serves, only the channel is closed
            raise Lost(str(error)) from None
        finally:
            self._heard_at = time.monotonic()

    # -- input from the broker -----------------------------------------------------------------------------

    def _acked(self, tag: int, multiple: bool) -> None:
        first, last = self._settle(tag, multiple, "confirmed")
        if last >= first:
            self.failover.serving()

    def _nacked(self, tag: int, multiple: bool) -> None:
        self._settle(tag, multiple, "nacked")

    def _settle(self, tag: int, multiple: bool, outcome: str) -> tuple[int, int]:
        """Forget the messages that `tag` settles, and record their outcome, in ranges of one outcome.

        Python checks for signals only after calls and loops. There is none between forgetting a message and
        queueing its callback, so an interrupt leaves no message half settled.
        """
        session = self._session
        if session is None:
            return tag, tag - 1
        in_doubt, news, counts = session.in_doubt, self._news, self.counts
        first = next(iter(in_doubt), tag + 1) if multiple else tag
        run_first, run_last, run_outcome = first, first - 1, ""
        try:
            for each in range(first, tag + 1):
                kept = in_doubt.get(each)
                this, told = "", None
                if kept is not None:
                    this, told = self._outcome(kept, outcome)
                if this != run_outcome:
                    self._note_settled(session, run_first, run_last, run_outcome)
                    run_first, run_last, run_outcome = each, each - 1, this
                if kept is not None:
                    del in_doubt[each]
                    run_last = each
                    if this == "confirmed":
                        counts.confirmed += 1
                    elif this == "nacked":
                        counts.nacked += 1
                    else:
                        counts.returned += 1
                    if told is not None:
                        news += ((kept.sequence, told),)
        finally:
            self._note_settled(session, run_first, run_last, run_outcome)
        return first, tag

    def _outcome(self, kept: _Kept, outcome: str) -> tuple[str, Callable[[], None] | None]:
        """The outcome of one message, and the callback to run."""
        if outcome == "confirmed":
            return outcome if kept.returned is None else "returned", kept.returned
        return outcome, None if self._on_nack is None else partial(self._on_nack, kept.sequence)

    def _give_up_refused(self, session: _Session, error: AMQPError) -> None:
        """The broker closed the channel because of one message in doubt, and does not say which.

        Messages sent before it may be in queues; messages sent after it are not. The publisher resends all of
        them one by one, and drops the one that is refused alone. It resends each message at most once
        more."""
        in_doubt = session.in_doubt
        if len(in_doubt) > 1 or (in_doubt and self._may_be_fenced(session, error)):
            self._alone_until = next(reversed(in_doubt.values())).sequence
            return
        for tag, kept in tuple(in_doubt.items()):
            code, text = error.reply_code, _one_line(error.reply_text)
            refused, told = self._refusal(kept, code, text)
            self._ledger.settled(session.name, tag, tag, "nacked", f"{code} {text}")
            del in_doubt[tag]  # no call up to the end: an interrupt leaves nothing half done, see `_settle`
            self.counts.nacked += 1
            if told is None:
                self._errors += ((kept.sequence, refused),)
            else:
                self._news += ((kept.sequence, told),)

    def _may_be_fenced(self, session: _Session, error: AMQPError) -> bool:
        """Whether the broker may refuse this process, and not the only message in doubt. If that message is
        resent on purpose, the broker has accepted the process meanwhile."""
        (kept,) = session.in_doubt.values()
        return bool(session.first) and isinstance(error, AccessRefused) and kept.sequence > self._alone_until

    def _give_up_too_large(self, session: _Session, kept: _Kept) -> None:
        """Drop the next waiting message, because its properties do not fit into a frame of this broker.

        Sending it would end the connection. The ledger records it in a session of its own, unknown to any
        broker."""
        octets = kept.message.octets_of_properties
        text = f"FRAME_ERROR - headers and properties of {octets:,} octets; a frame holds {session.room:,}"
        refused, told = self._refusal(kept, FrameError.code, text)
        session.unsent += 1
        name = f"{session.name}.{session.unsent}"
        self._ledger.sent(name, kept.exchange, kept.routing_key, 1, kept.sequence)
        self._ledger.settled(name, 1, 1, "nacked", f"{FrameError.code} {text}")
        self._waiting.popleft()  # an interrupt leaves nothing half done from here, see `_settle`
        self.counts.nacked += 1
        if told is None:
            self._errors += ((kept.sequence, refused),)
        else:
            self._news += ((kept.sequence, told),)

    def _refusal(self, kept: _Kept, code: int, text: str) -> tuple[Refused, Callable[[], None] | None]:
        """The exception for one refused message, and the callback to run, if there is one."""
        message_id = kept.message.properties.get("message_id")
        refused = Refused(kept.sequence, message_id, kept.exchange, kept.routing_key, code, text)
        return refused, None if self._on_refused is None else partial(self._on_refused, refused)

    def _returned(self, error: Any, _exchange: str, _routing_key: str, message: Any) -> None:
        sequence = (message.properties.get("application_headers") or {}).get(SEQUENCE_HEADER)
        if self._session is None:
            return
        for kept in self._session.in_doubt.values():
            if kept.sequence == sequence:
                tell = _nobody_asked if self._on_return is None else self._on_return
                kept.returned = partial(tell, sequence, error.reply_code, error.reply_text)
                return

    def _note_settled(self, session: _Session, first: int, last: int, outcome: str) -> None:
        if outcome and last >= first:
            self._ledger.settled(session.name, first, last, outcome)
