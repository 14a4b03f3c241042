"""PlainTaker: an exchange here takes from the exchange of that name at a plain AMQP 0-9-1 broker.

Owner: the adapter, one for each agent. Makes calls on PlainTakerModel and PlainWire. There it has a queue,
which an outage leaves alone, and a fanout exchange in front of it, to which the exchange is bound for all
that is wanted. No client can ask which bindings exist. So the first time, the exchange in front is made anew,
beside the one of before: nothing is missed, and no binding is left over. Each message comes at least once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from broker.model.history.records import Bind
from ha.core.federation.agent_end import ASK_EVERY
from ha.core.federation.plain.agent import NOT_FOUND, PlainAgent
from ha.core.federation.plain.ports import Delivery, PlainTakerModel, PlainWire
from ha.core.federation.ports import Wish

PREFETCH = 1000
"""Messages that are on their way, or not on every disk that counts yet."""
TAG = "federation"
PURPOSE = {"x-internal-purpose": "federation"}
"""How RabbitMQ tells queues and exchanges of its federation from those of users."""
LONGEST_NAME = 255
NO_JOINS = "it has no bindings of exchanges to exchanges, which an agent that takes needs"
GONE = "its queue was deleted there"
SLICE = 500
"""Bindings that one tick asks for."""
DONE = object()
BIND, UNBIND = "exchange.bind", "exchange.unbind"
DECLARE_EXCHANGE, DECLARE_QUEUE = (40, 10), (50, 10)


class PlainTaker(PlainAgent):
    """`queue`: its name there; `limits`: its arguments. `drops`: it ends with the connection; `ends`: nothing
    is wanted but what waits there already."""

    def __init__(
        self, stream: int, exchange: str, model: PlainTakerModel, wire: PlainWire, *, node: str,
        queue: str, limits: dict[str, int], drops: bool, paused: bool, ends: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(stream, exchange, wire, node=node, paused=paused)
        self._model = model
        self._queue = queue
        self._front, self._other_front = f"{queue} A", f"{queue} B"
        self._arguments = {**limits, **PURPOSE}
        self._drops = drops
        self._ends = ends
        self.drained = False
        """It was to end, and nothing is left."""
        self._next_look = 0.0
        self._absent = False
        """There is no such queue there: it is to be declared."""
        self._fresh = drops
        """The queue was just declared: nothing is lost that has no exchange in front."""
        self._built = False
        """The exchange in front has the bindings that `_there` and `_unsure` say."""
        self._known: dict[Wish, Bind] = {}
        """What the broker was told."""
        self._there: dict[Wish, Bind] = {}
        """What it has confirmed of that."""
        self._unsure: list[tuple[Wish, Bind]] = []
        """Asked for, and the answer did not come."""
        self._asking: deque[tuple[str, Wish, Bind] | None] = deque()
        """Of each answer about bindings that is due: what it is about; None: of the other exchange in front.
        """
        self._script: Iterator[None] | None = None
        """What makes bindings, a share in each tick."""
        self._acked = 0
        self.taken = 0

    def type(self) -> str:
        return self._model.type()

    @property
    def whole(self) -> bool:
        return not self._due and self._script is None

    def _all_told(self) -> int | None:
        all_told = self._peer is not None and self._script is None and not self._model.changed
        return self._calls if all_told else None

    def _knows(self, number: int) -> bool:
        return self._calls - len(self._due) >= number

    @property
    def hungry(self) -> bool:
        return self._peer is not None and (self._script is not None or self._model.changed)

    @property
    def interest(self) -> int:
        """Bindings there."""
        return len(self._known)

    @property
    def doubles(self) -> int:
        """A plain broker does not say which messages came before."""
        return 0

    # -- the link

    def _unfit(self) -> str:
        if len(self._front.encode()) > LONGEST_NAME:
            return f"the name of its queue there, '{self._queue}', would be too long"
        return "" if self._server.joins else NO_JOINS

    def _ready(self) -> None:
        queue = self._queue
        if self._drops:
            self._call("queue.delete", queue=queue)
            self._call("queue.declare", queue=queue, exclusive=True, arguments=self._arguments)
        elif self._absent:
            self._call("queue.declare", queue=queue, durable=True, arguments=self._arguments)
        else:
            self._call("queue.declare", queue=queue, passive=True)

    def _step(self, name: str, arguments: dict[str, object]) -> None:
        if name == "queue.declare-ok" and self._peer is not None:
            if not arguments.get("message_count") and self._model.resting:
                self._call("queue.delete", queue=self._queue, if_empty=True)
        elif name == "queue.declare-ok":
            self._fresh, self._absent = self._drops or self._absent, False
            self._model.noted()
            self._consume()
        elif name == "queue.delete-ok" and self._ends:
            self._gone()
        elif name == "basic.consume-ok":
            self._runs()
            self._begin_bindings()
        elif self._asking and name.startswith(("exchange.bind", "exchange.unbind")):
            asked = self._asking.popleft()
            if asked is not None and asked[0] == BIND:
                self._there[asked[1]] = asked[2]
            elif asked is not None and self._there.get(asked[1]) == asked[2]:
                del self._there[asked[1]]

    def _begin_bindings(self) -> None:
        again = self._built and not self._drops and not self._ends
        if again:
            self._call("exchange.declare", exchange=self._front, type="fanout", passive=True)
        self._script = self._differ() if again else self._build()

    def _gone(self) -> None:
        """What was to end has ended."""
        self.drained = True
        self._model.forget()

    def timers(self, now: float) -> None:
        super().timers(now)
        if self._ends and self._peer is not None and self.whole and now >= self._next_look:
            self._next_look = now + ASK_EVERY
            self._call("queue.declare", queue=self._queue, passive=True)

    def next_deadline(self) -> float | None:
        return self._next_look if self._ends and self._peer is not None else super().next_deadline()

    def _consume(self) -> None:
        """Messages come at once, and the bindings follow. They wait for this answer, which RabbitMQ may give
        after those to later questions."""
        assert self._at is not None
        self._acked = 0
        self._model.begin(self._server, self._open[self._at])
        self._call("basic.qos", prefetch_count=PREFETCH)
        self._call("basic.consume", queue=self._queue, consumer_tag=TAG, exclusive=True)

    # -- bindings; a script does a share of them in each tick

    def _build(self) -> Iterator[None]:
        """Twice, if there may be an exchange in front: bindings of the other one stand in meanwhile."""
        self._known, self._there, self._unsure = {}, {}, []
        if self._ends:
            for front in (self._front, self._other_front):
                self._call("exchange.delete", exchange=front)
            return
        wanted: dict[Wish, Bind] = {}
        for wish, bind in self._model.wanted(self.upstream):
            if bind is not None:
                wanted[wish] = bind
            yield
        if not self._fresh:
            yield from self._make(self._other_front, wanted, tracked=False)
        self._call("exchange.delete", exchange=self._front)
        yield from self._make(self._front, wanted, tracked=True)
        self._call("exchange.delete", exchange=self._other_front)
        self._built, self._fresh = True, False

    def _make(self, front: str, wanted: dict[Wish, Bind], *, tracked: bool) -> Iterator[None]:
        """It ends with the queue, to which it has its only binding."""
        self._call(
            "exchange.declare", exchange=front, type="fanout", durable=not self._drops, auto_delete=True,
            internal=True, arguments=PURPOSE,
        )  # fmt: skip
        for wish, bind in wanted.items():
            self._ask(BIND, wish, bind, front, tracked=tracked)
            yield
        self._call("queue.bind", queue=self._queue, exchange=front, routing_key="")

    def _differ(self) -> Iterator[None]:
        """What is new comes before what ends, so that a wish in another form is never without."""
        old = [*self._unsure, *self._known.items()]
        wanted: dict[Wish, Bind] = {}
        for wish, bind in self._model.wanted(self.upstream):
            if bind is not None:
                wanted[wish] = bind
                if self._known.get(wish) != bind:
                    self._ask(BIND, wish, bind)
            yield
        for wish, bind in old:
            if wanted.get(wish) != bind:
                self._unbind(wish, bind)
            yield
        self._unsure = []

    def _tell_changes(self) -> None:
        old: list[tuple[Wish, Bind]] = []
        for _ in range(SLICE):
            if self._model.overrun:
                self._script = self._differ()
                break
            if not self._model.changed:
                break
            wish, bind = self._model.next_change(self.upstream)
            known = self._known.get(wish)
            if bind == known:
                continue
            if known is not None:
                old.append((wish, known))
            if bind is not None:
                self._ask(BIND, wish, bind)
        for wish, known in old:
            self._unbind(wish, known)

    def _unbind(self, wish: Wish, bind: Bind) -> None:
        if self._known.get(wish) == bind:
            del self._known[wish]
        self._ask(UNBIND, wish, bind)

    def _ask(self, method: str, wish: Wish, bind: Bind, front: str = "", *, tracked: bool = True) -> None:
        self._call(
            method, destination=front or self._front, source=self.exchange, routing_key=bind.routing_key,
            arguments=bind.arguments,
        )  # fmt: skip
        self._asking.append((method, wish, bind) if tracked else None)
        if tracked and method == BIND:
            self._known[wish] = bind

    def _told(self, name: str, arguments: dict[str, object]) -> str:
        if name == "basic.cancel":
            self._built = False
            return GONE
        return ""

    def _faulted(self, code: int, text: str, failed: tuple[int, int]) -> str:
        if code == NOT_FOUND and failed == DECLARE_QUEUE and not self._absent:
            self._absent, self._built = True, False
            if self._ends:
                self._gone()
            return ""
        again = self._built and code == NOT_FOUND and failed == DECLARE_EXCHANGE
        self._built = False
        return "" if again else text

    def _left(self) -> None:
        self._unsure += [(wish, bind) for _, wish, bind in filter(None, self._asking)]
        if None in self._asking:
            self._built = False
        self._asking.clear()
        self._known, self._script = dict(self._there), None

    def _forget(self) -> None:
        self._model.forget()
        self._send("queue.delete", queue=self._queue, nowait=True)
        for front in (self._front, self._other_front):
            self._send("exchange.delete", exchange=front, nowait=True)

    # -- messages

    def delivered(self, peer: int, deliveries: list[Delivery]) -> None:
        if peer == self._at:
            self.taken += len(deliveries)
            self._model.take(deliveries)

    def end_tick(self, *, full: str = "") -> None:
        """After the flush. `full`: why this broker can take no more for now: no more than a window comes."""
        if self._peer is None:
            return
        settled = self._model.settled()
        if not full and settled > self._acked:
            self._acked = settled
            self._send("basic.ack", delivery_tag=settled, multiple=True)
        if self._script is None:
            self._tell_changes()
            return
        for _ in range(SLICE):
            if next(self._script, DONE) is DONE:
                self._script = None
                break
