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
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import amqp
from amqp.exceptions import AMQPError, FrameError

from understudy.client.brokers import Addresses, ConnectFailed
from understudy.client.failover import LOST, Failover, declare_all
from understudy.client.publishing import WINDOW, PublisherBase
from understudy.client.refusals import Refused, is_of_a_publish
from understudy.client.transport import Lost
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT

SEQUENCE_HEADER = "x-producer-sequence"
"""Header of mandatory messages: a returned one is known again by it."""
HEAR_EVERY = 0.05
"""Seconds that a publisher only sends, at most, while it is called: then it hears what became of it."""
_AROUND_PROPERTIES = 8 + 12
"""Octets of the frame that they are in, which is one: its own and those of class, weight and size of body."""
_LARGEST_PROPERTIES = 131072 - _AROUND_PROPERTIES
"""Octets, in a frame of the usual size."""
_Message: Any = amqp.Message


class _Encoded(_Message):  # type: ignore[misc]
    """A message, encoded once, when it is given to us. py-amqp encodes while it sends, and says of what
    cannot be that the connection is broken: it would be sent again and again, and hold up all behind it.
    """

    def __init__(self, body: bytes | str, **properties: Any) -> None:
        """Raises ValueError and TypeError for what cannot be sent."""
        try:
            if isinstance(body, str):
                body = body.encode(properties.setdefault("content_encoding", "utf-8"))
            super().__init__(body if type(body) is bytes else bytes(memoryview(body)), **properties)
            self._encoded = super()._serialize_properties()
        except (AMQPError, struct.error, LookupError, AttributeError) as error:
            raise ValueError(f"not to be sent: {str(error).strip()}") from None
        if len(self._encoded) > _LARGEST_PROPERTIES:
            raise ValueError("not to be sent: headers and properties do not fit into a frame")

    @property
    def octets_of_properties(self) -> int:
        return len(self._encoded)

    def _serialize_properties(self) -> Any:
        return self._encoded


@lru_cache(maxsize=512)
def _check_route(exchange: str, routing_key: str) -> None:
    """Raises ValueError and TypeError for what no frame takes."""
    for name in (exchange, routing_key):
        if not isinstance(name, str):
            raise TypeError(f"exchange and routing key are str, not {type(name).__name__}")
        if len(name.encode()) > 255:
            raise ValueError(f"not to be sent: longer than 255 octets: {name[:40]!r}...")


@dataclass(slots=True)
class _Kept:
    """One message in doubt."""

    sequence: int
    exchange: str
    routing_key: str
    mandatory: bool
    message: Any
    returned: Callable[[], None] | None = None
    """Set once it was, on the connection that there is: tells the application."""


@dataclass(slots=True)
class _Session:
    """One connection's worth of tags."""

    name: str
    channel: Any
    room: int
    """Octets that properties may have."""
    last_tag: int = 0
    unsent: int = 0
    in_doubt: OrderedDict[int, _Kept] = field(default_factory=OrderedDict)


def _nobody_asked(_sequence: int, _code: int, _text: str) -> None:
    """Instead of `on_return`."""


