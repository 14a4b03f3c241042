"""Messages that leave a queue because the broker decides it: their time is over, or there are too many.

Owner: `VirtualHost`; only one that serves decides, once (invariant 18). Queues say when their head or their
length has changed; once a tick, after dispatch, each of them is looked at: what a consumer can take at once
is delivered rather than dropped (so a TTL of 0 means "now or never", as in RabbitMQ). Times are wall clock,
in milliseconds, since they count from the enqueue time that goes to disks and other nodes with the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from broker.model.history.records import Entry
from broker.model.queue.arguments import QueueRules
from broker.model.queue.deadlines import Deadlines
from broker.model.queue.freeing import Freeing
from broker.model.queue.requeueing import Home, Requeueing
from broker.model.steps import Steps
from broker.model.values import Reason

AT_ONCE = 1024
"""Messages of one queue that leave by rule in one look at it, at most."""
WORK_AT_ONCE = 1024
"""Dead letters that all queues together make in one tick, by what they cost (`work_of`). The one in hand is
finished, the others wait for the next tick, and everybody else is served before. As much may requests set off
between two ticks."""
STEPS = 16_384
"""Of deliveries in one tick, for all queues together: a message is one, some 0.5 us. What is left goes on in
the next tick, and everybody else is served before."""
HAND = 64
"""Steps that it takes to hand over messages to one consumer, however few."""
COPIES = 1024
"""In a chain of queues that refuse what is published to them (`reject-publish-dlx`), where nobody holds what
is on its way, the most that one message may become, counted where it arrives."""
DROPPED_AT_ONCE = 16 * AT_ONCE
"""Others over a limit: a limit may come to a queue that has held more than that for long."""
OCTETS_AT_ONCE = 64 << 20
"""The same in bytes: what was set aside is read back to leave."""
LOOKS = 400
"""Queues that are looked at in one tick, at most: one message may have come into very many. The others have
their turn in the next one."""
ROUNDS = 4
"""Looks at what was touched in one tick, at most: others are served meanwhile."""


LOOKED = 3
"""Steps of looking up where a dead letter goes that are one of work."""


def work_of(headers: int, octets: int, queues: int) -> int:
    """What a dead letter costs, about in microseconds: its `headers`, in octets, are read and written anew;
    all its `octets` are copied, and again for store and link; each of `queues` keeps an entry."""
    return 3 + headers // 16 + octets // 512 + 2 * queues


class RuledQueue(Home, Protocol):
    """A queue that messages leave by rule."""

    @property
    def name(self) -> str: ...
    @property
    def vhost(self) -> str: ...
    @property
    def rules(self) -> QueueRules: ...
    @property
    def scheduled(self) -> bool: ...
    def schedule(self) -> None: ...
    def after_dying(self, after: Callable[[], None]) -> None: ...
    def remove_expired(self, upto: int) -> int: ...
    def remove_due(self, wall_ms: int) -> int | None: ...


class Death(NamedTuple):
    """Why and where from a message is dead-lettered: what goes into its `x-death`. `reason` in RabbitMQ's
    words: rejected, expired, maxlen. `exchange` and `routing_key` as it was published; `wall_ms` now."""

    queue: str
    reason: str
    exchange: str
    routing_key: str
    wall_ms: int


class MessageFormat(Protocol):
    """What the model must know of a message's bytes, and leaves to whoever understands them."""

    def body_size(self, raw: bytes) -> int:
        """Octets of the body, as x-max-length-bytes counts them."""

    def dead_lettered(self, raw: bytes, death: Death, *, drop_cc: bool) -> tuple[bytes, int]:
        """The message as it goes on, without its expiration; and the size of its largest header frame."""

    def cycles(self, raw: bytes, queues: Sequence[str], reason: str) -> Sequence[str]:
        """To which of `queues` has it come round by itself?"""

    def headers(self, raw: bytes) -> Mapping[str, object]:
        """What a headers exchange goes by."""

    def has_copies(self, raw: bytes) -> bool:
        """Do its headers decide, since it may have further routing keys?"""


class Opaque:
    """Messages that nobody understands: all of it is body, and goes on as it is."""

    def body_size(self, raw: bytes) -> int:
        return len(raw)

    def dead_lettered(self, raw: bytes, death: Death, *, drop_cc: bool) -> tuple[bytes, int]:
        return raw, len(raw)

    def cycles(self, raw: bytes, queues: Sequence[str], reason: str) -> Sequence[str]:
        return ()

    def headers(self, raw: bytes) -> Mapping[str, object]:
        return {}

    def has_copies(self, raw: bytes) -> bool:
        return False


class Search(NamedTuple):
    """Where a dead letter goes is being looked up. `wanted`: the message's epoch and sequence, the exchange,
    and the routing key; `steps` return the route."""

    wanted: tuple[int, int, str, str]
    steps: Steps[Any]


