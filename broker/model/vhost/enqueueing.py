"""Messages into queues: what clients publish, and what queues with a dead letter exchange let go.

Owner: `VirtualHost`, whose base this is. A move to a dead letter exchange is one step of history: the
messages are enqueued where they go and dequeued where they were in one batch, which is all or nothing on
every disk and node. So, unlike in RabbitMQ, none is lost or doubled on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby, takewhile
from typing import NamedTuple

from broker.model.history.records import EnqueueRun, Entry, Envelope, Unrouted
from broker.model.queue.arguments import OverflowRule
from broker.model.queue.queue import Queue
from broker.model.queue.removals import COPIES, LOOKED, Death, RuledQueue, Search, work_of
from broker.model.routing.exchange import EVENTS
from broker.model.routing.publish_route import PublishRoute
from broker.model.steps import Steps, finish
from broker.model.values import DYING, Need, Reason, Scope
from broker.model.vhost.definitions import Definitions
from broker.model.vhost.shared import Shared


class Published(NamedTuple):
    """What became of a run: what its confirms wait for, at `history.position`; and how many of its messages,
    the first ones, every queue took. The others were refused by a full queue (`reject-publish`)."""

    need: Need
    accepted: int


class DeadRoute(NamedTuple):
    """Where a dead letter goes, and the steps that it takes to make it and put it there."""

    route: PublishRoute
    steps: int


class _Letter(NamedTuple):
    """A dead letter: what it was, what is made of it, the size of its largest header frame, and its ways."""

    entry: Entry
    made: bytes
    largest: int
    queues: tuple[Queue, ...]


DeadRoutes = Mapping[tuple[RuledQueue, int, int], PublishRoute]
"""By queue, epoch and sequence of the message."""


class Enqueueing(Definitions):
    """Publishes. `known_routes`: where dead letters go that are made in one step with others."""

    def __init__(self, name: str, whole: Shared) -> None:
        super().__init__(name, whole)
        self.known_routes: DeadRoutes = {}

    def publish(
        self,
        route: PublishRoute,
        raws: list[bytes],
        *,
        persistent: bool,
        channel: int,
        largest_frame: int,
        producer: str | None = None,
        first_tag: int = 0,
        expiration: int | None = None,
        priority: int = 0,
        blind: bool = False,
    ) -> Published:
        """Enqueue one run of equal route. `blind`: as in `Envelope`.

        `raws` belongs to the model from now on. A route that has gone stale is looked up again.
        """
        history = self.history
        if route.generation != self.generation:
            route = self.renewed(route)
        if not route.groups:
            if producer is not None and history.ledger_wanted and raws:
                history.append(Unrouted(producer, first_tag, first_tag + len(raws) - 1))
            return Published(Need.NONE, len(raws))
        envelope = Envelope(
            history.epoch,
            route.exchange,
            route.routing_key,
            persistent=persistent,
            wall_ms=self.removals.wall_ms,
            channel=channel,
            largest_frame=largest_frame,
            expiration=expiration,
            priority=priority,
            blind=blind,
        )
        if route.refusing:
            return self._publish_bounded(route, envelope, raws, producer, first_tag)
        for scope, transient_scope, queues, uuids in route.groups:
            firsts = [queue.enqueue_run(envelope, raws) for queue in queues]
            seen_by = scope if persistent else transient_scope
            if seen_by or history.ledger_wanted:
                history.append(EnqueueRun(uuids, firsts, envelope, raws, producer, first_tag, seen_by))
        return Published(route.need[persistent], len(raws))

    def _publish_bounded(
        self, route: PublishRoute, envelope: Envelope, raws: list[bytes], producer: str | None, first_tag: int
    ) -> Published:
        """The same where a queue may refuse: each takes the first ones, as many as it has room for."""
        accepted = len(raws)
        for queue in route.queues:
            refuses = queue.rules.limited and queue.rules.overflow is not OverflowRule.DROP_HEAD
            taken = queue.room(raws) if refuses else len(raws)
            accepted = min(accepted, taken)
            some = raws if taken == len(raws) else raws[:taken]
            seen_by = queue.content_scope if envelope.persistent else queue.content_scope & ~Scope.STORE
            if some:
                first = queue.enqueue_run(envelope, some)
                if seen_by or self.history.ledger_wanted:
                    self.history.append(
                        EnqueueRun([queue.uuid], [first], envelope, some, producer, first_tag, seen_by)
                    )
            if taken < len(raws) and queue.rules.overflow is OverflowRule.REJECT_PUBLISH_DLX:
                self._send_refused_on(queue, envelope, raws[taken:])
        return Published(route.need[envelope.persistent], accepted)

    def _send_refused_on(self, queue: Queue, envelope: Envelope, raws: list[bytes]) -> None:
        """Dead-letter what a full queue refuses (`reject-publish-dlx`), as much of it as clients may set off
        in this tick; the queue holds the rest until it can be sent on.

        A message that was sent on already goes further at once, unless looking up its route takes too long.
        It ends where it has become too many copies: so it would with queues that all refuse, and each of
        which sends on to all others.
        """
        removals = self.removals
        outermost = removals.refused_from is None
        if removals.refused_from is None:
            removals.refused_from = removals.copies, len(raws)
        else:
            before, messages = removals.refused_from
            if removals.copies - before > COPIES * messages:
                return
        try:
            gone = 0
            if not queue.dying:  # else these go on behind those that wait
                some = takewhile(lambda _: not outermost or removals.left > removals.spared, raws)
                entries = ((0, envelope, raw) for raw in some)
                moved, stayed = self.dead_letter(queue, entries, Reason.DROPPED)
                gone = len(moved) + len(stayed)
        finally:
            if outermost:
                removals.refused_from = None
        if gone < len(raws):
            self._hold_refused(queue, envelope, raws[gone:])

    def _hold_refused(self, queue: Queue, envelope: Envelope, raws: list[bytes]) -> None:
        """The full `queue` holds messages that it will send on. No consumer gets one: if this node falls
        before they are sent on, their time is over for the next one, which sends them on, too."""
        held = envelope.as_expired()
        first = queue.hold_refused(held, raws)
        seen_by = queue.content_scope if held.persistent else queue.content_scope & ~Scope.STORE
        if seen_by or self.history.ledger_wanted:
            self.history.append(EnqueueRun([queue.uuid], [first], held, raws, scope=seen_by))
        self.removals.held_back[queue] = None

    def announce(self, routing_key: str, raw: bytes, largest_frame: int) -> None:
        """An event of the broker's own, framed for channel 1: transient, from `amq.failover`."""
        queues, _ = finish(self._reach(self.exchanges[EVENTS], routing_key, {}))
        route = PublishRoute(EVENTS, routing_key, queues, False, self.generation)
        self.publish(route, [raw], persistent=False, channel=1, largest_frame=largest_frame)

    # -- dead letters

    def find_dead(self, queue: RuledQueue, entry: Entry, reason: Reason) -> Steps[DeadRoute | None]:
        """Look up in pieces where a message of `queue` would go as a dead letter now. None: nowhere."""
        name = queue.rules.dead_letter_exchange
        exchange = self.exchanges.get(name) if name is not None else None
        if exchange is None:
            return None
        _, envelope, raw = entry
        key = self._dead_key(queue, envelope)
        route = yield from self.find_inner(exchange.name, key)
        if route.needs_headers or self.removals.format.has_copies(raw):
            made, largest = self._dead_lettered(queue, entry, DYING[reason])
            yield LOOKED * work_of(largest, len(made), 0)
            route = yield from self._find_dead(exchange.name, key, made)
        return DeadRoute(route, LOOKED * work_of(0, len(raw), len(route.queues)))

    def dead_letter(
        self, queue: RuledQueue, entries: Iterable[Entry], reason: Reason, *, whole: bool = False
    ) -> tuple[list[Entry], list[Entry]]:
        """Publish what leaves `queue` to its dead letter exchange: what went on, and what went nowhere.
        `entries` may end when `Removals.left` is used up, and so is asked for the next when that is known: by
        then the one before has left the queue. Unless it is to be the `whole`, it is not asked for more while
        the way of one is being looked up, which goes on in the next tick.

        Nowhere, as in RabbitMQ: the exchange does not exist, routes it to no queue, or to none where it has
        not been already without anybody's rejecting it, or those are full and refuse.
        """
        name = queue.rules.dead_letter_exchange
        exchange = self.exchanges.get(name) if name is not None else None
        if exchange is None:
            return [], list(entries)
        moved: list[Entry] = []
        stayed: list[Entry] = []
        letters: list[_Letter] = []
        for entry in entries:
            letter = self._letter(queue, exchange.name, entry, DYING[reason], whole)
            if letter is None:
                break
            copies = len(letter.queues)
            self.removals.left -= work_of(letter.largest, len(letter.made), copies)
            self.removals.copies += max(1, copies)
            letters.append(letter)
        for (envelope, queues), group in groupby(letters, lambda letter: (letter.entry[1], letter.queues)):
            run = list(group)
            gone = self._send_on(queue, exchange.name, envelope, queues, run) if queues else 0
            moved += [letter.entry for letter in run[:gone]]
            stayed += [letter.entry for letter in run[gone:]]
        return moved, stayed

    def _letter(
        self, queue: RuledQueue, exchange: str, entry: Entry, said: str, whole: bool
    ) -> _Letter | None:
        """What becomes of a message, and where it goes: cycles count with this death. None: its way is being
        looked up."""
        made, largest = self._dead_lettered(queue, entry, said)
        route = self._dead_route(queue, entry, exchange, self._dead_key(queue, entry[1]), made, whole)
        if route is None:
            return None
        queues = route.queues
        if shut := self.removals.format.cycles(made, [queue.name for queue in queues], said):
            queues = tuple(queue for queue in queues if queue.name not in shut)
        return _Letter(entry, made, largest, queues)

    def _dead_lettered(self, queue: RuledQueue, entry: Entry, said: str) -> tuple[bytes, int]:
        """The message as it goes on; and the size of its largest header frame."""
        _, envelope, raw = entry
        death = Death(queue.name, said, envelope.exchange, envelope.routing_key, self.removals.wall_ms)
        other_key = queue.rules.dead_letter_routing_key is not None
        return self.removals.format.dead_lettered(raw, death, drop_cc=other_key)

    def _dead_route(
        self, queue: RuledQueue, entry: Entry, exchange: str, key: str, raw: bytes, whole: bool
    ) -> PublishRoute | None:
        """Looked up as far as there is work left in this tick, or the `whole` of it, unless it is known."""
        removals = self.removals
        known = self.known_routes.get((queue, entry[1].epoch, entry[0]))
        if known is not None and (known.exchange, known.routing_key) == (exchange, key):
            return self._one_off(exchange, key, known.queues)
        search = removals.searches.pop(queue, None)
        wanted = (entry[1].epoch, entry[0], exchange, key)
        if search is None or search.wanted != wanted:
            search = Search(wanted, self._find_dead(exchange, key, raw))
        while True:
            try:
                removals.left -= next(search.steps) // LOOKED
            except StopIteration as end:
                found: PublishRoute = end.value
                return found
            if removals.left <= 0 and not whole:
                removals.searches[queue] = search
                return None

    def _find_dead(self, exchange: str, key: str, raw: bytes) -> Steps[PublishRoute]:
        """By its headers, if they matter."""
        form, route = self.removals.format, (yield from self.find_inner(exchange, key))
        if route.needs_headers or form.has_copies(raw):
            route = yield from self.find_by_headers(exchange, key, form.headers(raw), inner=True)
        return route

    def _dead_key(self, queue: RuledQueue, envelope: Envelope) -> str:
        key = queue.rules.dead_letter_routing_key
        return envelope.routing_key if key is None else key

    def _send_on(
        self,
        queue: RuledQueue,
        exchange: str,
        envelope: Envelope,
        queues: tuple[Queue, ...],
        run: list[_Letter],
    ) -> int:
        """Messages of one envelope, dead-lettered to `queues`; how many, the first ones, were taken."""
        route = PublishRoute(
            exchange, self._dead_key(queue, envelope), queues, False, self.generation, one_off=True
        )
        return self.publish(
            route,
            [letter.made for letter in run],
            persistent=envelope.persistent,
            channel=envelope.channel,
            largest_frame=max(envelope.largest_frame, *(letter.largest for letter in run)),
            priority=envelope.priority,
            blind=envelope.blind,
        ).accepted
