"""Sessions and links of one connection: who serves which link, and what waits for gates, in order.

Owner: `Amqp10Connection`, which hands over the engine's events. Implements the broker's `Holder`: outcomes of
what was published, and settlements of what was consumed, go out as the gates allow, as 0-9-1's confirms do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proton import Delivery, Event, EventType, Link, Receiver, Sender, Session, Terminus

from broker.amqp091.channel.held import Held
from broker.amqp10.attaching import incoming, outgoing
from broker.amqp10.outgoing import BURST, Outgoing
from broker.amqp10.reply_codes import condition, fault_of
from broker.errors import AmqpError
from broker.model.queue.requeueing import Delivered, DeliveredBatch
from broker.model.steps import Steps
from broker.model.values import Need
from understudy.shared.amqp10.conditions import LIMIT, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.amqp10.host import Amqp10Host
    from broker.amqp10.incoming import Incoming
    from broker.model.history.records import Entry
    from broker.model.queue.queue import Queue

LINKS_MAX = 1024
"""Of one connection."""
UNSETTLED_MAX = 10_000
"""Deliveries of all its links that may be unsettled."""
_DELIVERY = 1500
"""Octets that each takes, about, in the engine and here."""
_LOOK = 50
_DROP = 60
"""Steps that it takes, about, to ask a link for its session, and to let go of a link."""
SESSION_WINDOW = 2048
"""Transfers that one session may have on their way to us: several links' worth of credit, so that a client
does not wait for a word of ours after each few. They are taken from the engine as they come."""
_SESSION = 4000
_LINK = 2700
"""Octets that each takes, about, in the engine and here."""


class _TickEnd:
    """What is to be done after a tick's deliveries, whatever waits for gates."""

    __slots__ = ("connection", "held")

    def __init__(self, connection: Amqp10Host) -> None:
        self.connection = connection
        self.held = Held(0)


