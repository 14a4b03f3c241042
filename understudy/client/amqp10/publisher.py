"""An AMQP 1.0 publisher that loses no message that it accepted, as long as its own process lives.

It keeps each message until the broker sends the outcome. After a lost connection it connects to the broker
that now serves, and resends all messages in doubt, in order, before any new message. Each queue thus keeps
its order, and receives each message at least once; with `exactly_once`, once.

Every connection has a name, `NAME.LIFE.K`, which the property `producer` of its open tells the broker. Each
target address has a link of its own, and each link is a session in the ledgers, `NAME.LIFE.K/LINK`. Within a
session a number identifies a message: the broker and this ledger both count from 1, in order of arrival. With
`exactly_once` all messages go over one link, without a target, and each names its address in `to`: the link's
properties tell the number of its first message. One thread only: like Proton, this class is not thread safe.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from proton import Delivery, Endpoint, Event, EventType, Link, Terminus, symbol

from understudy.client.amqp10.failover import Failover
from understudy.client.amqp10.messages import encoded
from understudy.client.amqp10.wire import Lost, Refused, Wire, reason
from understudy.client.brokers import Addresses
from understudy.client.numbering import NotExactlyOnce
from understudy.client.publishing import FIRST_EPOCH, WINDOW, PublisherBase, told_of
from understudy.ledger.ranges import RangeGatherer
from understudy.ledger.writer import HEARTBEAT as LEDGER_HEARTBEAT
from understudy.shared.amqp10.addresses import parse
from understudy.shared.amqp10.conditions import LIMIT, MESSAGE_SIZE, UNAUTHORIZED, Fault

LINKS = 200
"""Most links that stay open, one for each address. A new address closes the least recently used link."""
HEAR_EVERY = 0.05
"""Longest time, in seconds, that calls of `publish` only send; then one of them also reads outcomes."""
_OUTCOMES: dict[int, str] = {
    Delivery.ACCEPTED: "confirmed",
    Delivery.RELEASED: "returned",
    Delivery.MODIFIED: "returned",
}
_parsed = lru_cache(maxsize=512)(parse)


@dataclass(slots=True)
class _Kept:
    """One message in doubt. `tag`: its number on the link that carried it. `alone`: no other message was in
    doubt while it was sent, nor since."""

    sequence: int
    target: str
    payload: bytes
    session: str = ""
    tag: int = 0
    alone: bool = False


@dataclass(slots=True)
class _Outlet:
    """A link. `session`: its name in the ledgers. `target`: empty if each message names its own. `first`:
    number of the first message, which the broker knows; 0 if messages have no numbers."""

    link: Any
    session: str
    target: str
    first: int = 0
    last_tag: int = 0
    in_doubt: int = 0


@dataclass(slots=True)
class _Session:
    """One connection, with its links."""

    name: str
    wire: Wire
    outlets: OrderedDict[str, _Outlet] = field(default_factory=OrderedDict)
    """Links by address; the most recently used is last."""
    opened: int = 0
    """Number of links made so far."""
    current: _Outlet | None = None
    """The link that carried the last message."""
    sent: int = 0
    """Number of messages sent so far."""
    in_doubt: dict[int, _Kept] = field(default_factory=dict)
    """Messages by their number among those sent, which is unique: a late outcome of a message that was resent
    on another link thus matches nothing."""

    @property
    def is_sending(self) -> bool:
        """Whether the current link holds output for which the broker's window has no room. Other links never
        do.

        The engine's own count for the session is no use: it keeps counting the unsent output of closed links.
        """
        return self.current is not None and self.current.link.queued > 0


class Publisher(PublisherBase[_Kept, _Session]):
    """Publishes over a list of brokers, and receives the outcome of each message.

    `window`: most messages in doubt; `publish` waits while the window is full. `exactly_once`: messages have
    numbers, so that no queue takes one twice, also after a restart of the application; see `resume`. It needs
    `ledger_dir`. `on_return(sequence)`: no
    queue matched the message (`released`). `on_nack(sequence, condition, text)`: the message was refused by a
    queue (`rejected`), for its address, or for its size; `text` names the address.

    The methods of the publisher call both callbacks, after the outcome is in the ledger. An exception of a
    callback leaves that method, and has no other effect. Without `on_nack`, the publisher only counts
    messages that a queue refused (`counts.nacked`), and raises Refused, once, for the other refusals. A
    refused message is not resent, and does not block others.

    AMQP 1.0 cannot declare anything: exchanges and queues must exist. The publisher connects when first
    needed. While idle, call `poll` every few seconds. Otherwise the broker and the watcher of the ledger miss
    heartbeats.
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
        exactly_once: bool = False,
        on_return: Callable[[int], None] | None = None,
        on_nack: Callable[[int, str, str], None] | None = None,
        given_up: Callable[[], bool] = lambda: False,
        ledger_heartbeat: float = LEDGER_HEARTBEAT,
        **connection: Any,
    ) -> None:
        """`connection`: user, password, virtual_host, retry, connect_timeout, heartbeat and tls, as for
        `Failover`.

        `given_up` is called while no broker serves. If it returns True, ConnectFailed is raised.
        `ledger_heartbeat`: longest silence of the ledger, in seconds, while a method runs.
        """
        super().__init__(
            Failover(addresses, **connection), name, ledger_dir,
            window=window, given_up=given_up, ledger_heartbeat=ledger_heartbeat, exactly_once=exactly_once,
        )  # fmt: skip
        self._on_return = on_return
        self._on_nack = on_nack
        self._settled: RangeGatherer[tuple[str, str]] = RangeGatherer()
        """Numbers by session and outcome that are not in the ledger yet."""
        self._alone_until = 0
        """Messages up to this sequence are sent one by one: the broker closed a link or the connection
        because of one of them, and did not say which one."""
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
        """Accept one message. Returns its number, from 1: in this publisher's life, or with `exactly_once`
        in all of them.

        Waits only while the window is full, no broker serves, or the broker accepts no more: it gives no
        credit, or does not read. A new address costs a round trip.

        `address`: `/queues/NAME`, `/exchanges/NAME/KEY`, or a queue's plain name. `ttl` in seconds. `headers`
        are AMQP's application properties. `properties` are AMQP's properties: content_type, message_id, and
        so on, with times in seconds since 1970.

        Raises ValueError and TypeError for a message that cannot be sent. Refused (see the class) names in
        `sequences` the messages that are dropped, possibly earlier ones. After any other exception the
        publisher keeps this message: do not publish it again.
        """
        self._refuse_if_closed()
        self._known(address)
        if properties and properties.get("user_id") not in (None, self.failover.user.encode()):
            raise ValueError("user_id is not the user that publishes")
        if self._numbers is not None and properties.setdefault("to", address) != address:
            raise ValueError("with exactly_once, `to` is the address")
        payload = encoded(
            body, persistent=persistent, priority=priority, ttl=ttl, headers=headers, annotations=annotations,
            properties=properties,
        )  # fmt: skip
        self._wait_for_room()
        kept = _Kept(0, address, payload)
        # After the wait, since a callback may have published. Python checks for no signal before the append.
        sequence = kept.sequence = self._last = self._last + 1
        self.counts.published += 1
        self._waiting.append(kept)
        self._ready(None)
        while self._is_held_up():
            self._wait(1.0)
        if time.monotonic() - self._heard_at >= HEAR_EVERY:
            self._wait(0)
        self._tell()
        return sequence

    def _known(self, address: str) -> None:
        """Check an address. Raises ValueError for an invalid one, which every broker would refuse."""
        if self._session is not None and address in self._session.outlets:
            return
        try:
            _parsed(address)
        except Fault as fault:
            raise ValueError(fault.text) from None

    # -- connection ----------------------------------------------------------------------------------------

    def _is_held_up(self) -> bool:
        """Whether any message or octet is not sent yet."""
        session = self._session
        return bool(self._waiting) or session is None or session.wire.held_up or session.is_sending

    def _begin(self, deadline: float | None) -> _Session:
        if self._is_new():
            self._register(deadline)
        name = self._connection_name()
        wire = self.failover.connect(
            {"producer": name, "connection_name": self.name}, self._serve, deadline=deadline,
            given_up=self._is_given_up,
        )  # fmt: skip
        if self._numbers is not None:
            self._check_broker(wire.server_properties)
        return _Session(name, wire)

    def _register(self, deadline: float | None) -> None:
        """Register as new, and make the file. A broker that knows the publisher refuses that."""
        wire = self.failover.connect(
            {"connection_name": self.name}, lambda _kind, _what: True, deadline=deadline,
            given_up=self._is_given_up,
        )  # fmt: skip
        self._check_broker(wire.server_properties)
        link = self._open_link(wire, "registration", "", told_of(self.name, FIRST_EPOCH, 1))
        until = time.monotonic() + 10.0
        while not (link.credit > 0 or link.state & Endpoint.REMOTE_CLOSED):
            if time.monotonic() > until:
                raise Lost("the broker does not answer an attach")
            self.failover.wait(1.0, self._pulse)
        if link.state & Endpoint.REMOTE_CLOSED:
            raise self._refused_link(link)
        self.failover.close()
        assert self._numbers is not None
        self._numbers.create()

    def _refused_link(self, link: Any) -> NotExactlyOnce:
        condition, text = reason(link.remote_condition)
        return self._refusal_of_numbers(condition == UNAUTHORIZED, f"{condition}: {text}")

    def _send_waiting(self) -> None:
        """Send in order: a message without credit blocks all messages behind it."""
        session = self._session
        assert session is not None
        waiting = self._waiting
        while waiting:
            kept = waiting[0]
            if session.in_doubt and self._is_one_by_one(session, kept):
                break
            outlet = self._outlet(session, kept.target if self._numbers is None else "")
            if outlet is None:
                break
            if outlet.first and kept.sequence != outlet.first + outlet.last_tag:
                if outlet.in_doubt:
                    break
                self._make_room(session)
                continue  # on a new link, which says where the numbers go on
            if outlet.link.credit <= 0:
                break
            link = outlet.link
            if 0 < link.remote_max_message_size < len(kept.payload):
                self._give_up_too_large(session, link.remote_max_message_size)
                waiting = self._waiting
                continue
            tag = outlet.last_tag = outlet.last_tag + 1
            number = session.sent = session.sent + 1
            outlet.in_doubt += 1
            kept.session, kept.tag, kept.alone = outlet.session, tag, kept.sequence <= self._alone_until
            session.in_doubt[number] = kept  # before it leaves `waiting`: an interrupt loses nothing
            waiting.popleft()
            exchange, key, _ = _parsed(kept.target)
            self._ledger.sent(outlet.session, exchange, key, tag, kept.sequence)
            link.delivery(str(number))
            link.stream(kept.payload)
            link.advance()
        session.wire.send()

    def _is_one_by_one(self, session: _Session, kept: _Kept) -> bool:
        """Whether `kept` must wait until no other message is in doubt."""
        sent = next(iter(session.in_doubt.values()))
        return min(sent.sequence, kept.sequence) <= self._alone_until

    def _outlet(self, session: _Session, target: str) -> _Outlet | None:
        """The link for `target`; None while the current link still holds unsent output."""
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
        claim = self._claim()
        link = self._open_link(session.wire, name, target, claim)
        return _Outlet(link, f"{session.name}/{name}", target, claim.get("producer_next", 0))

    def _open_link(self, wire: Wire, name: str, target: str, claim: Mapping[str, Any]) -> Any:
        link = wire.session.sender(name)
        link.source.address = self.name
        if target:
            link.target.address = target
        link.target.type = Terminus.TARGET
        link.snd_settle_mode = Link.SND_UNSETTLED
        if claim:
            link.properties = {symbol(key): value for key, value in claim.items()}
        link.open()
        return link

    def _make_room(self, session: _Session) -> bool:
        """Close the least recently used link, unless one of its messages is in doubt."""
        target, outlet = next(iter(session.outlets.items()))
        if outlet.in_doubt:
            return False
        del session.outlets[target]
        outlet.link.close()
        if session.current is outlet:
            session.current = None
        return True

    def _wait_for_input(self, timeout: float) -> None:
        self.failover.wait(timeout, self._pulse)
        self._heard_at = time.monotonic()
        self._note_settled()

    # -- input from the broker -----------------------------------------------------------------------------

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
                self._news.append((kept.sequence, partial(self._on_return, kept.sequence)))
        else:
            self._report_rejected(kept, why)
        counted = getattr(self.counts, outcome) + 1
        del session.in_doubt[number]  # last: after an interrupt the message is resent, not forgotten
        setattr(self.counts, outcome, counted)
        outlet = session.outlets.get(kept.target if self._numbers is None else "")
        if outlet is not None:
            outlet.in_doubt -= 1
        return True

    def _report_rejected(self, kept: _Kept, why: Any) -> None:
        """Without `on_nack`, what a queue refuses is only counted, and what is refused for its address raises
        Refused. That has an outcome on links without a target only; others are closed for it."""
        name, text = ("", "") if why is None else (str(why.name), why.description or "")
        text = f"publishing to {kept.target!r}: {text or 'no reason given'}"
        if self._on_nack is not None:
            self._news.append((kept.sequence, partial(self._on_nack, kept.sequence, name, text)))
        elif self._numbers is not None and name != LIMIT:
            self._errors.append((kept.sequence, Refused(name, text, (kept.sequence,))))

    # -- what is refused -----------------------------------------------------------------------------------

    def _link_closed(self, link: Any) -> bool:
        """The broker closed `link`, attached or not.

        The broker answers a missing or forbidden address with an attach without a target, followed by this
        close."""
        session = self._session
        outlet = None if session is None else session.outlets.get(link.target.address or "")
        if session is None or outlet is None or outlet.link != link:
            return False
        del session.outlets[outlet.target]
        condition, text = reason(link.remote_condition)
        if not outlet.last_tag and outlet.first:
            raise self._refused_link(link)
        if not outlet.last_tag:
            refused = [kept for kept in self._waiting if kept.target == outlet.target]
            self._note_unsent(outlet.session, refused)
            self._give_up(refused, condition, text)
        else:
            self._sort_out(session, condition, text, outlet)
        link.close()
        link.free()
        if session.current is outlet:
            session.current = None
        session.wire.send()
        return True

    def _give_up_too_large(self, session: _Session, most: int) -> None:
        """Drop the next waiting message: it is larger than the broker accepts, and would end the link."""
        kept = self._waiting[0]
        session.opened += 1
        self._note_unsent(f"{session.name}/{session.opened}", [kept])
        what = f"a message of {len(kept.payload)} octets, and the broker accepts at most {most}"
        self._give_up([kept], MESSAGE_SIZE, what)

    def _sort_out(self, session: _Session, condition: str, text: str, outlet: _Outlet | None = None) -> None:
        """The broker closed one link, or (None) all of them, without an outcome for the messages in doubt
        there.

        Each of these messages may already be in a queue, or may be the cause. The publisher resends them one
        by one, and drops a message that ends a link while it is alone."""
        lost = {n: k for n, k in session.in_doubt.items() if outlet is None or k.session == outlet.session}
        if not lost:
            return
        rest = {number: kept for number, kept in session.in_doubt.items() if number not in lost}
        again = list(lost.values())
        if len(again) == 1 and again[0].alone and not self._may_be_fenced(condition):
            self._settled.add((again[0].session, "nacked"), again[0].tag)
            self._give_up(again, condition, text)
            return
        self._alone_until = max(self._alone_until, *[kept.sequence for kept in again])
        if outlet is not None:
            self._waiting, session.in_doubt = deque([*again, *self._waiting]), rest  # at once, as in `_lose`
            self.counts.resent += len(again)

    def _may_be_fenced(self, condition: str) -> bool:
        """Whether the broker may refuse this process. It rejects messages of a link without a target, and
        does not close the link for them. The next link shows whether the process is refused."""
        return self._numbers is not None and condition == UNAUTHORIZED

    def _lose(self) -> None:
        session = self._session
        if session is not None and (ended := session.wire.ended) is not None:
            session.wire.ended = None
            self._sort_out(session, str(ended.name), ended.description or "no reason given")
        super()._lose()

    def _give_up(self, refused: Sequence[_Kept], condition: str, why: str) -> None:
        """Drop refused messages, all for one address, and report them."""
        session = self._session
        if not refused or session is None:
            return
        sequences = {kept.sequence for kept in refused}
        text = f"publishing to {refused[0].target!r}: {why}"
        news, errors = deque(self._news), deque(self._errors)
        if self._on_nack is not None:
            on_nack = self._on_nack
            news.extend((k.sequence, partial(on_nack, k.sequence, condition, text)) for k in refused)
        else:
            errors.append((min(sequences), Refused(condition, text, tuple(sorted(sequences)))))
        waiting = deque(kept for kept in self._waiting if kept.sequence not in sequences)
        in_doubt = {n: kept for n, kept in session.in_doubt.items() if kept.sequence not in sequences}
        nacked = self.counts.nacked + len(refused)
        # One statement, as in `_lose`: each message is reported and counted once.
        self._waiting, session.in_doubt, self._news, self._errors, self.counts.nacked = (
            waiting, in_doubt, news, errors, nacked,
        )  # fmt: skip

    def _note_unsent(self, session: str, refused: Sequence[_Kept]) -> None:
        """Record unsent messages in a session of their own, unknown to any broker."""
        for tag, kept in enumerate(refused, start=1):
            exchange, key, _ = _parsed(kept.target)
            self._ledger.sent(session, exchange, key, tag, kept.sequence)
            self._settled.add((session, "nacked"), tag)

    # -- the ledger ------------------------------------------------------------------------------------------

    def _note_settled(self) -> None:
        """Write outcomes to the ledger in ranges, although they arrive one by one."""
        for (session, outcome), first, last in self._settled.drain():
            self._ledger.settled(session, first, last, outcome)

    def _write(self) -> None:
        self._note_settled()
        super()._write()
