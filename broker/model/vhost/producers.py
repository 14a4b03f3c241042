"""Producers that number their messages: who they are, who of them is connected, and their marks.

Owner: `Shared`. A producer has a name that outlives its connections and its process (`producer_id`). It is
known per virtual host, as a directory entry with the epoch of its newest process. Each queue has marks
(`history.marks`), which say which of its numbers the queue had.

The serving node decides who is forgotten: at most `most` producers are known, and one that was not
connected for `idle` seconds is forgotten with its marks. The deletion of its entry is history, so all nodes
do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.errors import AccessRefused, AmqpError, PreconditionFailed
from broker.model.history.marks import HIGHEST, WINDOW, Marks, last_of, noted
from broker.model.history.records import EntryDelete, EntryPut, Numbering
from broker.model.vhost.producer_entries import PRODUCER, Known

if TYPE_CHECKING:
    from broker.model.history.history import History
    from broker.model.queue.queue import Queue
    from broker.model.vhost.directory import Directory

LONGEST_ID = 255
MOST = 10_000
IDLE = 7 * 86400.0
LONGEST_JUMP = 1 << 32
"""How far above the highest known number a producer may go on."""

Key = tuple[str, str]
"""Virtual host and id."""


class Claim(NamedTuple):
    """What a client says of itself. `next`: the number of its next message."""

    producer: str
    epoch: int
    next: int


def claim_of(told: Mapping[str, object]) -> Claim | None:
    """The claim in the properties of a connection or link, if it has one. Raises PreconditionFailed."""
    name = told.get("producer_id")
    if name is None:
        for key in ("producer_epoch", "producer_next"):
            if told.get(key) is not None:
                raise PreconditionFailed(f"{key} without producer_id")
        return None
    if not isinstance(name, str) or not name.isprintable() or not 0 < _octets(name) <= LONGEST_ID:
        raise PreconditionFailed(f"producer_id is a text of 1 to {LONGEST_ID} octets, not {name!r:.80}")
    epoch, number = told.get("producer_epoch", 0), told.get("producer_next", 1)
    return Claim(name, _number("producer_epoch", epoch, 0), _number("producer_next", number, 1))


def _octets(name: str) -> int:
    return len(name.encode(errors="surrogateescape"))


def _number(key: str, value: object, least: int) -> int:
    whole = int(value) if isinstance(value, int) and not isinstance(value, bool) else None
    if whole is None or not least <= whole <= HIGHEST:
        told = repr(value) if whole is None else format(whole, "d")  # Proton has types of its own
        raise PreconditionFailed(f"{key} is a whole number from {least} to 2^62, not {told:.80}")
    return whole


class ProducerSession:
    """The series of numbers of one channel or link. The number of a message is `before` + its tag.

    `fence` ends it, because another one has taken its place.
    """

    __slots__ = ("before", "epoch", "fence", "key", "name")

    def __init__(self, key: Key, epoch: int, before: int, fence: Callable[[AmqpError], None]) -> None:
        self.key = key
        self.name = key[1]
        self.epoch = epoch
        self.before = before
        self.fence = fence

    def numbering(self, first_tag: int) -> Numbering:
        """Of messages from this tag on."""
        return Numbering(self.name, self.epoch, self.before + first_tag)


class Sharing(Protocol):
    """All virtual hosts."""

    @property
    def history(self) -> History: ...
    @property
    def directory(self) -> Directory: ...


class Producers:
    """See the module. `duplicates`: messages that a queue did not take again. `forgotten`: producers since
    the start."""

    def __init__(self) -> None:
        self.most = MOST
        self.idle = IDLE
        self.now = 0.0
        """On the broker's clock, as of this tick."""
        self.sessions: dict[Key, ProducerSession] = {}
        self._marked: dict[str, dict[str, Queue | dict[Queue, None]]] = {}
        """By virtual host and id: the queue, or queues, that have a mark."""
        self.duplicates = self.forgotten = 0
        self.told: Callable[[str, bool], None] = lambda sentence, early: None
        """Writes a line to the log. `early`: the producer was not idle for its time."""
        self._idle: dict[Key, float] = {}
        """Known producers without a session, and since when: the longest first."""

    # -- sessions, on the serving node

    def serve(self, shared: Sharing) -> None:
        """This node begins to serve. All producers may come back."""
        self.sessions.clear()
        self._idle = dict.fromkeys(shared.directory.producers, self.now)

    def stop(self) -> None:
        """This node serves no longer."""
        self.sessions.clear()
        self._idle.clear()

    def begin(
        self, shared: Sharing, vhost: str, claim: Claim, user: str, fence: Callable[[AmqpError], None]
    ) -> ProducerSession:
        """Begin a session, in place of the last one of this producer. Its entry is in this tick's batch.

        Raises AccessRefused for an older process and for another user's producer. Raises PreconditionFailed
        if its next number is out of reach, or if there are too many producers.
        """
        key = (vhost, claim.producer)
        known = shared.directory.producers.get(key)
        self._check(key, claim, user, known)
        if known is None:
            self._make_room(shared)
        before = self.sessions.get(key)
        session = self.sessions[key] = ProducerSession(key, claim.epoch, claim.next - 1, fence)
        self._idle.pop(key, None)
        if before is not None:
            before.fence(AccessRefused(f"producer '{claim.producer}' goes on at another connection"))
        if known is None or known.epoch != claim.epoch:
            put = EntryPut(PRODUCER, *key, Known(claim.epoch, user).value(), shared.directory.scope)
            shared.history.append(put)
            shared.directory.apply(put)
        return session

    def _check(self, key: Key, claim: Claim, user: str, known: Known | None) -> None:
        name = claim.producer
        if known is not None and known.user != user:
            raise AccessRefused(f"producer '{name}' is of another user")
        if known is not None and claim.epoch < known.epoch:
            raise AccessRefused(
                f"producer '{name}' has a newer process (epoch {known.epoch}; this is {claim.epoch})"
            )
        queues = self.queues_of(*key)
        highest = max([last_of(queue.marks[name]) for queue in queues], default=0)
        if queues and claim.next <= highest - WINDOW:
            raise PreconditionFailed(
                f"producer '{name}' goes on with number {claim.next}, but has had {highest}: at most "
                f"{WINDOW} messages may be in doubt"
            )
        if queues and claim.next > highest + LONGEST_JUMP:
            raise PreconditionFailed(
                f"producer '{name}' goes on with number {claim.next}, too far above its last one ({highest})"
            )

    def end(self, session: ProducerSession) -> None:
        """Its channel or link has ended. Idempotent."""
        if self.sessions.get(session.key) is session:
            del self.sessions[session.key]
            self._idle[session.key] = self.now

    def _make_room(self, shared: Sharing) -> None:
        producers = shared.directory.producers
        while len(producers) >= self.most:
            key = next(iter(self._idle), None)
            if key is None:
                raise PreconditionFailed(
                    f"{len(producers)} producers are connected, and there may be no more (producers.most)"
                )
            self._forget(shared, key, f"there may be {self.most} (producers.most)", early=True)

    def expire(self, shared: Sharing, now: float) -> None:
        """Once a tick: forget those that were idle for too long."""
        self.now = now
        while self._idle:
            key, since = next(iter(self._idle.items()))
            if now - since < self.idle:
                return
            self._forget(shared, key, f"idle for {self.idle:g} s (producers.idle)", early=False)

    def _forget(self, shared: Sharing, key: Key, why: str, *, early: bool) -> None:
        del self._idle[key]
        self.forgotten += 1
        self.told(f"producer {key[1]!r} of virtual host {key[0]!r} is forgotten: {why}", early)
        record = EntryDelete(PRODUCER, *key, shared.directory.scope)
        shared.history.append(record)
        shared.directory.apply(record)
        self.drop(*key)

    # -- marks, on every node

    def note(self, queue: Queue, numbering: Numbering, count: int, *, stored: bool) -> None:
        """The queue has taken these messages. `stored`: the store gets them too."""
        name, _, first = numbering
        mark = queue.marks.get(name)
        if mark is None:
            self._index(queue, name)
        queue.marks[name] = noted(mark, first, count, stored=stored)

    def queues_of(self, vhost: str, name: str) -> Collection[Queue]:
        """The queues that have a mark of a producer."""
        found = self._marked.get(vhost, {}).get(name)
        if found is None:
            return ()
        return found if isinstance(found, dict) else (found,)

    def _index(self, queue: Queue, name: str) -> None:
        marked = self._marked.setdefault(queue.vhost, {})
        found = marked.get(name)
        if isinstance(found, dict):
            found[queue] = None
        elif found is None:
            marked[name] = queue
        elif found is not queue:
            marked[name] = {found: None, queue: None}

    def set_marks(self, queue: Queue, marks: Marks) -> None:
        """Replace what is known of one queue."""
        self._unmark(queue, queue.marks.keys() - marks.keys())
        for name in marks:
            self._index(queue, name)
        queue.marks = dict(marks)

    def queue_gone(self, queue: Queue) -> None:
        self._unmark(queue, queue.marks)
        queue.marks = {}

    def _unmark(self, queue: Queue, names: Iterable[str]) -> None:
        marked = self._marked.get(queue.vhost, {})
        for name in names:
            found = marked.get(name)
            if isinstance(found, dict):
                found.pop(queue, None)
            if not found or found is queue:
                marked.pop(name, None)
        if not marked:
            self._marked.pop(queue.vhost, None)

    def drop(self, vhost: str, name: str) -> None:
        """The producer is forgotten."""
        self.sessions.pop((vhost, name), None)
        self._idle.pop((vhost, name), None)
        for queue in list(self.queues_of(vhost, name)):
            queue.marks.pop(name, None)
            self._unmark(queue, (name,))