class Publisher(PublisherBase[_Kept, _Session]):
    """Publishes with confirms over a list of brokers.

    `window`: messages in doubt at most; `publish` waits when it is full. `declare`: kombu queues and
    exchanges declared on each new connection. `on_return(sequence, code, text)`: no queue wanted it;
    `on_nack(sequence)`: a queue refuses it; `on_refused(refused)`: the broker does, for its exchange, its
    size or its properties, and closes the channel over it. Without `on_refused`, Refused is raised, once.

    What is returned or refused is not sent again, and holds up nothing. All of them are told from within the
    other methods, once for each message and after it is in the ledger: by `publish` before it takes charge of
    its own. What they raise comes out of there, and costs nothing else; they may publish and flush
    themselves.

    Connects when first needed. While idle, call `poll` every few seconds, or the broker will miss the
    heartbeats, and so will whoever watches the ledger.
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
        declare: Iterable[Any] = (),
        on_return: Callable[[int, int, str], None] | None = None,
        on_nack: Callable[[int], None] | None = None,
        on_refused: Callable[[Refused], None] | None = None,
        given_up: Callable[[], bool] = lambda: False,
        ledger_heartbeat: float = LEDGER_HEARTBEAT,
        **connection: Any,
    ) -> None:
        """`connection`: user, password, virtual_host, retry, connect_timeout, heartbeat, tls as
        `Failover` takes them.

        `given_up` is asked while no broker serves, and about each second while `publish` waits for one that
        takes nothing; once it says True, ConnectFailed is raised.
        `ledger_heartbeat`: seconds that the ledger is silent at most while one of the methods is at work.
        """
        super().__init__(
            Failover(addresses, **connection), name, ledger_dir,
            window=window, given_up=given_up, ledger_heartbeat=ledger_heartbeat,
        )  # fmt: skip
        self._declare = tuple(declare)
        self._on_return = on_return
        self._on_nack = on_nack
        self._on_refused = on_refused
        self._alone_until = 0
        """Sequence of the last of those that are sent one by one: among them is one that the broker refused,
        and it did not say which."""
        self._heard_at = 0.0

    @property
    def blocked(self) -> str:
        """Why the broker takes nothing from publishers now (`low on memory`), as of the last time it was
        heard; empty if it does."""
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
        """Take charge of one message; returns once it has left. Waits only while the window is full, no
        broker serves, or the broker takes no more: does not read, or blocks publishers, as under a memory
        alarm.

        Returns its number in this publisher's life, from 1. `properties` are AMQP's: content_type,
        message_id, and so on. Raises ValueError and TypeError for what cannot be sent, Refused for an earlier
        message; then this one was not taken. After ConnectFailed or an interrupt it may have been (see
        `counts.published`), and is sent with the next call.
        """
        self._refuse_if_closed()
        _check_route(exchange, routing_key)
        headers = dict(headers or {})
        self._wait_for_room()
        sequence = self.counts.published + 1  # not before the wait: a callback may have published
        if mandatory:
            headers[SEQUENCE_HEADER] = sequence
        if headers:
            properties["application_headers"] = headers
        message = _Encoded(body, delivery_mode=2 if persistent else 1, **properties)
        kept = _Kept(sequence, exchange, routing_key, mandatory, message)
        self.counts.published = sequence
        self._waiting.append(kept)
        self._ready(None)
        while self._waiting or self.failover.unsent:
            self._give_up_if_held_up()
            self._hear(1.0)
        if time.monotonic() - self._heard_at >= self._hear_every:
            self._hear(0)
        return sequence

    def _wait_for_room(self) -> None:
        """In the window, at the broker, and for what was published before to leave."""
        self._tell()
        if self._waiting:
            self._ready(None)
        while self.in_doubt >= self._window or self._waiting or self.failover.held_up:
            self._give_up_if_held_up()
            self._wait(1.0)
        self._refuse_if_closed()

    def _give_up_if_held_up(self) -> None:
        if self.failover.held_up and self._is_given_up():
            why = self.blocked or "it does not read"
            raise ConnectFailed(f"given up while the broker took no messages: {why}")

    @property
    def _hindrance(self) -> str:
        return f": the broker takes no messages now ({self.blocked})" if self.blocked else ""

    # -- connection ----------------------------------------------------------------------------------------

    def _begin(self, deadline: float | None) -> _Session:
        name = self._connection_name()
        channel = self.failover.connect(
            {"producer": name, "connection_name": self.name}, deadline=deadline, given_up=self._is_given_up
        )
        room = self.failover.frame_max - _AROUND_PROPERTIES
        session = _Session(name=f"{name}/{channel.channel_id}", channel=channel, room=room)
        channel.events["basic_ack"].add(self._acked)
        channel.events["basic_nack"].add(self._nacked)
        channel.events["basic_return"].add(self._returned)
        declare_all(self._declare, channel)
        channel.confirm_select()
        return session

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
            if kept.message.octets_of_properties > session.room:
                self._give_up_too_large(session, kept)
                continue
            kept.returned = None  # not by this broker
            tag = session.last_tag = session.last_tag + 1
            session.in_doubt[tag] = kept  # before it leaves the other: an interrupt loses nothing
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
            self.failover.drop(outage=False)  # it serves; the channel is gone
            raise Lost(str(error)) from None
        finally:
            self._heard_at = time.monotonic()

    # -- what the broker says ------------------------------------------------------------------------------

    def _acked(self, tag: int, multiple: bool) -> None:
        first, last = self._settle(tag, multiple, "confirmed")
        if last >= first:
            self.failover.serving()

    def _nacked(self, tag: int, multiple: bool) -> None:
        self._settle(tag, multiple, "nacked")

    def _settle(self, tag: int, multiple: bool, outcome: str) -> tuple[int, int]:
        """Forget the messages that `tag` answers, and note what became of them, in ranges of one outcome.

        Python looks for signals behind calls and loops only: between forgetting a message and keeping its
        news there are none, so that an interrupt leaves no message half settled.
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
                        news += (told,)
        finally:
            self._note_settled(session, run_first, run_last, run_outcome)
        return first, tag

    def _outcome(self, kept: _Kept, outcome: str) -> tuple[str, Callable[[], None] | None]:
        """What became of it after all, and whom to tell."""
        if outcome == "confirmed":
            return outcome if kept.returned is None else "returned", kept.returned
        return outcome, None if self._on_nack is None else partial(self._on_nack, kept.sequence)

    def _give_up_refused(self, session: _Session, error: AMQPError) -> None:
        """The broker has closed the channel for one of the messages in doubt, and does not say for which.
        What was sent before it may be in queues, what was sent behind it is not: all are sent again, one by
        one, and the one that is refused while it is alone is given up. So none goes out more than once
        again."""
        in_doubt = session.in_doubt
        if len(in_doubt) > 1:
            self._alone_until = next(reversed(in_doubt.values())).sequence
            return
        for tag, kept in tuple(in_doubt.items()):
            code, text = error.reply_code, " ".join(str(error.reply_text).split())
            refused, told = self._refusal(kept, code, text)
            self._ledger.settled(session.name, tag, tag, "nacked", f"{code} {text}")
            del in_doubt[tag]  # it is forgotten and told at once, as in `_settle`
            self.counts.nacked += 1
            if told is None:
                self._errors += (refused,)
            else:
                self._news += (told,)

    def _give_up_too_large(self, session: _Session, kept: _Kept) -> None:
        """The next one that waits fits into no frame of this broker: sent, it would cost the connection. In
        the ledger it is the only one of a session of its own, which no broker counts."""
        octets = kept.message.octets_of_properties
        text = (
            f"FRAME_ERROR - headers and properties of {octets:,} octets, and one frame takes {session.room:,}"
        )
        refused, told = self._refusal(kept, FrameError.code, text)
        session.unsent += 1
        name = f"{session.name}.{session.unsent}"
        self._ledger.sent(name, kept.exchange, kept.routing_key, 1, kept.sequence)
        self._ledger.settled(name, 1, 1, "nacked", f"{FrameError.code} {text}")
        self._waiting.popleft()  # it is forgotten and told at once, as in `_settle`
        self.counts.nacked += 1
        if told is None:
            self._errors += (refused,)
        else:
            self._news += (told,)

    def _refusal(self, kept: _Kept, code: int, text: str) -> tuple[Refused, Callable[[], None] | None]:
        """And whom to tell."""
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
