"""Sessions and links of one connection, and the output that waits for gates, in order.

Owner: `Amqp10Connection`, which passes on the engine's events. Implements the broker's `Holder`: outcomes of
publishes and settlements of deliveries go out as the gates allow, like 0-9-1 confirms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proton import Event, EventType, Link, Receiver, Sender, Session, Terminus

from broker.amqp091.channel_state.held import Held
from broker.amqp10 import deliveries
from broker.amqp10.attaching import incoming, outgoing
from broker.amqp10.deliveries import Delivery, Pointer
from broker.amqp10.head_shape import HeadShapes
from broker.amqp10.outgoing import BURST, Outgoing
from broker.amqp10.reply_codes import condition, fault_of
from broker.errors import AmqpError
from broker.model.queue.requeueing import Delivered, DeliveredBatch
from broker.model.steps import Steps
from broker.model.values import Need
from understudy.shared.amqp10.conditions import LIMIT, NOT_ALLOWED, PRECONDITION, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.amqp10.host import Amqp10Host
    from broker.amqp10.incoming import Incoming
    from broker.model.history.records import Entry
    from broker.model.queue.queue import Queue
    from broker.model.statistics import Counts

LINKS_MAX = 1024
"""Maximum links of one connection."""
UNSETTLED_MAX = 10_000
"""Maximum unsettled deliveries of all its links."""
_DELIVERY = 1500
"""Approximate octets of each in the engine and here."""
_LOOK = 50
_DROP = 60
"""Approximate steps for asking a link for its session, and for dropping a link."""
SESSION_WINDOW = 2048
"""Maximum transfers of one session on their way to us: the credit of several links, so that a client need not
wait for our flow after every few. Transfers are taken from the engine as they come."""
_SESSION = 4000
_LINK = 2700
"""Approximate octets of each in the engine and here."""


class _TickEnd:
    """Work for the end of a tick, after its deliveries, whatever waits for gates."""

    __slots__ = ("connection", "held")

    def __init__(self, connection: Amqp10Host) -> None:
        self.connection = connection
        self.held = Held(0)


class Links:
    """`held`: output that waits for gates. `gathering`: the link whose messages are not published yet.
    `shapes`: those of the messages that the client sends."""

    __slots__ = (
        "_credited",
        "_need",
        "_pointers",
        "_served",
        "_sessions",
        "_tick_end",
        "_to_settle",
        "_uncounted",
        "connection",
        "gathering",
        "held",
        "shapes",
        "starving",
        "turns",
        "unsettled",
    )
    __deletable__ = ("_tick_end", "connection")

    def __init__(self, connection: Amqp10Host) -> None:
        self.connection = connection
        self.held = Held(0)
        self._tick_end = _TickEnd(connection)
        self.gathering: Incoming | None = None
        self.shapes = HeadShapes()
        self.starving: dict[Outgoing, None] = {}
        """Links stopped by the client's session window or by its unsettled deliveries. They are checked after
        the next input."""
        self.turns: dict[Outgoing, None] = {}
        """Links that continue to send in the next tick, in that order."""
        self.unsettled = 0
        """Deliveries not settled by both ends."""
        self._served: dict[Link, Incoming | Outgoing] = {}
        self._pointers: dict[Pointer, Incoming | Outgoing] = {}
        """The same by the pointers to the links."""
        self._sessions: dict[Session, int] = {}
        """For each session, the octets left unsent by dropped links, which the engine counts forever."""
        self._uncounted: dict[Session, None] = {}
        """Sessions with dropped links whose remaining octets are not known yet."""
        self._credited: dict[Incoming, None] = {}
        self._to_settle: list[tuple[Outgoing, Delivery, int]] = []
        self._need = Need.NONE
        """The need of `_to_settle`."""

    def release(self) -> None:
        """The connection is closed: drop the references to it."""
        del self.connection, self._tick_end

    # -- events

    def event(self, kind: EventType, event: Event) -> None:
        """An event of a session or a link."""
        context = event.context
        if isinstance(context, Receiver | Sender):
            self._link(kind, context)
        elif isinstance(context, Session):
            if kind is Event.SESSION_REMOTE_OPEN:
                self._begin_session(context)
            elif kind is Event.SESSION_REMOTE_CLOSE:
                self.connection.work(self._end_session(context))

    def _begin_session(self, session: Session) -> None:
        connection = self.connection
        session.incoming_capacity = SESSION_WINDOW * connection.settings.frame_max
        session.open()
        try:
            if not connection.is_management:
                connection.broker.admission.check_channel(connection.user)
        except AmqpError as error:
            fault = Fault(LIMIT, error.text)
            line = (
                f"connection {connection.peer.address}: session refused with {fault.condition}: {fault.text}"
            )
            connection.broker.repeats.say((connection.peer.address, fault.condition), line, connection.now)
            session.condition = condition(fault)
            session.close()
        else:
            self._sessions[session] = 0

    def _link(self, kind: EventType, link: Receiver | Sender) -> None:
        if kind is Event.LINK_REMOTE_OPEN:
            self._attach(link)
        elif kind in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
            self._detach(link, closed=kind is Event.LINK_REMOTE_CLOSE)

    def flow(self, link: Pointer) -> None:
        """The credit of a link has changed."""
        served = self._pointers.get(link)
        if served is not None:
            served.flow()

    def delivery(self, delivery: Delivery) -> None:
        """An event of a delivery."""
        served = self._pointers.get(deliveries.link_of(delivery))
        if served is not None:
            served.delivery(delivery)
        elif deliveries.readable(delivery):  # of a link that is being closed
            _forget(delivery)

    def _attach(self, link: Receiver | Sender) -> None:
        self.flush()
        try:
            if link.session not in self._sessions:
                raise Fault(NOT_ALLOWED, "its session was refused")
            if len(self._served) >= LINKS_MAX:
                raise Fault(LIMIT, f"more than {LINKS_MAX} links on one connection")
            served = incoming(self, link) if isinstance(link, Receiver) else outgoing(self, link)
            self._served[link] = self._pointers[deliveries.pointer(link)] = served
            served.open()
        except AmqpError as error:
            self._refuse(link, fault_of(error))
        except Fault as fault:
            self._refuse(link, fault)

    def _refuse(self, link: Receiver | Sender, fault: Fault) -> None:
        """Answer with an attach without target or source, and a detach with the reason."""
        served = self._served.pop(link, None)
        if isinstance(served, Outgoing):
            served.release()
        self._pointers.pop(deliveries.pointer(link), None)
        mine = link.target if isinstance(link, Receiver) else link.source
        mine.type = Terminus.UNSPECIFIED
        self._log(link, "refused", fault)
        link.open()
        link.condition = condition(fault)
        link.close()

    def _log(self, link: Receiver | Sender, what: str, fault: Fault) -> None:
        """Log at most once a second for each connection and condition, because a client may attach any number
        of links."""
        connection = self.connection
        sentence = f"link {link.name[:80]!r} {what} with {fault.condition}: {fault.text}"
        line = f"connection {connection.peer.address}: {sentence}"
        connection.broker.repeats.say((connection.peer.address, what, fault.condition), line, connection.now)

    def fail(self, served: Incoming | Outgoing, fault: Fault) -> None:
        """Close a link because of an error."""
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
        self.connection.pull()  # or the engine has no channel left for the next sessions

    def _drop(self, served: Incoming | Outgoing) -> None:
        self._served.pop(served.link, None)
        self._pointers.pop(deliveries.pointer(served.link), None)
        self._credited.pop(served, None)  # type: ignore[arg-type]
        self.starving.pop(served, None)  # type: ignore[arg-type]
        self.turns.pop(served, None)  # type: ignore[arg-type]
        if self.gathering is served:
            self.gathering = None
        if isinstance(served.link, Sender) and served.link.queued:
            self._uncounted[served.link.session] = None
        served.end()
        if isinstance(served, Outgoing):
            served.release()

    def _take_back(self, links: list[Incoming | Outgoing]) -> None:
        """Requeue the unsettled messages of several links at once for each queue, since they lie among each
        other."""
        back: dict[Queue, tuple[list[Entry], list[Entry]]] = {}  # unsent and sent
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
    def sessions(self) -> int:
        """Open sessions."""
        return len(self._sessions)

    @property
    def consumers(self) -> int:
        """Links that get messages."""
        return sum([isinstance(served, Outgoing) for served in self._served.values()])

    @property
    def delivered(self) -> list[tuple[Queue, Counts]]:
        """What each of them got, and of which queue."""
        links = [served for served in self._served.values() if isinstance(served, Outgoing)]
        return [(link.queue, link.consumer.counts) for link in links]

    @property
    def octets(self) -> int:
        here = _SESSION * len(self._sessions) + _LINK * len(self._served) + _DELIVERY * self.unsettled
        return here + self.shapes.octets

    @property
    def unsettled_room(self) -> int:
        """How many more deliveries the client may have unsettled."""
        return UNSETTLED_MAX - self.unsettled

    def serves(self, served: Incoming | Outgoing) -> bool:
        """Whether its link still exists."""
        return self._served.get(served.link) is served

    @property
    def piled_up(self) -> int:
        """Octets that the engine keeps because the client's session windows are closed."""
        return sum([max(0, session.outgoing_bytes - left) for session, left in self._sessions.items()])

    def _count_left(self) -> None:
        """In a session without waiting links, all octets that the engine counts were left by dropped
        links."""
        self.connection.pull()
        waiting = {link.session for link in self._served if isinstance(link, Sender) and link.queued}
        for session in [session for session in self._uncounted if session not in waiting]:
            del self._uncounted[session]
            self._sessions[session] = session.outgoing_bytes

    # -- ordered output

    def hold(self, need: Need, after: Callable[[], None]) -> None:
        """Call `after` once everything so far is as safe as `need` demands and everything earlier is done."""
        if need is Need.NONE and not self.held:
            after()
            return
        later = self.connection.later
        self.held.reply(b"", need, self.connection.vhost.history.position, lambda: later(after))
        self.connection.broker.holding[self] = None

    def settle(self, served: Outgoing, delivery: Delivery, number: int, need: Need) -> None:
        """Tell the client that the effect of its outcome is complete, once that is safe."""
        self._to_settle.append((served, delivery, number))
        self._need = max(self._need, need)

    def settle_later(self, served: Outgoing, delivery: Delivery, number: int) -> None:
        """Like `settle`, in the middle of a tick, once what has happened so far is durable."""
        self.hold(Need.DURABLE, lambda: self._settled([(served, delivery, number)]))

    def _settle_now(self) -> None:
        settling, self._to_settle = self._to_settle, []
        need, self._need = self._need, Need.NONE
        if need is not Need.NONE:
            self.connection.vhost.history.gather()
        self.hold(need, lambda: self._settled(settling))

    def _settled(self, settling: list[tuple[Outgoing, Delivery, int]]) -> None:
        for served, delivery, number in settling:
            if self.serves(served):
                served.settle(delivery, number)
        self._feed_starving()
        self.connection.sent(0)

    def at_end_of_tick(self, what: Callable[[], None]) -> None:
        """Call `what` after this tick's deliveries."""
        later, end = self.connection.later, self._tick_end
        end.held.reply(b"", Need.NONE, self.connection.vhost.history.position, lambda: later(what))
        self.connection.broker.holding[end] = None

    # -- after input

    def gather(self, link: Incoming) -> None:
        """`link` has messages to publish. Those of another link are published first, to keep the client's
        order."""
        if self.gathering is not link:
            self.flush()
            self.gathering = link

    def credit(self, link: Incoming) -> None:
        """Top up the link's credit after its messages are published."""
        self._credited[link] = None

    def flush(self) -> None:
        """Publish what was gathered; then settle deliveries and give credit."""
        gathering, self.gathering = self.gathering, None
        if gathering is not None:
            gathering.flush()
        if self._to_settle:
            self._settle_now()
        if self._credited:
            credited, self._credited = self._credited, {}
            for link in credited:
                link.top_up()

    def input_served(self) -> None:
        """All input so far is served."""
        self.flush()
        if self._uncounted:
            self._count_left()
        self._feed_starving()

    def _feed_starving(self) -> None:
        if self.starving and self.unsettled_room > 0 and self.piled_up < self.connection.settings.unsent_max:
            starving, self.starving = self.starving, {}
            for link in starving:
                link.resume()

    @property
    def burst(self) -> int:
        """Messages that each link may get from its queue in one tick. It falls with the number of links, so
        that little waits here to be sent."""
        return max(1, min(BURST, 16 * BURST // len(self._served)))

    def wait_turn(self, link: Outgoing) -> None:
        """The link, or all connections together, sent as much as one tick allows."""
        self.turns[link] = None
        self.connection.broker.resuming[self.connection] = None

    def take_turns(self) -> None:
        """A new tick: serve waiting links. Those left over go first in the next tick."""
        broker = self.connection.broker
        waiting = len(self.turns)
        while waiting and self.turns and broker.sends > 0:
            link = next(iter(self.turns))
            del self.turns[link]
            link.resume()
            waiting -= 1
        if self.turns:
            broker.resuming[self.connection] = None

    def check_acks(self, now: float) -> None:
        """Close links whose client has kept a message for too long."""
        for served in list(self._served.values()):
            if isinstance(served, Outgoing) and (late := served.late(now)) is not None:
                text = f"a message was not settled in time. Timeout value used: {late} ms"
                self.fail(served, Fault(PRECONDITION, text))

    def resume(self) -> None:
        """There is room for deliveries again."""
        for served in list(self._served.values()):
            served.resume()

    def end(self) -> None:
        """Release everything. Pending output is never sent. Idempotent."""
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


def _forget(delivery: Delivery) -> None:
    """Discard a delivery of a closing link, or the engine would keep it. It is rejected once complete, for
    the link's own reason: Proton's `BlockingSender` treats a settled delivery without outcome as sent."""
    pointer = deliveries.link_of(delivery)
    if not deliveries.aborted(delivery):
        deliveries.received(pointer, delivery)
        if deliveries.partial(delivery):
            return
    deliveries.advance(pointer)
    deliveries.refuse(delivery, deliveries.link_at(pointer).condition)
    deliveries.settle(delivery)