class Removals:
    """Which queues are to be looked at now, and which when. `wall_ms`: the wall clock of this tick; `since`:
    that of its first input, if there was one.

    `move`: takes messages as they leave a queue with a dead letter exchange, some or the whole of them;
    returns those that went somewhere, and those that went nowhere. `searches`: for the next dead letter of a
    queue. `copies`: how many have been made in all. `refused_from`: the `copies` when a full queue refused
    what it now sends on, and how many messages that is. `held_back`: queues that hold, since the last tick's
    end, what they refuse and cannot send on at once. `steps`: of deliveries that this tick may still take.
    """

    __slots__ = (
        "_looks", "_over", "_resumed", "_touched", "behind", "copies", "format", "freeing", "held_back",
        "left", "move", "refused_from", "requeueing", "searches", "since", "steps", "wall_ms",
        "work",
    )  # fmt: skip

    def __init__(self) -> None:
        self.wall_ms = 0
        self.since: int | None = None
        self.behind = False
        """Queues have not had their turn of dispatch yet: what came in for them may still be delivered."""
        self.format: MessageFormat = Opaque()
        self.move: Callable[[RuledQueue, Iterable[Entry], Reason, bool], tuple[list[Entry], list[Entry]]] = (
            lambda queue, entries, reason, whole: ([], list(entries))
        )
        self.searches: dict[RuledQueue, Search] = {}
        self.held_back: dict[RuledQueue, None] = {}
        self.work = self.left = WORK_AT_ONCE
        """How much work may be done in one tick, and how much of it is left."""
        self._looks = LOOKS
        self.copies = 0
        self.steps = STEPS
        self.refused_from: tuple[int, int] | None = None
        self._touched: dict[RuledQueue, None] = {}
        self._resumed: list[RuledQueue] = []
        self._over: Deadlines[RuledQueue] = Deadlines()
        self.freeing = Freeing()
        self.requeueing = Requeueing()

    @property
    def spared(self) -> int:
        """Of a tick's work, what clients refuse takes no more than the other half: whoever looks at a queue
        has what is over, or too much, removed at once."""
        return self.work // 2

    @property
    def fresh(self) -> int:
        """What is over no earlier than this may be delivered in this tick: it may have come in it."""
        return self.wall_ms if self.since is None else min(self.since, self.wall_ms)

    def touch(self, queue: RuledQueue) -> None:
        """Its head or its length has changed, and it has rules, or messages with an expiration."""
        self._touched[queue] = None

    def resume(self, queue: RuledQueue) -> None:
        """So many of its messages were over that consumers may be waiting for those behind: dispatch it
        again, after others."""
        self._resumed.append(queue)
        self.touch(queue)

    def expire_due(self) -> None:
        """Before dispatch: heads whose time was over before this tick are not delivered any more."""
        self.left, self._looks = self.work, LOOKS
        for queue in self._over.take(self.wall_ms):
            self._touched[queue] = None
            if self._may(queue) and queue.returning is None:
                queue.remove_expired(self.fresh - 1)

    def end_tick(self) -> None:
        """What comes in from now on, and what it sets off, is of the next one."""
        self.left = self.work
        if self.held_back:
            self.held_back.clear()
        if not self.behind:
            self.since = None
        if self.requeueing.stirred:
            self.requeueing.step()
        if self.freeing.waits:
            self.freeing.step()

    def _may(self, queue: RuledQueue) -> bool:
        """Is it its turn? Whoever makes no dead letters waits for nobody who does."""
        return self.left > 0 or not queue.rules.dead_letters

    def one_more(self, queue: RuledQueue, taken: int, spared: int = 0) -> bool:
        """May a message follow the `taken` that have left the queue in this look at it?"""
        return taken < AT_ONCE and (self.left > spared or not queue.rules.dead_letters)

    def settle(self) -> bool:
        """After dispatch: what nobody took and is over, or too much, leaves. False if there was nothing to
        look at; else what was dead-lettered may be waiting to be dispatched, and looked at."""
        if not self._touched:
            return False
        resumed, self._resumed = self._resumed, []
        for queue in resumed:
            queue.schedule()
        touched, self._touched = self._touched, {}
        later: dict[RuledQueue, None] = {}
        looked = False
        queues = iter(touched)
        for queue in queues:
            if not queue.serves or queue.returning is not None:  # it is touched again with what comes back
                continue
            if self._looks <= 0:
                later[queue] = None
                later.update(dict.fromkeys(queues))
                break
            if not self._may(queue) or (queue.scheduled and self.steps <= 0):
                later[queue] = None
                continue
            looked = True
            self._looks -= 1
            self._over.set(queue, queue.remove_due(self.wall_ms))
        if later:  # first of all in the next tick: others would be touched again and again before them
            self._touched = later | self._touched
        return looked or bool(resumed)

    @property
    def in_pieces(self) -> bool:
        """Work goes on in the next tick, whether anything is delivered or not."""
        return bool(self.freeing.waits or (self.requeueing.stirred and self.requeueing))

    @property
    def waiting(self) -> bool:
        """Queues are to be looked at, at once."""
        return bool(self._touched)

    def next(self) -> float | None:
        """The wall clock, in milliseconds, by which a message is over. None: nothing waits."""
        return self._over.next()

    def forget(self, queue: RuledQueue) -> None:
        """It is gone."""
        self._touched.pop(queue, None)
        self.searches.pop(queue, None)
        self.held_back.pop(queue, None)
        self.requeueing.forget(queue)
        self._over.set(queue, None)

    def clear(self) -> None:
        """It serves no more."""
        self._touched.clear()
        self.searches.clear()
        self.held_back.clear()
        self._resumed.clear()
        self._over.clear()
        self.requeueing.clear()