class Links:
    """`held`: what waits for gates. `gathering`: the link whose messages are not handed over yet."""

    __slots__ = (
        "_credited",
        "_need",
        "_served",
        "_sessions",
        "_tick_end",
        "_to_settle",
        "_uncounted",
        "connection",
        "gathering",
        "held",
        "starving",
        "turns",
        "unsettled",
    )

    def __init__(self, connection: Amqp10Host) -> None:
        self.connection = connection
        self.held = Held(0)
        self._tick_end = _TickEnd(connection)
        self.gathering: Incoming | None = None
        self.starving: dict[Outgoing, None] = {}
        """Links that the client's session window has stopped, or what it has not settled: to be looked at
        when it has said something."""
        self.turns: dict[Outgoing, None] = {}
        """Links that go on with sending in the next tick, in that order."""
        self.unsettled = 0
        """Deliveries that neither end has settled for good."""
        self._served: dict[Link, Incoming | Outgoing] = {}
        self._sessions: dict[Session, int] = {}
        """And the octets that links which have gone left unsent in each: the engine counts them for ever."""
        self._uncounted: dict[Session, None] = {}
        """Sessions in which such links have gone, and how much they left is not known yet."""
        self._credited: dict[Incoming, None] = {}
        self._to_settle: list[tuple[Outgoing, Delivery]] = []
        self._need = Need.NONE
        """What settling those waits for."""

    def release(self) -> None:
        """The connection is gone; refer to it no longer."""
        del self.connection, self._tick_end

    # -- events

    def event(self, kind: EventType, event: Event) -> None:
        """One of a session, a link or a delivery."""
        context = event.context
        if kind is Event.DELIVERY and isinstance(context, Delivery):
            self._delivery(context, event.link)
        elif isinstance(context, Receiver | Sender):
            self._link(kind, context)
        elif isinstance(context, Session):
            if kind is Event.SESSION_REMOTE_OPEN:
                context.incoming_capacity = SESSION_WINDOW * self.connection.settings.frame_max
                self._sessions[context] = 0
                context.open()
            elif kind is Event.SESSION_REMOTE_CLOSE:
                self.connection.work(self._end_session(context))

    def _link(self, kind: EventType, link: Receiver | Sender) -> None:
        if kind is Event.LINK_FLOW:
            served = self._served.get(link)
            if served is not None:
                served.flow()
        elif kind is Event.LINK_REMOTE_OPEN:
            self._attach(link)
        elif kind in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
            self._detach(link, closed=kind is Event.LINK_REMOTE_CLOSE)

    def _delivery(self, delivery: Delivery, link: Receiver | Sender | None) -> None:
        served = None if link is None else self._served.get(link)
        if served is None:
            if delivery.readable:  # of a link that is being closed
                _forget(delivery)
            return
        served.delivery(delivery)

    def _attach(self, link: Receiver | Sender) -> None:
        self.flush()
        try:
            if len(self._served) >= LINKS_MAX:
                raise Fault(LIMIT, f"more than {LINKS_MAX} links on one connection")
            served = incoming(self, link) if isinstance(link, Receiver) else outgoing(self, link)
            self._served[link] = served
            served.open()
        except AmqpError as error:
            self._refuse(link, fault_of(error))
        except Fault as fault:
            self._refuse(link, fault)

    def _refuse(self, link: Receiver | Sender, fault: Fault) -> None:
        """Answered with an attach that has no target, or no source, and a detach that says why."""
        self._served.pop(link, None)
        mine = link.target if isinstance(link, Receiver) else link.source
        mine.type = Terminus.UNSPECIFIED
        self._log(link, "refused", fault)
        link.open()
        link.condition = condition(fault)
        link.close()

    def _log(self, link: Receiver | Sender, what: str, fault: Fault) -> None:
        """Once a second for each connection and condition: it may attach any number of links."""
        connection = self.connection
        sentence = f"link {link.name[:80]!r} {what} with {fault.condition}: {fault.text}"
        line = f"connection {connection.peer.address}: {sentence}"
        connection.broker.repeats.say((connection.peer.address, what, fault.condition), line, connection.now)

    def fail(self, served: Incoming | Outgoing, fault: Fault) -> None:
        """Close a link that was served."""
        link = served.link
        self._log(link, "closed", fault)
        self._drop(served)
        link.condition = condition(fault)
        link.close()
        self.connection.sent(0)

    def _detach(self, link: Receiver | Sender, *, closed: bool) -> None:
        served = self._served.get(link)
        if served is not None:
            self.flush()
            self._drop(served)
        if closed:
            link.close()
        else:
            link.detach()
        link.free()
        self.connection.pull()  # before the answer to an attach of the same name

    def _end_session(self, session: Session) -> Steps[None]:
        self.flush()
        ending = []
        for link, served in list(self._served.items()):
            if link.session == session:
                ending.append(served)
            yield _LOOK
        self._take_back(ending)
        for served in ending:
            if self.serves(served):
                self._drop(served)
            yield _DROP
        self._sessions.pop(session, None)
        self._uncounted.pop(session, None)
        session.close()
        session.free()
        self.connection.pull()  # or the engine has no channel left for the answers to the next ones

    def _drop(self, served: Incoming | Outgoing) -> None:
        self._served.pop(served.link, None)
        self._credited.pop(served, None)  # type: ignore[arg-type]
        self.starving.pop(served, None)  # type: ignore[arg-type]
        self.turns.pop(served, None)  # type: ignore[arg-type]
        if self.gathering is served:
            self.gathering = None
        if isinstance(served.link, Sender) and served.link.queued:
            self._uncounted[served.link.session] = None
        served.end()

    def _take_back(self, links: list[Incoming | Outgoing]) -> None:
        """What they have not settled goes back to each queue at once: messages of one lie among others'."""
        back: dict[Queue, tuple[list[Entry], list[Entry]]] = {}  # not sent, and sent
        for served in links:
            if isinstance(served, Outgoing):
                unsent, sent = back.setdefault(served.queue, ([], []))
                entries, others = served.take_back()
                sent += entries
                unsent += others
        requeueing = self.connection.vhost.removals.requeueing
        for failed in (False, True):
            held: list[Delivered] = [
                DeliveredBatch(queue, of[failed]) for queue, of in back.items() if of[failed]
            ]
            if held:
                requeueing.give_back(held, [batch.queue for batch in held], failed=failed)
        requeueing.work()

    @property
    def octets(self) -> int:
        return _SESSION * len(self._sessions) + _LINK * len(self._served) + _DELIVERY * self.unsettled

    @property
    def unsettled_room(self) -> int:
        """Deliveries that the client may have unsettled besides those of now."""
        return UNSETTLED_MAX - self.unsettled

    def serves(self, served: Incoming | Outgoing) -> bool:
        """Is its link still there?"""
        return self._served.get(served.link) is served

    @property
    def piled_up(self) -> int:
        """Octets that the engine keeps, since the client's session windows are shut."""
        return sum([max(0, session.outgoing_bytes - left) for session, left in self._sessions.items()])

    def _count_left(self) -> None:
        """Of a session in which no link waits to send, all that the engine counts was left by others."""
        self.connection.pull()
        waiting = {link.session for link in self._served if isinstance(link, Sender) and link.queued}
        for session in [session for session in self._uncounted if session not in waiting]:
            del self._uncounted[session]
            self._sessions[session] = session.outgoing_bytes

    # -- in order, and when it is safe

    def hold(self, need: Need, after: Callable[[], None]) -> None:
        """`after` once all that has happened so far is as safe as `need` says, and all before it is done."""
        if need is Need.NONE and not self.held:
            after()
            return
        later = self.connection.later
        self.held.reply(b"", need, self.connection.vhost.history.position, lambda: later(after))
        self.connection.broker.holding[self] = None

    def settle(self, served: Outgoing, delivery: Delivery, need: Need) -> None:
        """Tell the client that what it did with a delivery is done, once that is safe."""
        self._to_settle.append((served, delivery))
        self._need = max(self._need, need)

    def settle_later(self, served: Outgoing, delivery: Delivery) -> None:
        """The same in the middle of a tick, once what has happened by then is durable."""
        self.hold(Need.DURABLE, lambda: self._settled([(served, delivery)]))

    def _settle_now(self) -> None:
        settling, self._to_settle = self._to_settle, []
        need, self._need = self._need, Need.NONE
        if need is not Need.NONE:
            self.connection.vhost.history.gather()
        self.hold(need, lambda: self._settled(settling))

    def _settled(self, settling: list[tuple[Outgoing, Delivery]]) -> None:
        for served, delivery in settling:
            if self.serves(served):
                served.settle(delivery)
        self._feed_starving()
        self.connection.sent(0)

    def at_end_of_tick(self, what: Callable[[], None]) -> None:
        """After this tick's deliveries."""
        later, end = self.connection.later, self._tick_end
        end.held.reply(b"", Need.NONE, self.connection.vhost.history.position, lambda: later(what))
        self.connection.broker.holding[end] = None

    # -- between inputs

    def gather(self, link: Incoming) -> None:
        """`link` has messages to hand over; those of another are handed over first: the order is the
        client's."""
        if self.gathering is not link:
            self.flush()
            self.gathering = link

    def credit(self, link: Incoming) -> None:
        """It may need more credit once what it has brought is handed over."""
        self._credited[link] = None

    def flush(self) -> None:
        """Hand over what was gathered; give and take what follows from that."""
        gathering, self.gathering = self.gathering, None
        if gathering is not None:
            gathering.flush()
        if self._to_settle:
            self._settle_now()
        if self._credited:
            credited, self._credited = self._credited, {}
            for link in credited:
                link.top_up()

    def heard(self) -> None:
        """All that the client has said for now is served."""
        self.flush()
        if self._uncounted:
            self._count_left()
        self._feed_starving()

    def _feed_starving(self) -> None:
        if self.starving and self.unsettled_room > 0 and self.piled_up < self.connection.settings.unsent_max:
            starving, self.starving = self.starving, {}
            for hungry in starving:
                hungry.resume()

    @property
    def burst(self) -> int:
        """Messages that each link may get from its queue in one tick. However many links there are, not much
        waits here to be sent."""
        return max(1, min(BURST, 16 * BURST // len(self._served)))

    def wait_turn(self, link: Outgoing) -> None:
        """The link, or all connections together, were sent as much as one tick allows."""
        self.turns[link] = None
        self.connection.broker.resuming[self.connection] = None

    def take_turns(self) -> None:
        """Another tick: whose turn does not come goes first in the next."""
        broker = self.connection.broker
        waiting = len(self.turns)
        while waiting and self.turns and broker.sends > 0:
            link = next(iter(self.turns))
            del self.turns[link]
            link.resume()
            waiting -= 1
        if self.turns:
            broker.resuming[self.connection] = None

    def resume(self) -> None:
        """There is room again for what is delivered."""
        for served in list(self._served.values()):
            served.resume()

    def end(self) -> None:
        """Let go of everything; what is still held is never said. Idempotent."""
        self.gathering, self._to_settle = None, []
        self.held = Held(0)
        self._sessions, self._uncounted = {}, {}
        self._tick_end.held = Held(0)
        self.connection.broker.holding.pop(self, None)
        self.connection.broker.holding.pop(self._tick_end, None)
        served = list(self._served.values())
        self._take_back(served)
        for link in served:
            self._drop(link)
        for link in served:
            if isinstance(link, Outgoing):
                link.release()


def _forget(delivery: Delivery) -> None:
    """Take what has come of it, or the engine keeps it. It is rejected once it is whole, for the reason that
    its link is: Proton's `BlockingSender` takes what is settled without an outcome for sent."""
    link = delivery.link
    if not delivery.aborted:
        link.recv(delivery.pending)
        if delivery.partial:
            return
    link.advance()
    if link.condition is not None:
        delivery.local.condition = link.condition
    delivery.update(Delivery.REJECTED)
    delivery.settle()
