"""Messages that the broker itself removes from a queue: expired ones, and those above a limit.

Owner: `VirtualHost`. Only a serving one decides, once (invariant 18). Queues report changes of their head or
length. Once a tick, after dispatch, each reported queue is checked. So a message that a consumer can take at
once is delivered and not dropped (a TTL of 0 means "now or never", as in RabbitMQ). Times are wall-clock
milliseconds, counted from the enqueue time that goes to disks and other nodes with the message.
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
"""Maximum messages that rules remove from one queue in one check."""
WORK_AT_ONCE = 1024
"""Work for dead letters of all queues in one tick, by their cost (`work_of`). A letter in progress is
completed; the others wait for the next tick, so that other work is served in between. Requests between two
ticks may cause as much again."""
STEPS = 16_384
"""Steps for deliveries of all queues in one tick: a message is one step, some 0.5 us. The rest waits for the
next tick, so that other work is served in between."""
HAND = 64
"""Steps for delivering to one consumer, in addition to one for each message."""
COPIES = 1024
"""Maximum copies of one message in a chain of queues that reject publishes (`reject-publish-dlx`), counted on
arrival. No queue holds such a message on its way."""
DROPPED_AT_ONCE = 16 * AT_ONCE
"""Maximum for other removals above a limit: a policy may set a limit on a queue that has long held more."""
OCTETS_AT_ONCE = 64 << 20
"""The same limit in octets: paged-out messages are read back to be removed."""
LOOKS = 400
"""Maximum queues checked in one tick, because one message may have reached very many. The others are checked
in the next tick."""
ROUNDS = 4
"""Maximum rounds of dispatch and checks in one tick, so that other work is served in between."""


LOOKED = 3
"""Steps of a route look-up for a dead letter that count as one unit of work."""


def work_of(headers: int, octets: int, queues: int) -> int:
    """The cost of a dead letter, approximately in microseconds. Its `headers` octets are decoded and encoded
    again. All its `octets` are copied, and again for store and link. Each of `queues` gets an entry."""
    return 3 + headers // 16 + octets // 512 + 2 * queues


class RuledQueue(Home, Protocol):
    """A queue with rules that remove messages."""

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
    def wait_for_room(self, entry: Entry, targets: Sequence[Any], raw: bytes) -> bool: ...


class Death(NamedTuple):
    """The origin and reason of a dead letter, for its `x-death`. `reason` in RabbitMQ's words: rejected,
    expired, maxlen. `exchange` and `routing_key` of the publish; `wall_ms` now."""

    queue: str
    reason: str
    exchange: str
    routing_key: str
    wall_ms: int


class MessageFormat(Protocol):
    """What the model must know of a message's bytes. A codec implements it."""

    def body_size(self, raw: bytes) -> int:
        """Octets of the body, as x-max-length-bytes counts them."""

    def dead_lettered(self, raw: bytes, death: Death, *, drop_cc: bool) -> tuple[bytes, int]:
        """The message as a dead letter, without its expiration; and the size of its largest header frame."""

    def cycles(self, raw: bytes, queues: Sequence[str], reason: str) -> Sequence[str]:
        """Those of `queues` that the message has already passed in a cycle without a rejection."""

    def headers(self, raw: bytes) -> Mapping[str, object]:
        """The headers, for headers exchanges."""

    def value(self, raw: bytes, name: str) -> object:
        """The header of that name, or else the property; None without both."""

    def property_of(self, raw: bytes, name: str) -> object:
        """The property `name` (such as `message_id`), or None."""

    def released(self, raw: bytes) -> tuple[bytes, int, int | None]:
        """The message once its delay is over; the size of its largest header frame; and its own
        expiration."""

    def has_copies(self, raw: bytes) -> bool:
        """Whether its headers may hold further routing keys."""

    def reply_to(self, raw: bytes) -> str:
        """Where replies are to go; "" if it does not say."""

    def with_reply_to(self, raw: bytes, text: str) -> bytes:
        """The same message, with replies to go there."""


class Opaque:
    """Format of messages that cannot be decoded: all octets are body, and a dead letter is unchanged."""

    def body_size(self, raw: bytes) -> int:
        return len(raw)

    def dead_lettered(self, raw: bytes, death: Death, *, drop_cc: bool) -> tuple[bytes, int]:
        return raw, len(raw)

    def cycles(self, raw: bytes, queues: Sequence[str], reason: str) -> Sequence[str]:
        return ()

    def headers(self, raw: bytes) -> Mapping[str, object]:
        return {}

    def value(self, raw: bytes, name: str) -> object:
        return None

    def property_of(self, raw: bytes, name: str) -> object:
        return None

    def released(self, raw: bytes) -> tuple[bytes, int, int | None]:
        return raw, len(raw), None

    def has_copies(self, raw: bytes) -> bool:
        return False

    def reply_to(self, raw: bytes) -> str:
        return ""

    def with_reply_to(self, raw: bytes, text: str) -> bytes:
        return raw


OPAQUE = Opaque()


class Search(NamedTuple):
    """A route look-up in progress for a dead letter. `wanted`: epoch and sequence of the message, the
    exchange, and the routing key. `steps` return the route."""

    wanted: tuple[int, int, str, str]
    steps: Steps[Any]


Move = Callable[[RuledQueue, Iterable[Entry], Reason, bool], tuple[list[Entry], list[Entry]]]


