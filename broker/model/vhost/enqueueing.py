"""Enqueues messages: publishes of clients, and dead letters.

Owner: `VirtualHost`, of which this is a base. A move to a dead-letter exchange is one step of history: one
batch enqueues the messages at their targets and dequeues them from their queue. Every disk and node takes a
batch whole or not at all. So, unlike in RabbitMQ, no dead letter is lost or doubled on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby, repeat, takewhile
from typing import NamedTuple

from broker.model.history.records import (
    Duplicate,
    EnqueueRun,
    Entry,
    Envelope,
    Numbering,
    Origin,
    Unrouted,
)
from broker.model.queue.arguments import OverflowRule
from broker.model.queue.link import is_link_session
from broker.model.queue.queue import Queue
from broker.model.queue.removals import COPIES, LOOKED, Death, RuledQueue, Search, work_of
from broker.model.routing.exchange import PEERS, Exchange
from broker.model.routing.publish_route import PublishRoute
from broker.model.steps import Steps, finish
from broker.model.values import DYING, Need, Reason, Scope
from broker.model.vhost.definitions import Definitions
from broker.model.vhost.duplicates import Part, after, new_in
from broker.model.vhost.shared import Shared
from broker.model.vhost.windows import Keys, keys_in, note, without_known


class Published(NamedTuple):
    """The result of a run: what its confirms wait for, at `history.position`; and how many of the first
    messages every queue accepted. A full queue refused the others (`reject-publish`)."""

    need: Need
    accepted: int


class DeadRoute(NamedTuple):
    """The route of a dead letter, and the steps for making and enqueueing it."""

    route: PublishRoute
    steps: int


class _Letter(NamedTuple):
    """A dead letter: the original entry, the new message, the size of its largest header frame, its target
    queues, how long these delay it, and its own expiration once its delay is over."""

    entry: Entry
    made: bytes
    largest: int
    queues: tuple[Queue, ...]
    delay: int
    expiration: int | None


def _alike(letter: _Letter) -> tuple[Envelope, tuple[Queue, ...], int, int | None]:
    """Of letters that go in one run."""
    return letter.entry[1], letter.queues, letter.delay, letter.expiration


def _path_of(queue: RuledQueue, envelope: Envelope) -> tuple[str, ...]:
    """Federation nodes to which a message that leaves `queue` does not go back. A dead letter is a new
    message, and one whose delay is over is not."""
    return envelope.path if queue.rules.by_due else ()


DeadRoutes = Mapping[tuple[RuledQueue, int, int], PublishRoute]
"""By queue, epoch and sequence of the message."""


class Enqueueing(Definitions):
    """Publishes. `known_routes`: routes of dead letters that a commit has already looked up."""

    def __init__(self, name: str, shared: Shared) -> None:
        super().__init__(name, shared)
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
        path: tuple[str, ...] = (),
        origin: Origin | None = None,
        numbering: Numbering | None = None,
        by_id: bool = False,
        keys: Keys | None = None,
    ) -> Published:
        """Enqueue one run of messages with the same route. `blind`, `path`: see `Envelope`. `origin`: with a
        path: the id of the first message at the first node.

        With `numbering`, a queue does not take again what it has had; with `by_id`, what its
        `x-dedup-window` knows. `keys`: of the ids, if the caller has read them. Takes over `raws`. A stale
        route is looked up again.
        """
        history = self.history
        if route.generation != self.generation:
            route = self.renewed(route)
        if route.delay:
            held, others = route.divided()
            waits = self.publish(
                held, raws, persistent=persistent, channel=channel, largest_frame=largest_frame,
                producer=producer, first_tag=first_tag, expiration=route.delay, priority=priority,
                blind=blind, path=path, origin=origin, numbering=numbering, by_id=by_id, keys=keys,
            )  # fmt: skip
            if not others.queues:
                return waits
            done = self.publish(
                others, raws, persistent=persistent, channel=channel, largest_frame=largest_frame,
                producer=producer, first_tag=first_tag, expiration=expiration, priority=priority,
                blind=blind, path=path, origin=origin, numbering=numbering, by_id=by_id, keys=keys,
            )  # fmt: skip
            return Published(max(waits.need, done.need), done.accepted)
        if not route.groups:
            if producer is not None and history.ledger_wanted and raws:
                history.append(Unrouted(producer, first_tag, first_tag + len(raws) - 1))
            return Published(Need.NONE, len(raws))
        parts = None if numbering is None else new_in(route.queues, numbering, len(raws))
        if not by_id or not route.windows:
            keys = None
        else:
            if keys is None:
                keys = keys_in(self.removals.format, raws)
            parts = without_known(parts, route.queues, keys, self.removals.wall_ms)
        numbers = self.shared.link_numbers
        linked = numbers.reserve(len(raws)) if route.linked and parts is None else 0
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
            path=path,
            origin=(origin[0], origin[1] - linked) if linked and origin is not None else None,
        )
        if parts is not None:
            return self._publish_again(
                route, envelope, raws, producer, first_tag, numbering, keys, origin, parts
            )
        return self._place(route, envelope, raws, producer, first_tag, linked, keys, numbering)

    def _place(
        self,
        route: PublishRoute,
        envelope: Envelope,
        raws: list[bytes],
        producer: str | None,
        first_tag: int,
        linked: int,
        keys: Keys | None,
        numbering: Numbering | None,
    ) -> Published:
        """Put a run into the queues of its route. `linked`: the first sequence in link queues. `keys`: of its
        ids, if a queue is to note them."""
        if route.refusing:
            return self._publish_bounded(route, envelope, raws, producer, first_tag, linked, keys, numbering)
        history, persistent = self.history, envelope.persistent
        if linked:
            self.shared.link_numbers.begin(linked)
        for scope, transient_scope, queues, uuids in route.groups:
            firsts = [queue.enqueue_run(envelope, raws) for queue in queues]
            seen_by = scope if persistent else transient_scope
            if seen_by or history.ledger_wanted:
                history.append(
                    EnqueueRun(uuids, firsts, envelope, raws, producer, first_tag, seen_by, numbering)
                )
            if numbering is not None:
                self._mark(queues, numbering, len(raws), seen_by, scope)
        if keys is not None:
            for queue in route.windows:
                self._note_ids(queue, keys, envelope)
        if linked:
            self.shared.link_numbers.end()
        for queue in route.keyed:
            queue.drop_replaced()
        return Published(route.need[persistent], len(raws))

    def _publish_bounded(
        self,
        route: PublishRoute,
        envelope: Envelope,
        raws: list[bytes],
        producer: str | None,
        first_tag: int,
        linked: int,
        keys: Keys | None,
        numbering: Numbering | None,
    ) -> Published:
        """The same for a route with a queue that may refuse. Each queue takes as many of the first messages
        as fit. `linked`: the first sequence in link queues."""
        numbers = self.shared.link_numbers
        accepted = len(raws)
        most = 0
        for queue in route.queues:
            refuses = queue.rules.limited and queue.rules.overflow is not OverflowRule.DROP_HEAD
            taken = queue.room(raws) if refuses else len(raws)
            accepted = min(accepted, taken)
            most = max(most, taken)
            some = raws if taken == len(raws) else raws[:taken]
            seen_by = queue.content_scope if envelope.persistent else queue.transient_scope
            if some:
                numbers.begin(linked)
                first = queue.enqueue_run(envelope, some)
                numbers.end()
                if seen_by or self.history.ledger_wanted:
                    self.history.append(
                        EnqueueRun(
                            [queue.uuid], [first], envelope, some, producer, first_tag, seen_by, numbering
                        )
                    )
                if numbering is not None:
                    self._mark((queue,), numbering, len(some), seen_by, queue.content_scope)
                if keys is not None:
                    self._note_ids(queue, keys[:taken], envelope)
            if taken < len(raws) and queue.rules.overflow is OverflowRule.REJECT_PUBLISH_DLX:
                self._dead_letter_refused(queue, envelope, raws[taken:])
        for queue in route.keyed:
            queue.drop_replaced()
        if most < len(raws) and producer is not None and is_link_session(producer):
            self.note_unplaced(producer, first_tag + most, len(raws) - most, "refused")
        return Published(route.need[envelope.persistent], accepted)

    def _mark(
        self, queues: Iterable[Queue], numbering: Numbering, count: int, seen_by: Scope, whole: Scope
    ) -> None:
        """Note the numbers. `whole`: the scope of all contents of these queues."""
        stored = seen_by is whole or bool(seen_by & Scope.STORE) or not whole & Scope.STORE
        name, _, first = numbering
        for queue in queues:
            mark = queue.marks.get(name)
            if stored and isinstance(mark, int) and first == mark + 1:
                queue.marks[name] = mark + count
            else:
                self.shared.producers.note(queue, numbering, count, stored=stored)

    def _note_ids(self, queue: Queue, keys: Keys, envelope: Envelope) -> None:
        seen_by = queue.content_scope if envelope.persistent else queue.transient_scope
        note(queue, keys, envelope.wall_ms, seen_by, self.history)

    def _publish_again(
        self,
        route: PublishRoute,
        envelope: Envelope,
        raws: list[bytes],
        producer: str | None,
        first_tag: int,
        numbering: Numbering | None,
        keys: Keys | None,
        origin: Origin | None,
        parts: list[Part],
    ) -> Published:
        """Some queues have had some of these messages. Each of the others gets what it lacks. The confirm of
        a message that all have had waits like that of a new one: perhaps only this node has it so far."""
        need, accepted, refused = Need.NONE, 0, False
        for begin, end, lacking in parts:
            count, tag = end - begin, first_tag + begin
            numbers = None if numbering is None else after(numbering, begin)
            for queue in route.queues:
                if queue not in lacking:
                    self._note_again(queue, producer or "", tag, count, numbers)
            done = Published(route.need[envelope.persistent], count)
            if lacking:
                part = PublishRoute(
                    route.exchange, route.routing_key, lacking, False, self.generation, one_off=True,
                    counted=route.counted,
                )  # fmt: skip
                linked = self.shared.link_numbers.reserve(count) if part.linked else 0
                some = None if keys is None else keys[begin:end]
                shared = envelope
                if linked and origin is not None:
                    shared = envelope.with_origin((origin[0], origin[1] + begin - linked))
                done = self._place(part, shared, raws[begin:end], producer, tag, linked, some, numbers)
            elif producer is not None and numbers is None:
                self.note_unplaced(producer, tag, count, "doubled" if is_link_session(producer) else "known")
            need = max(need, done.need)
            if not refused:
                accepted += done.accepted
                refused = done.accepted < count
        return Published(need, accepted)

    def _note_again(
        self, queue: Queue, producer: str, first: int, count: int, numbering: Numbering | None
    ) -> None:
        if numbering is None:
            self.shared.known_ids += count
            return
        self.shared.producers.duplicates += count
        if self.history.ledger_wanted:
            last = first + count - 1
            self.history.append(Duplicate(queue.uuid, producer, first, last, numbering))

    def note_unplaced(self, producer: str, first: int, count: int, reason: str) -> None:
        """For the ledger: these tags of `producer` are in no queue, and why."""
        if self.history.ledger_wanted:
            self.history.append(Unrouted(producer, first, first + count - 1, reason=reason))

    def _dead_letter_refused(self, queue: Queue, envelope: Envelope, raws: list[bytes]) -> None:
        """Dead-letter the messages that a full queue refuses (`reject-publish-dlx`), as many as clients may
        cause in this tick. The queue holds the rest until a later tick.

        A message that was already sent on by another full queue goes on at once, unless its route look-up
        takes too long. It stops after too many copies, which happens if all queues refuse and each sends on
        to all others.
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
            if not queue.dying:  # otherwise these follow the waiting ones
                some = takewhile(lambda _: not outermost or removals.left > removals.spared, raws)
                entries = zip(repeat(0), repeat(envelope), some)
                moved, stayed = self.dead_letter(queue, entries, Reason.DROPPED)
                gone = len(moved) + len(stayed)
        finally:
            if outermost:
                removals.refused_from = None
        if gone < len(raws):
            self._hold_refused(queue, envelope, raws[gone:])

    def _hold_refused(self, queue: Queue, envelope: Envelope, raws: list[bytes]) -> None:
        """Let the full `queue` hold messages that it will send on later. They are marked as expired, so that
        no consumer gets one. If this node fails before, the next primary finds them expired, and sends them
        on too."""
        held = envelope.as_expired()
        first = queue.hold_refused(held, raws)
        seen_by = queue.content_scope if held.persistent else queue.transient_scope
        if seen_by or self.history.ledger_wanted:
            self.history.append(EnqueueRun([queue.uuid], [first], held, raws, scope=seen_by))
        self.removals.held_back[queue] = None

    def announce(self, exchange: str, routing_key: str, raw: bytes, largest_frame: int) -> None:
        """Publish a message of the broker itself, framed for channel 1: transient, from a built-in
        exchange."""
        queues, _ = finish(self._reach(self.exchanges[exchange], routing_key, {}))
        route = PublishRoute(exchange, routing_key, queues, False, self.generation)
        self.publish(route, [raw], persistent=False, channel=1, largest_frame=largest_frame)

    # -- dead letters

    def _dead_letter_exchange(self, queue: RuledQueue) -> Exchange | None:
        """The exchange that takes the queue's dead letters, if there is one that clients may use."""
        name = queue.rules.dead_letter_exchange
        return self.exchanges.get(name) if name is not None and name != PEERS else None

    def find_dead_route(self, queue: RuledQueue, entry: Entry, reason: Reason) -> Steps[DeadRoute | None]:
        """Look up in pieces where a message of `queue` would go as a dead letter. None: nowhere."""
        exchange = self._dead_letter_exchange(queue)
        if exchange is None:
            return None
        _, envelope, raw = entry
        key = self._dead_key(queue, envelope)
        route = yield from self.find_inner(exchange.name, key)
        if route.needs_headers or self.removals.format.has_copies(raw):
            made, largest = self._dead_lettered(queue, entry, DYING[reason])
            yield LOOKED * work_of(largest, len(made), 0)
            route = yield from self._look_up_dead_route(exchange.name, key, made)
        return DeadRoute(route, LOOKED * work_of(0, len(raw), len(route.queues)))

    def dead_letter(
        self, queue: RuledQueue, entries: Iterable[Entry], reason: Reason, *, whole: bool = False
    ) -> tuple[list[Entry], list[Entry]]:
        """Publish messages that leave `queue` to its dead-letter exchange. Returns those that were routed and
        those that were not.

        `entries` may stop when `Removals.left` is used up, so each entry is requested only after the cost of
        the previous one is known. By then the previous entry has left the queue. Unless `whole`, no further
        entry is requested while a route look-up is in progress; the look-up goes on in the next tick.

        As in RabbitMQ, a message is not routed if the exchange does not exist or routes it to no queue, if
        all targets would close a cycle without a rejection, or if they are full and refuse. A delayed message
        does not leave its queue before there is room in all of these.
        """
        exchange = self._dead_letter_exchange(queue)
        if exchange is None:
            return [], list(entries)
        moved: list[Entry] = []
        stayed: list[Entry] = []
        letters: list[_Letter] = []
        for entry in entries:
            letter = self._make_letter(queue, exchange.name, entry, DYING[reason], whole)
            if letter is None:
                break
            copies = len(letter.queues)
            self.removals.left -= work_of(letter.largest, len(letter.made), copies)
            self.removals.copies += max(1, copies)
            if queue.rules.by_due and any(target.refuses for target in letter.queues):
                # What it may take depends on the letters before it.
                self._send_letters(queue, exchange.name, letters, moved, stayed)
                letters = []
                if queue.wait_for_room(entry, letter.queues, letter.made):
                    continue
            letters.append(letter)
        self._send_letters(queue, exchange.name, letters, moved, stayed)
        return moved, stayed

    def _send_letters(
        self,
        queue: RuledQueue,
        exchange: str,
        letters: list[_Letter],
        moved: list[Entry],
        stayed: list[Entry],
    ) -> None:
        """Publish dead letters. Adds their messages to those that were routed, or to the others."""
        for (envelope, queues, _, _), group in groupby(letters, _alike):
            run = list(group)
            gone = self._publish_letters(queue, exchange, envelope, queues, run) if queues else 0
            moved += [letter.entry for letter in run[:gone]]
            stayed += [letter.entry for letter in run[gone:]]

    def _make_letter(
        self, queue: RuledQueue, exchange: str, entry: Entry, said: str, whole: bool
    ) -> _Letter | None:
        """The dead letter of a message, with its target queues; this death counts for cycles. None: the route
        look-up is in progress."""
        if queue.rules.by_due:
            return self._make_released(queue, exchange, entry, whole)
        made, largest = self._dead_lettered(queue, entry, said)
        route = self._dead_route(queue, entry, exchange, self._dead_key(queue, entry[1]), made, whole)
        if route is None:
            return None
        queues = route.queues
        if shut := self.removals.format.cycles(made, [queue.name for queue in queues], said):
            queues = tuple(queue for queue in queues if queue.name not in shut)
        return _Letter(entry, made, largest, queues, route.delay, None)

    def _make_released(self, queue: RuledQueue, exchange: str, entry: Entry, whole: bool) -> _Letter | None:
        """A message of a delay queue, whose time has come, as its exchange routes it. None: the route look-up
        is in progress."""
        made, largest, expiration = self.removals.format.released(entry[2])
        route = self._dead_route(queue, entry, exchange, entry[1].routing_key, made, whole)
        return None if route is None else _Letter(entry, made, largest, route.queues, 0, expiration)

    def _dead_lettered(self, queue: RuledQueue, entry: Entry, said: str) -> tuple[bytes, int]:
        """The message as a dead letter, and the size of its largest header frame."""
        _, envelope, raw = entry
        death = Death(queue.name, said, envelope.exchange, envelope.routing_key, self.removals.wall_ms)
        other_key = queue.rules.dead_letter_routing_key is not None
        return self.removals.format.dead_lettered(raw, death, drop_cc=other_key)

    def _dead_route(
        self, queue: RuledQueue, entry: Entry, exchange: str, key: str, raw: bytes, whole: bool
    ) -> PublishRoute | None:
        """The route of a dead letter, unless already known. Looks up as far as this tick's work allows, or
        completely if `whole`. None: not finished."""
        removals = self.removals
        known = self.known_routes.get((queue, entry[1].epoch, entry[0]))
        if known is not None and (known.exchange, known.routing_key) == (exchange, key):
            return self._one_off(exchange, key, known.queues, delay=known.delay)
        search = removals.searches.pop(queue, None)
        wanted = (entry[1].epoch, entry[0], exchange, key)
        if search is None or search.wanted != wanted:
            search = Search(wanted, self._look_up_dead_route(exchange, key, raw, _path_of(queue, entry[1])))
        while True:
            try:
                removals.left -= next(search.steps) // LOOKED
            except StopIteration as end:
                found: PublishRoute = end.value
                return found
            if removals.left <= 0 and not whole:
                removals.searches[queue] = search
                return None

    def _look_up_dead_route(
        self, exchange: str, key: str, raw: bytes, path: tuple[str, ...] = ()
    ) -> Steps[PublishRoute]:
        """The route of a dead letter, by its headers if they matter."""
        form, route = self.removals.format, (yield from self.find_inner(exchange, key))
        if route.needs_headers or form.has_copies(raw):
            route = yield from self.find_by_headers(
                exchange, key, form.headers(raw), raw, inner=True, path=path
            )
        return route

    def _dead_key(self, queue: RuledQueue, envelope: Envelope) -> str:
        key = queue.rules.dead_letter_routing_key
        return envelope.routing_key if key is None else key

    def _publish_letters(
        self,
        queue: RuledQueue,
        exchange: str,
        envelope: Envelope,
        queues: tuple[Queue, ...],
        run: list[_Letter],
    ) -> int:
        """Publish dead letters of one envelope to `queues`. Returns how many of the first were accepted."""
        if queue.rules.by_due:
            exchange = envelope.exchange
        route = PublishRoute(
            exchange, self._dead_key(queue, envelope), queues, False, self.generation, one_off=True,
            delay=run[0].delay,
        )  # fmt: skip
        if (through := self.exchanges.get(exchange)) is not None:
            through.counts.publish += len(run)
            through.counts.routed += len(run) * len(queues)
        return self.publish(
            route,
            [letter.made for letter in run],
            persistent=envelope.persistent,
            channel=envelope.channel,
            largest_frame=max(envelope.largest_frame, *(letter.largest for letter in run)),
            expiration=run[0].expiration,
            path=_path_of(queue, envelope),
            priority=envelope.priority,
            blind=envelope.blind,
        ).accepted
