"""The workload's clients: one who declares, publishers, consumers, and the one who drains at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation.clients import wire
from tests.simulation.clients.actors import Actor, ClientFault, Surroundings
from tests.simulation.clients.session import Arguments, Session
from tests.simulation.clients.topology import WATCH, Topology, draw_target
from tests.simulation.harness.journal import Message, Settled, Subscription, Thing, Turn
from tests.simulation.harness.plan import ConsumerPlan, PublisherPlan

ALL_EVENTS = ("#",)
ALL_BUT_SWITCHOVERS = tuple(
    f"{event}.*" for event in ("promoted", "joining", "in-sync", "lost", "excluded", "queue-reset")
)
"""Where somebody hears of it, a switchover begins with a message: its pair is never idle."""


class Declarer(Actor):
    """Declares the topology, over and over until each answer has come, and goes."""

    def __init__(self, around: Surroundings, topology: Topology, done: Callable[[], None]) -> None:
        super().__init__(around, "declarer")
        self.topology = topology
        self.heard = self.rng.choice((ALL_EVENTS, ALL_BUT_SWITCHOVERS))
        self.done = done

    def begin(self, session: Session) -> None:
        calls: list[tuple[str, dict[str, Any]]] = []
        for queue in self.topology.queues:
            args = {"x-single-active-consumer": True} if queue.single_active else {}
            calls.append(("queue.declare", {"queue": queue.name, "durable": queue.durable, "args": args}))
        for exchange in self.topology.exchanges:
            if not exchange.builtin:
                more = {"alternate-exchange": exchange.alternate} if exchange.alternate else {}
                shape = {"exchange": exchange.name, "type": exchange.type, "durable": exchange.durable}
                shape |= {"args": more, "internal": exchange.internal}
                calls.append(("exchange.declare", shape))
        for binding in self.topology.bindings:
            ends = {"source": binding.source, "destination": binding.target, "key": binding.key}
            if not binding.to_exchange:
                ends = {"exchange": binding.source, "queue": binding.target, "key": binding.key}
            calls.append(("exchange.bind" if binding.to_exchange else "queue.bind", ends))
        calls.append(("queue.declare", {"queue": WATCH, "durable": True}))
        for key in self.heard:
            calls.append(("queue.bind", {"exchange": "amq.failover", "queue": WATCH, "key": key}))
        for n, (name, arguments) in enumerate(calls):
            thing = _thing(name, arguments)
            self.journal.asking([thing], True, session.connection)
            session.call(name, partial(self._answered, thing, n == len(calls) - 1), **arguments)

    def _answered(self, thing: Thing, last: bool, *_: object) -> None:
        self.journal.answered(thing, True, self.topology.lasting(thing))
        if not last:
            return
        self.clock.note("the topology is declared")
        self.stop()
        self.done()


def _thing(method: str, arguments: dict[str, Any]) -> Thing:
    """What a declaration or binding is about."""
    if method == "queue.declare":
        return "queue", arguments["queue"]
    if method == "exchange.declare":
        return "exchange", arguments["exchange"]
    if method == "queue.bind":
        return "binding", arguments["exchange"], arguments["queue"], arguments["key"]
    return "binding", arguments["source"], arguments["destination"], arguments["key"]


class Publisher(Actor):
    """Publishes with confirms in a window; resends what is in doubt before anything new (invariant 21)."""

    def __init__(self, around: Surroundings, plan: PublisherPlan, topology: Topology) -> None:
        super().__init__(around, plan.name, cut_every=plan.cut_every)
        self.topology = topology
        self.window, self.burst, self.interval = plan.window, plan.burst, plan.interval
        self.frame_max, self.heartbeat = plan.frame_max, plan.heartbeat
        self.big, self.persistent, self.mandatory = plan.big, plan.persistent, plan.mandatory
        self.limit = 0
        self.published = 0
        self.granted_from = 0
        """`published` when `limit` was last raised."""
        self.sends = 0
        self.tag = 0
        self.outstanding: dict[int, Message] = {}
        self.in_doubt: list[Message] = []
        self._due = False
        self._selected_session: Session | None = None

    @property
    def finished(self) -> bool:
        return self.finishing and not self.outstanding and not self.in_doubt

    def begin(self, session: Session) -> None:
        session.call("confirm.select", partial(self._selected, session))

    def _selected(self, session: Session, *_: object) -> None:
        self.tag = 0
        self._selected_session = session
        if self.in_doubt:
            self.clock.note(f"{self.name} resends {len(self.in_doubt)} in doubt, from {self.in_doubt[0].key}")
        self._work(session)

    def disconnected(self) -> None:
        self._due = False
        self.in_doubt = list(self.outstanding.values()) + self.in_doubt
        self.outstanding = {}

    def _work(self, session: Session) -> None:
        self._due = False
        if session is not self.session or not session.alive:
            return
        out: list[bytes] = []
        while len(out) < self.burst and len(self.outstanding) < self.window:
            if self.in_doubt:
                message = self.in_doubt.pop(0)
            elif self.finishing or self.published >= self.limit:
                break
            else:
                message = self._fresh()
            self.tag += 1
            self.sends += 1
            self.outstanding[self.tag] = message
            self.journal.publishing(message, self.sends)
            out.append(
                wire.publish(
                    1,
                    message.exchange,
                    message.routing_key,
                    message.body,
                    persistent=message.persistent,
                    frame_max=session.frame_max,
                    mandatory=self.mandatory,
                )
            )
        if out:
            session.send(b"".join(out))
            self._go_on(session)

    def _go_on(self, session: Session) -> None:
        """Publish again a little later; who has nothing to send is woken by a confirm or a grant."""
        if not self._due:
            self._due = True
            self.clock.after(self.interval * (0.5 + self.rng.random()), partial(self._work, session))

    def grant(self, count: int) -> None:
        """Publish `count` more new messages."""
        self.granted_from = self.published
        self.limit = self.published + count
        if self.session is not None and self.session is self._selected_session:
            self._go_on(self.session)

    def _fresh(self) -> Message:
        self.published += 1
        key = f"{self.name}:{self.published}"
        size = self.rng.randrange(9000) if self.rng.random() < self.big else self.rng.randrange(80)
        exchange, routing_key = draw_target(self.topology, self.rng)
        persistent = self.rng.random() < self.persistent
        body = f"<{key}>".encode() + b"." * size
        return Message(key, body, self.name, self.published, exchange, routing_key, persistent)

    def confirmed(self, session: Session, tag: int, multiple: bool, nacked: bool) -> None:
        if session is not self.session:
            return
        if (not multiple and tag not in self.outstanding) or tag > self.tag:
            raise ClientFault(f"{self.name}: confirm of tag {tag}, which is not outstanding")
        tags = [t for t in self.outstanding if t <= tag] if multiple else [tag]
        messages = [self.outstanding.pop(t) for t in tags]
        self._go_on(session)
        if nacked:
            self.in_doubt += messages
            return
        for message in messages:
            self.journal.confirm(message)
        if messages:
            last = messages[-1].key
            self.clock.note(f"{self.name} has {len(messages)} confirmed, up to tag {tag} ({last})")

    def returned(self, session: Session, arguments: Arguments, body: bytes) -> None:
        message = self.journal.messages.get(body[1 : body.find(b">")].decode())
        if message is None or message.body != body:
            raise ClientFault(f"{self.name}: returned a message that it never sent")
        message.returned = True
        if self.topology.route(message.exchange, message.routing_key):
            raise ClientFault(f"{self.name}: {message.key} was returned, but has a route")


class Consumer(Actor):
    """Subscribes to one queue; acks late, singly or with multiple; rejects some, most with requeue."""

    def __init__(self, around: Surroundings, plan: ConsumerPlan) -> None:
        super().__init__(around, plan.name, cut_every=plan.cut_every)
        self.queue = plan.queue
        self.prefetch, self.delay, self.multiple = plan.prefetch, plan.delay, plan.multiple
        self.requeues, self.rejects = plan.requeues, plan.rejects
        self.frame_max, self.heartbeat = plan.frame_max, plan.heartbeat
        self.restless = plan.restless
        self.arguments = {"x-confirmed-only": True} if plan.confirmed_only else {}
        self.unacked: dict[int, Message] = {}
        self.subscription: Subscription | None = None
        self._tag = self.name
        self._turns: dict[str, Turn] = {}
        """By tag, of this session: two may be there, if it cancelled one twice."""
        self._subscribed = 0
        self._due = False

    def begin(self, session: Session) -> None:
        self.unacked, self._turns = {}, {}
        self.subscription = Subscription(
            self.name, self.queue, self.clock.now, line=self.line, confirmed_only=bool(self.arguments)
        )
        self._consume(session)

    def _consume(self, session: Session) -> None:
        self._tag = f"{self.name}-{self._subscribed}"
        if self.prefetch or self._subscribed:
            session.call("basic.qos", lambda *_: None, count=self.prefetch)
        self._turns[self._tag] = turn = Turn(self._tag, session, self.clock.now)
        asked = partial(self._consuming, turn)
        session.call("basic.consume", asked, queue=self.queue, tag=self._tag, args=self.arguments)

    def _consuming(self, turn: Turn, *_: object) -> None:
        turn.known_at = self.clock.now
        self.journal.turns.setdefault(self.queue, []).append(turn)

    def _resubscribe(self, session: Session) -> None:
        """Cancel, and consume again with another prefetch. What is unacked stays with the channel."""

        def again(*_: object) -> None:
            if session is self.session and session.alive:
                self._subscribed += 1
                self.prefetch = self.rng.choice((0, 1, 10, 50))
                self._consume(session)

        self.journal.operations += 2
        self._turns[self._tag].over = True
        if self.arguments:
            self.gives_back(session.address[1])  # what could not be confirmed yet
        session.call("basic.cancel", again, tag=self._tag)

    def gives_back(self, port: int) -> None:
        self.journal.disturb(self.queue, port)

    def delivered(self, session: Session, arguments: Arguments, body: bytes) -> None:
        if session is not self.session or self.subscription is None:
            return
        self.subscription.turn = self._turns[arguments["consumer"]]
        message = self.journal.deliver(self.subscription, body, arguments["redelivered"], session.left_at)
        if message is None:
            return
        if arguments["exchange"] != message.exchange or arguments["key"] != message.routing_key:
            raise ClientFault(f"{self.name}: {message.key} came with another exchange or routing key")
        self.unacked[arguments["tag"]] = message
        if not self._due:
            self._due = True
            self.clock.after(self.delay * (0.5 + self.rng.random()), partial(self._settle, session))

    def _settle(self, session: Session) -> None:
        self._due = False
        if session is not self.session or not session.alive or not self.unacked:
            return
        out: list[bytes] = []
        good: list[int] = []
        for tag, message in list(self.unacked.items()):
            draw = self.rng.random() if self.requeues or self.rejects else 1.0
            if draw < self.requeues:
                out.append(wire.method(1, "basic.reject", tag=tag, requeue=True))
                self.gives_back(session.address[1])
                del self.unacked[tag]
            elif draw < self.requeues + self.rejects:
                out.append(wire.method(1, "basic.nack", tag=tag))
                self.journal.settle(self.queue, self.unacked.pop(tag), Settled.REJECTED, self.line)
            else:
                good.append(tag)
                self.journal.settle(self.queue, message, Settled.ACKED, self.line)
        if good and self.multiple:
            out.append(wire.method(1, "basic.ack", tag=good[-1], multiple=True))
        else:
            out += [wire.method(1, "basic.ack", tag=tag) for tag in good]
        self.unacked = {}
        session.send(b"".join(out))
        if self.restless and self.rng.random() < self.restless:
            self._resubscribe(session)

    def disconnected(self) -> None:
        self.subscription = None
        self._due = False


class Drainer(Consumer):
    """The last consumer of a queue, alone on it."""

    def __init__(self, around: Surroundings, queue: str) -> None:
        name = f"drain-{queue}"
        multiple = around.random(f"drainer/{name}").random() < 0.5
        super().__init__(
            around,
            ConsumerPlan(
                name, queue, prefetch=0, delay=0.0, multiple=multiple, requeues=0.0, rejects=0.0,
                frame_max=0, heartbeat=0,
            ),
        )  # fmt: skip
