"""A publisher over AMQP 1.0 that loses nothing it was asked to publish, as long as its own process lives.

Each message is kept until the broker has said what became of it. When the connection is lost, the publisher
finds the broker that serves now and sends again, in order, all that is in doubt, before anything new: so
order holds for each queue, and a message is there at least once.

Every connection has a name, `NAME.LIFE.K`, told to the broker in the property `producer` of its open; every
address that is published to is a link of it, which is a session in the ledgers, `NAME.LIFE.K/LINK`. Within it
a message is known by its number: the broker counts from 1, in the order in which they come, and so does the
ledger here. One thread; Proton is not thread safe and neither is this.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from proton import Delivery, Endpoint, Event, EventType, Link, Terminus

from understudy.client.amqp10.failover import Failover
from understudy.client.amqp10.messages import encoded
from understudy.client.amqp10.wire import Lost, Refused, Wire, reason
from understudy.client.brokers import Addresses
from understudy.client.publishing import WINDOW, PublisherBase
from understudy.ledger.ranges import RangeGatherer
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT
from understudy.shared.amqp10.addresses import Address, parse
from understudy.shared.amqp10.conditions import MESSAGE_SIZE, Fault

LINKS = 200
"""Addresses of which a link is kept; one that was not used for long makes room for another."""
HEAR_EVERY = 0.05
"""Seconds that a publisher only sends, at most, while it is called: then it hears what became of it."""
_OUTCOMES: dict[int, str] = {
    Delivery.ACCEPTED: "confirmed",
    Delivery.RELEASED: "returned",
    Delivery.MODIFIED: "returned",
}


@dataclass(slots=True)
class _Kept:
    """One message in doubt. `tag`: its number on the link it went out by. `alone`: there was no other in
    doubt when it went, nor since."""

    sequence: int
    target: str
    payload: bytes
    session: str = ""
    tag: int = 0
    alone: bool = False


@dataclass(slots=True)
class _Outlet:
    """A link. `session`: what it is in the ledgers."""

    link: Any
    session: str
    target: str
    address: Address
    last_tag: int = 0
    in_doubt: int = 0


@dataclass(slots=True)
class _Session:
    """One connection's worth of links."""

    name: str
    wire: Wire
    outlets: OrderedDict[str, _Outlet] = field(default_factory=OrderedDict)
    """By address, those used last behind."""
    opened: int = 0
    """Links made so far."""
    current: _Outlet | None = None
    """By which the last message went."""
    sent: int = 0
    """Messages so far."""
    in_doubt: dict[int, _Kept] = field(default_factory=dict)
    """By their place among those sent, which no two have: an outcome that comes late, of one that was sent
    again by another link, is nobody's."""

    @property
    def is_sending(self) -> bool:
        """Has the link that was used last something that the broker's window does not take now? No other has.
        (What the engine counts for the session counts for ever what a link left unsent that has gone.)"""
        return self.current is not None and self.current.link.queued > 0