def _move_nothing(
    queue: RuledQueue, entries: Iterable[Entry], reason: Reason, whole: bool
) -> tuple[list[Entry], list[Entry]]:
    return [], list(entries)


class Removals:
    """The queues to check now, and those to check at a later time.

    - `wall_ms`: the wall clock of this tick.
    - `since`: that of its first input, if any.
    - `format`: what is known of the octets of a message.
    - `move`: publishes messages that leave a queue with a dead-letter exchange, some or the whole of
      them. Returns those that were routed, and those that were not.
    - `searches`: the look-up for the next dead letter of a queue.
    - `copies`: the number of dead letters ever made.
    - `dead_lettered`: messages that left as dead letters, by reason, since the start.
    - `refused_from`: `copies` when a full queue began to send on what it rejected, and how many messages
      that is.
    - `held_back`: queues that, since the last tick's end, hold rejected messages that they cannot send on
      at once.
    - `shortest_ack`: milliseconds of the shortest timeout for acks that a queue ever had; 0 for none.
    - `steps`: for deliveries; what is left of them in this tick.
    """

    __slots__ = (
        "_looks", "_over", "_resumed", "_touched", "behind", "copies", "dead_lettered", "format",
        "freeing", "held_back", "left", "move", "refused_from", "requeueing", "searches", "shortest_ack",
        "since", "steps", "wall_ms", "work",
    )  # fmt: skip

    def __init__(self, message_format: MessageFormat = OPAQUE, move: Move = _move_nothing) -> None:
        self.wall_ms = 0
        self.since: int | None = None
        self.behind = False
        """Queues still wait for their dispatch, so messages that arrived for them may still be delivered."""
        self.format = message_format
        self.move = move
        self.searches: dict[RuledQueue, Search] = {}
        self.held_back: dict[RuledQueue, None] = {}
        self.work = self.left = WORK_AT_ONCE
        """Work for each tick, and what is left of it in this one."""
        self._looks = LOOKS
        self.copies = 0
        self.dead_lettered: dict[str, int] = {}
        self.steps = STEPS
        self.shortest_ack = 0
        self.refused_from: tuple[int, int] | None = None
        self._touched: dict[RuledQueue, None] = {}
        self._resumed: list[RuledQueue] = []
        self._over: Deadlines[RuledQueue] = Deadlines()
        self.freeing = Freeing()
        self.requeueing = Requeueing()

    @property
    def spared(self) -> int:
        """The part of a tick's work that refused messages leave to others. A reader of a queue has expired
        and excess messages removed at once."""
        return self.work // 2

    @property
    def fresh(self) -> int:
        """Messages that expire at this time or later may still be delivered in this tick, because they may
        have arrived in it."""
        return self.wall_ms if self.since is None else min(self.since, self.wall_ms)

    def touch(self, queue: RuledQueue) -> None:
        """The head or length of a queue with rules, or with expiring messages, has changed."""
        self._touched[queue] = None

    def resume(self, queue: RuledQueue) -> None:
        """So many messages of the queue have expired that consumers may wait for those behind: dispatch it
        again, after others."""
        self._resumed.append(queue)
        self.touch(queue)

    def expire_due(self) -> None:
        """Before dispatch: remove the heads that expired before this tick, so that they are not delivered."""
        self.left, self._looks = self.work, LOOKS
        for queue in self._over.take(self.wall_ms):
            self._touched[queue] = None
            if self._may(queue) and queue.returning is None:
                queue.remove_expired(self.fresh - 1)

    def end_tick(self) -> None:
        """The tick ends. Further input and its work belong to the next one."""
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
        """Whether it is the queue's turn. A queue without dead letters waits for no dead letters of
        others."""
        return self.left > 0 or not queue.rules.dead_letters

    def one_more(self, queue: RuledQueue, taken: int, spared: int = 0) -> bool:
        """Whether one more message may leave the queue, after the `taken` of this check."""
        return taken < AT_ONCE and (self.left > spared or not queue.rules.dead_letters)

    def settle(self) -> bool:
        """After dispatch: remove expired and excess messages that no consumer took. Returns False if there
        was nothing to check. Otherwise dead letters may wait for a dispatch and a check."""
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
            if not queue.serves or queue.returning is not None:  # touched again with the returning messages
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
        if later:  # first in the next tick; otherwise other queues would always come first
            self._touched = later | self._touched
        return looked or bool(resumed)

    @property
    def in_pieces(self) -> bool:
        """Work continues in the next tick, whether or not anything is delivered."""
        return bool(self.freeing.waits or (self.requeueing.stirred and self.requeueing))

    @property
    def waiting(self) -> bool:
        """Queues must be checked at once."""
        return bool(self._touched)

    def next(self) -> float | None:
        """Wall-clock milliseconds at which the next message expires; None if there is none."""
        return self._over.next()

    def forget(self, queue: RuledQueue) -> None:
        """Drop a deleted queue."""
        self._touched.pop(queue, None)
        self.searches.pop(queue, None)
        self.held_back.pop(queue, None)
        self.requeueing.forget(queue)
        self._over.set(queue, None)

    def clear(self) -> None:
        """Drop everything, as this node no longer serves."""
        self._touched.clear()
        self.searches.clear()
        self.held_back.clear()
        self._resumed.clear()
        self._over.clear()
        self.requeueing.clear()