class Publisher(PublisherBase[_Kept, _Session]):
    """Publishes over a list of brokers, and hears of each message what became of it.

    `window`: messages in doubt at most; `publish` waits when it is full. `on_return(sequence)`: no queue
    wanted it (`released`); `on_nack(sequence, condition, text)`: it is refused, by a queue (`rejected`), for
    its address, or for its size; `text` names the address. Both are called from within the other methods,
    after what they are told is in the ledger; what they raise comes out of there, and costs nothing else.
    Without `on_nack`, what a queue refuses is counted only (`counts.nacked`), and for the rest Refused is
    raised, once. What is refused is not sent again, and holds up nothing.

    Nothing is declared over AMQP 1.0: exchanges and queues must be there. Connects when first needed. While
    idle, call `poll` every few seconds, or the broker will miss the heartbeats, and so will whoever watches
    the ledger.
    """

    failover: Failover
    _lost = Lost

    def __init__(
        self,
        addresses: Addresses,
        name: str,
        ledger_dir: str | os.PathLike[str] | None = None,
        *,
        window: int = WINDOW,
        on_return: Callable[[int], None] | None = None,
        on_nack: Callable[[int, str, str], None] | None = None,
        given_up: Callable[[], bool] = lambda: False,
        ledger_heartbeat: float = LEDGER_HEARTBEAT,
        **connection: Any,
    ) -> None:
        """`connection`: user, password, virtual_host, retry, connect_timeout, heartbeat, tls as
        `Failover` takes them.

        `given_up` is asked while no broker serves; once it says True, ConnectFailed is raised.
        `ledger_heartbeat`: seconds that the ledger is silent at most while one of the methods is at work.
        """
        super().__init__(
            Failover(addresses, **connection), name, ledger_dir,
            window=window, given_up=given_up, ledger_heartbeat=ledger_heartbeat,
        )  # fmt: skip
        self._on_return = on_return
        self._on_nack = on_nack
        self._settled: RangeGatherer[tuple[str, str]] = RangeGatherer()
        """Numbers by session and outcome, of which the ledger does not know yet."""
        self._alone_until = 0
        """Sequence of the last of those that are sent one by one: among them is one that cost a link, or
        the connection, and the broker did not say which."""
        self._heard_at = 0.0

    def publish(
        self,
        body: bytes | str,
        address: str,
        *,
        persistent: bool = True,
        priority: int | None = None,
        ttl: float | None = None,
        headers: Mapping[str, Any] | None = None,
        annotations: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> int:
        """Take charge of one message; waits only while the window is full, no broker serves, or the broker
        takes no more: gives no credit, or does not read. An address that is new costs a round trip.

        `address`: `/queues/NAME`, `/exchanges/NAME/KEY`, or a queue's plain name. `ttl` in seconds.
        `headers` are AMQP's application properties, `properties` its properties: content_type, message_id,
        and so on, times in seconds since 1970. Returns the message's number in this publisher's life, from 1.
        Raises ValueError and TypeError for what cannot be sent. Refused, of which the class tells, names in
        `sequences` what is given up, earlier messages perhaps; whatever else is raised, this one is kept, and
        is not to be published again.
        """
        self._refuse_if_closed()
        self._known(address)
        if properties and properties.get("user_id") not in (None, self.failover.user.encode()):
            raise ValueError("user_id names another user than the one that publishes")
        payload = encoded(
            body, persistent=persistent, priority=priority, ttl=ttl, headers=headers, annotations=annotations,
            properties=properties,
        )  # fmt: skip
        self._wait_for_room()
        kept = _Kept(0, address, payload)
        # Now, since a callback may have published; and at once: Python looks for no signal until it is kept.
        sequence = kept.sequence = self.counts.published = self.counts.published + 1
        self._waiting.append(kept)
        self._ready(None)
        while self._is_held_up():
            self._wait(1.0)
        if time.monotonic() - self._heard_at >= HEAR_EVERY:
            self._wait(0)
        self._tell()
        return sequence

    def _known(self, address: str) -> None:
        """Raises ValueError for what is no address: a broker would refuse it for ever."""
        if self._session is not None and address in self._session.outlets:
            return
        try:
            parse(address)
        except Fault as fault:
            raise ValueError(fault.text) from None

    # -- connection ----------------------------------------------------------------------------------------

    def _is_held_up(self) -> bool:
        """Is there anything that has not left for the broker?"""
        session = self._session
        return bool(self._waiting) or session is None or session.wire.held_up or session.is_sending

    def _begin(self, deadline: float | None) -> _Session:
        name = self._connection_name()
        wire = self.failover.connect(
            {"producer": name, "connection_name": self.name}, self._serve, deadline=deadline,
            given_up=self._is_given_up,
        )  # fmt: skip
        return _Session(name, wire)

    def _send_waiting(self) -> None:
        """In order: what is held up for want of credit holds up all behind it."""
        session = self._session
        assert session is not None
        waiting = self._waiting
        while waiting:
            kept = waiting[0]
            if session.in_doubt and self._is_one_by_one(session, kept):
                break
            outlet = self._outlet(session, kept.target)
            if outlet is None or outlet.link.credit <= 0:
                break
            link = outlet.link
            if 0 < link.remote_max_message_size < len(kept.payload):
                self._give_up_too_large(session, outlet.address, link.remote_max_message_size)
                waiting = self._waiting
                continue
            tag = outlet.last_tag = outlet.last_tag + 1
            number = session.sent = session.sent + 1
            outlet.in_doubt += 1
            kept.session, kept.tag, kept.alone = outlet.session, tag, kept.sequence <= self._alone_until
            session.in_doubt[number] = kept  # before it leaves the other: an interrupt loses nothing
            waiting.popleft()
            exchange, key, _ = outlet.address
            self._ledger.sent(outlet.session, exchange, key, tag, kept.sequence)
            link.delivery(str(number))
            link.stream(kept.payload)
            link.advance()
        session.wire.send()

    def _is_one_by_one(self, session: _Session, kept: _Kept) -> bool:
        """Does it wait until no other is in doubt?"""
        sent = next(iter(session.in_doubt.values()))
        return min(sent.sequence, kept.sequence) <= self._alone_until

    def _outlet(self, session: _Session, target: str) -> _Outlet | None:
        """The link for that address; None while another one is still to be rid of what it was given."""
        outlet = session.outlets.get(target)
        if outlet is not None and outlet is session.current:
            return outlet
        if session.is_sending:
            session.wire.send()
            if session.is_sending:
                return None
        if outlet is None:
            if len(session.outlets) >= LINKS and not self._make_room(session):
                return None
            outlet = session.outlets[target] = self._attach(session, target)
        session.outlets.move_to_end(target)
        session.current = outlet
        return outlet

    def _attach(self, session: _Session, target: str) -> _Outlet:
        session.opened += 1
        name = str(session.opened)
        link = session.wire.session.sender(name)
        link.source.address = self.name
        link.target.address = target
        link.target.type = Terminus.TARGET
        link.snd_settle_mode = Link.SND_UNSETTLED
        link.open()
        return _Outlet(link, f"{session.name}/{name}", target, parse(target))

    def _make_room(self, session: _Session) -> bool:
        """Close the link that was not used for longest, if all is known of what went by it."""
        target, outlet = next(iter(session.outlets.items()))
        if outlet.in_doubt:
            return False
        del session.outlets[target]
        outlet.link.close()
        return True

    def _wait_for_input(self, timeout: float) -> None:
        self.failover.wait(timeout, self._pulse)
        self._heard_at = time.monotonic()
        self._note_settled()

    # -- what the broker says ------------------------------------------------------------------------------

    def _serve(self, kind: EventType, what: Any) -> bool:
        if kind is Event.DELIVERY:
            return self._outcome(what)
        if kind is Event.LINK_FLOW:
            if self._waiting:
                self._send_waiting()
            return True
        if kind is Event.LINK_REMOTE_OPEN:
            return False
        if what.state & Endpoint.LOCAL_CLOSED:
            what.free()
            return False
        return self._link_closed(what)

    def _outcome(self, delivery: Delivery) -> bool:
        session = self._session
        if not delivery.settled or session is None:
            return False
        number = int(delivery.tag)
        kept = session.in_doubt.get(number)
        outcome = _OUTCOMES.get(delivery.remote_state, "nacked")
        why = delivery.remote.condition if outcome == "nacked" else None
        delivery.settle()
        if kept is None:
            return False
        self._settled.add((kept.session, outcome), kept.tag)
        if outcome == "confirmed":
            self.failover.serving()
        elif outcome == "returned":
            if self._on_return is not None:
                self._news.append(partial(self._on_return, kept.sequence))
        elif self._on_nack is not None:
            name, text = ("", "") if why is None else (str(why.name), why.description or "")
            text = f"publishing to {kept.target!r}: {text or 'no reason given'}"
            self._news.append(partial(self._on_nack, kept.sequence, name, text))
        counted = getattr(self.counts, outcome) + 1
        del session.in_doubt[number]  # last: what an interrupt leaves half done is sent again, not forgotten
        setattr(self.counts, outcome, counted)
        outlet = session.outlets.get(kept.target)
        if outlet is not None:
            outlet.in_doubt -= 1
        return True

    # -- what is refused -----------------------------------------------------------------------------------

    def _link_closed(self, link: Any) -> bool:
        """The broker has closed it. Attached or not: an address that is not there, or not for us, is answered
        by an attach without a target, and then this."""
        session = self._session
        outlet = None if session is None else session.outlets.get(link.target.address)
        if session is None or outlet is None or outlet.link != link:
            return False
        del session.outlets[outlet.target]
        condition, text = reason(link.remote_condition)
        if not outlet.last_tag:
            refused = [kept for kept in self._waiting if kept.target == outlet.target]
            self._note_unsent(outlet.session, outlet.address, refused)
            self._give_up(refused, condition, text)
        else:
            self._sort_out(session, condition, text, outlet)
        link.close()
        link.free()
        if session.current is outlet:
            session.current = None
        session.wire.send()
        return True

    def _give_up_too_large(self, session: _Session, address: Address, most: int) -> None:
        """The next one that waits is larger than the broker takes: sent, it would cost the link."""
        kept = self._waiting[0]
        session.opened += 1
        self._note_unsent(f"{session.name}/{session.opened}", address, [kept])
        what = f"a message of {len(kept.payload)} octets, more than the {most} that the broker takes"
        self._give_up([kept], MESSAGE_SIZE, what)

    def _sort_out(self, session: _Session, condition: str, text: str, outlet: _Outlet | None = None) -> None:
        """The broker has closed a link, or (None) all of them, and given no outcome of what was in doubt
        there. That may be at any of its brokers' queues, or be the reason: it is sent again, one by one, and
        what costs a link while it is alone is given up."""
        lost = {n: k for n, k in session.in_doubt.items() if outlet is None or k.session == outlet.session}
        if not lost:
            return
        rest = {number: kept for number, kept in session.in_doubt.items() if number not in lost}
        again = list(lost.values())
        if len(again) == 1 and again[0].alone:
            self._settled.add((again[0].session, "nacked"), again[0].tag)
            self._give_up(again, condition, text)
            return
        self._alone_until = max(self._alone_until, *[kept.sequence for kept in again])
        if outlet is not None:
            self._waiting, session.in_doubt = deque([*again, *self._waiting]), rest  # at once, as in `_lose`
            self.counts.resent += len(again)

    def _lose(self) -> None:
        session = self._session
        if session is not None and (ended := session.wire.ended) is not None:
            session.wire.ended = None
            self._sort_out(session, str(ended.name), ended.description or "no reason given")
        super()._lose()

    def _give_up(self, refused: Sequence[_Kept], condition: str, why: str) -> None:
        """All of them for one address."""
        session = self._session
        if not refused or session is None:
            return
        sequences = {kept.sequence for kept in refused}
        text = f"publishing to {refused[0].target!r}: {why}"
        news, errors = deque(self._news), deque(self._errors)
        if self._on_nack is not None:
            news.extend(partial(self._on_nack, kept.sequence, condition, text) for kept in refused)
        else:
            errors.append(Refused(condition, text, tuple(sorted(sequences))))
        waiting = deque(kept for kept in self._waiting if kept.sequence not in sequences)
        in_doubt = {n: kept for n, kept in session.in_doubt.items() if kept.sequence not in sequences}
        nacked = self.counts.nacked + len(refused)
        # At once, as in `_lose`: each is told and counted, once.
        self._waiting, session.in_doubt, self._news, self._errors, self.counts.nacked = (
            waiting, in_doubt, news, errors, nacked,
        )  # fmt: skip

    def _note_unsent(self, session: str, address: Address, refused: Sequence[_Kept]) -> None:
        """In the ledger they are the only ones of a session of their own, which no broker counts."""
        exchange, key, _ = address
        for tag, kept in enumerate(refused, start=1):
            self._ledger.sent(session, exchange, key, tag, kept.sequence)
            self._settled.add((session, "nacked"), tag)

    # -- the ledger ------------------------------------------------------------------------------------------

    def _note_settled(self) -> None:
        """In ranges, though outcomes come one by one."""
        for (session, outcome), first, last in self._settled.drain():
            self._ledger.settled(session, first, last, outcome)

    def _write(self) -> None:
        self._note_settled()
        super()._write()
