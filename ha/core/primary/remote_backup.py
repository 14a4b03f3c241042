"""RemoteBackup: one backup as its primary sees it, from its join to its loss.

Owner: Primary. Makes calls on its QueueGuard and its ReplicatingSubscriptions, but not the other way. Phases:

    ASKED      has asked to join, while the exclusion of its former link is being committed
    EXPECTED   named by the record after a promotion, not here yet: everything is held for it
    WAITING    has asked to join; begins right after the next flush
    CATCHING   definitions on their way, then what came to pass since, then snapshots and live batches
    GUARDED    all snapshots sent, its lag is short: confirms wait for it from now on
    INCLUDING  the authority is asked to include it: from now on the record may name it; GUARDED again if
               it says that it does not yet
    COMMITTED  the record that includes it is durable here and sent; becomes IN_SYNC when it has fsynced it
    IN_SYNC    counts
    LOST       its link closed; still in the record, everything is held until it is excluded
    LEAVING    its exclusion is being committed: it gets no more batches, and everything is held until then
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from broker.model.values import ORIGIN, Position
from ha.core.errors import IllegalTransition, LinkError
from ha.core.ports import DefinitionsPart, IdsByEpoch
from ha.core.primary.content import Progress
from ha.core.primary.queue_guard import QueueGuard
from ha.core.record.in_sync_record import Incarnation, RecordVersion
from ha.core.tuning import Tuning
from ha.core.wire.known_targets import KnownTargets
from ha.core.wire.link import Ack
from ha.core.wire.replicating_subscription import ReplicatingSubscription


class Phase(enum.Enum):
    """How far a backup is, as its primary sees it."""

    EXPECTED = "expected"
    """The record of the promotion names it, and it has not linked yet."""
    ASKED = "asked"
    """It has asked to join; its former link may have to leave the record first."""
    WAITING = "waiting"
    """It is taken in: its stream begins after the next flush that leaves nothing gathered."""
    CATCHING = "catching"
    """It gets definitions, and what it lacks of each queue."""
    GUARDED = "guarded"
    """Confirms wait for it, too, while the last of it comes to its disk."""
    INCLUDING = "including"
    """The authority is asked to name it in the record."""
    COMMITTED = "committed"
    """The record names it; it has that on disk soon."""
    IN_SYNC = "in-sync"
    LOST = "lost"
    """Its link has closed. The record names it: it has its time to come back."""
    LEAVING = "leaving"
    """It gets nothing more. The record names it until its exclusion is committed."""


_ENDS = frozenset({Phase.LOST, Phase.LEAVING})
PHASES: dict[Phase, frozenset[Phase]] = {
    Phase.EXPECTED: frozenset({Phase.ASKED, Phase.LEAVING}),
    Phase.ASKED: frozenset({Phase.WAITING}),
    Phase.WAITING: _ENDS | {Phase.CATCHING},
    Phase.CATCHING: _ENDS | {Phase.GUARDED},
    Phase.GUARDED: _ENDS | {Phase.CATCHING, Phase.INCLUDING},
    Phase.INCLUDING: _ENDS | {Phase.GUARDED, Phase.COMMITTED},
    Phase.COMMITTED: _ENDS | {Phase.IN_SYNC},
    Phase.IN_SYNC: _ENDS,
    Phase.LOST: frozenset({Phase.LEAVING}),
    Phase.LEAVING: frozenset(),
}
"""From each phase, where to. Anything else stops the node. A backup that the record does not name just goes;
before `INCLUDING` it names one that is expected."""

LIVE = (Phase.IN_SYNC, Phase.CATCHING, Phase.GUARDED, Phase.INCLUDING, Phase.COMMITTED)
COUNTED = (Phase.IN_SYNC, Phase.INCLUDING, Phase.COMMITTED, Phase.LOST, Phase.LEAVING)
"""Tuples, the usual first: a set would hash the phase, which Python does slowly, at each ack."""


class _Sent(NamedTuple):
    """A batch that is not durable there yet: when it was sent, which byte of the link is its last, how many
    bytes were on their way then, itself included, and how many it has."""

    position: Position
    at: float
    end: int
    ahead: int
    size: int


class Held(NamedTuple):
    """A batch for a joiner that has not got all definitions yet: its frame, and the frame's bytes."""

    position: Position
    parts: list[bytes]
    size: int


class RemoteBackup:
    """State only; Primary decides. Its methods move the phase, by `PHASES`, and what goes with it."""

    def __init__(self, who: Incarnation, name: str, peer: int | None, now: float) -> None:
        self.who = who
        self.name = name
        self.number = 0
        """Its node number, known once it has asked to join."""
        self.life = ""
        """Of the process that asked."""
        self.asked_at = 0
        """By its clock, when its requests are dated."""
        self.peer = peer
        """Its connection; None while only expected."""
        self.phase = Phase.EXPECTED if peer is None else Phase.ASKED
        self.expected = peer is None
        """Named by the record of the promotion: confirms wait for it while it catches up."""
        self.since = now
        self.lease_from: float | None = None
        """When this primary sent what it has acknowledged last: it was no primary then, and will be none
        before a lease has passed. None: it has never linked in this epoch.
        """
        self.guard: QueueGuard | None = None
        self.has: dict[bytes, IdsByEpoch] = {}
        self.definitions: Iterator[DefinitionsPart] | None = None
        """Those that are still to be sent."""
        self.queue: deque[ReplicatingSubscription] = deque()
        self.held: deque[Held] = deque()
        """Batches that follow on definitions, and wait until all of these are sent."""
        self.held_bytes = 0
        self.sent = ORIGIN
        self.acked = ORIGIN
        self.acked_durable = ORIGIN
        self.bytes_sent = 0
        self.bytes_received = 0
        self.fed = 0
        """Bytes sent when the last share of its snapshot was."""
        self.last_ack = now
        self.compared = 0.0
        """Clocks were compared by its answer to what was sent then."""
        self.complete = False
        self.guarded_at = now
        self.include_at = now
        """Not before is its inclusion asked for."""
        self.deferred = ""
        """Why the authority did not include it when it was asked last."""
        self.record = RecordVersion(0, 0)
        """The newest record that it has on disk."""
        self.owes: Position | None = None
        """Where it was guarded; if it stalled then, it is not guarded again before it has got there."""
        self.contents: dict[int, Progress] = {}
        """Large messages that go to it ahead of their batches."""
        self.targets = KnownTargets()
        """Those of wide runs that it knows."""
        self._travelling: deque[_Sent] = deque()
        """Batches of which not every byte has been handled there."""
        self._arrived: deque[tuple[_Sent, float, int]] = deque()
        """Those of which it has, since when, and how many bytes its disk had to take then, theirs included.
        """
        self._unsynced = 0
        self._moved = now
        """When it last had handled more bytes than before."""

    # -- phases

    def _become(self, phase: Phase) -> None:
        """Raises IllegalTransition."""
        if phase not in PHASES[self.phase]:
            raise IllegalTransition(f"backup {self.name}: {self.phase.value} -> {phase.value}")
        self.phase = phase

    def linked(self, peer: int, now: float) -> None:
        """One that was expected has asked to join."""
        self.peer, self.last_ack = peer, now
        self._become(Phase.ASKED)

    def admitted(self, owned_at: float) -> None:
        """It joins. From now on nothing but its own acknowledgements renews the lease; until the first of
        them, what the authority said before counts.
        """
        self._become(Phase.WAITING)
        self.lease_from = owned_at

    def begins(self, position: Position, definitions: Iterator[DefinitionsPart], now: float) -> None:
        """Its stream: these definitions, and history from that position on."""
        self._become(Phase.CATCHING)
        self.sent, self.last_ack, self.definitions = position, now, definitions

    def guarded(self, position: Position, now: float) -> None:
        """Confirms wait for it from there on."""
        self._become(Phase.GUARDED)
        self.guarded_at = now
        if self.guard is None:
            self.guard, self.owes = QueueGuard(position), position

    def stalled(self) -> None:
        """They do no longer; it goes on catching up."""
        self._become(Phase.CATCHING)
        self.guard = None

    def including(self) -> None:
        """The authority is asked."""
        self._become(Phase.INCLUDING)

    def defer(self, reason: str, until: float) -> bool:
        """The authority does not include it yet, and the record does not name it; whether that is news."""
        self._become(Phase.GUARDED)
        news, self.deferred, self.include_at = reason != self.deferred, reason, until
        return news

    def committed(self) -> None:
        """The record names it."""
        self._become(Phase.COMMITTED)

    def in_sync(self, now: float) -> None:
        """It has that record on disk."""
        self._become(Phase.IN_SYNC)
        self.expected, self.since = False, now

    def lost(self, now: float) -> None:
        """Its link has closed; from now on it has its time to come back, wherever it was before."""
        self._become(Phase.LOST)
        self.peer, self.expected, self.last_ack = None, False, now
        self._travelling.clear()
        self._arrived.clear()
        self._unsynced = 0
        self.definitions = None
        self.contents.clear()
        self.targets.clear()
        self.held.clear()
        self.held_bytes = 0

    def leaving(self) -> None:
        """It is about to be excluded."""
        self._become(Phase.LEAVING)

    # -- what follows from the phase

    @property
    def live(self) -> bool:
        """Whether batches go to it."""
        return self.phase in LIVE

    @property
    def counted(self) -> bool:
        """Whether the record may name it: its loss needs an exclusion."""
        return self.expected or self.phase in COUNTED

    @property
    def on_the_clock(self) -> bool:
        """Its time runs: when it is over, it is excluded whatever it acknowledges, until it is included
        again."""
        return self.expected and self.phase is not Phase.COMMITTED

    def rest(self, tuning: Tuning, now: float) -> float:
        """Seconds until then."""
        return max(0.0, self.since + tuning.backup_timeout - now)

    @property
    def paid_up(self) -> bool:
        """It did not stall at its last guard, or has caught up with that since: it may be guarded."""
        return self.owes is None or (self.complete and self.acked_durable >= self.owes)

    @property
    def behind(self) -> bool:
        """Batches wait until it has the definitions, and what has come since."""
        return self.definitions is not None or bool(self.held)

    def hold(self, position: Position, parts: list[bytes], size: int) -> None:
        """A batch is to wait."""
        self.held.append(Held(position, parts, size))
        self.held_bytes += size

    def let_go(self) -> Held:
        """The oldest of them goes out."""
        oldest = self.held.popleft()
        self.held_bytes -= oldest.size
        return oldest

    @property
    def in_flight(self) -> int:
        """Link bytes sent and not yet handled there."""
        return self.bytes_sent - self.bytes_received

    @property
    def lag(self) -> int:
        """Batches not yet applied there."""
        sent = self.sent.n - self.acked.n if self.acked.epoch == self.sent.epoch else self.sent.n
        return sent + len(self.held)

    def sending(self, position: Position, size: int, now: float, ahead: int = 0) -> None:
        """A batch of `size` bytes goes out, of which so many more went ahead; it is overdue when not durable
        there in time."""
        self.sent = position
        end = self.bytes_sent + size
        self._travelling.append(_Sent(position, now, end, end - self.bytes_received, size + ahead))

    def acknowledged(self, ack: Ack, now: float) -> None:
        """Take an ack. LinkError if it claims what was never sent, or goes back."""
        self.echoed(ack.echo, now)
        if ack.received > self.bytes_sent or ack.received < self.bytes_received:
            raise LinkError(f"acknowledged {ack.received} bytes of {self.bytes_sent}")
        if ack.applied.epoch == self.sent.epoch:
            if ack.applied > self.sent:
                raise LinkError(f"acknowledged {ack.applied}, but {self.sent} is the last sent")
            self.acked = max(self.acked, ack.applied)
            self.acked_durable = max(self.acked_durable, min(ack.durable, ack.applied))
        self._got(ack.received, now)
        self.record = max(self.record, ack.record)
        self.last_ack = now
        self.complete = self.complete or ack.complete
        guard, counts = self.guard, self.complete or not self.expected
        if guard is not None and counts and self.acked.epoch == guard.free.epoch:
            guard.release(self.acked, self.acked_durable, self.sent)

    def _got(self, received: int, now: float) -> None:
        """So many bytes have been handled there."""
        if received > self.bytes_received:
            self.bytes_received, self._moved = received, now
        while self._travelling and self._travelling[0].end <= received:
            batch = self._travelling.popleft()
            self._unsynced += batch.size
            self._arrived.append((batch, now, self._unsynced))
        while self._arrived and self._arrived[0][0].position <= self.acked_durable:
            self._unsynced -= self._arrived.popleft()[0].size

    def echoed(self, sent_at: float, now: float) -> None:
        """It has heard what this primary sent then. LinkError for a time that has not come."""
        if sent_at > now:
            raise LinkError("acknowledged what is not sent yet")
        if self.lease_from is not None:
            self.lease_from = max(self.lease_from, sent_at)

    def has_heard(self, sent_at: float) -> bool:
        """It has acknowledged what this primary sent then, or later: it ran when that arrived."""
        return self.lease_from is not None and self.lease_from >= sent_at

    def is_close(self, tuning: Tuning, now: float) -> bool:
        """It would hold confirms for a moment only: little is on its way, or, on a long and busy line, only
        the stream, none of it for long.
        """
        owed = self._arrived[0][0] if self._arrived else self._travelling[0] if self._travelling else None
        oldest = now if owed is None else owed.at
        only_stream = self.bytes_received >= self.fed
        return self.in_flight <= tuning.short_lag or (only_stream and now - oldest <= tuning.short_delay)

    def verdict(self, tuning: Tuning, now: float, awake_since: float) -> str:
        """Why its primary, awake since then, gives it up now; "" if it does not."""
        if self.on_the_clock:
            if now - self.since > tuning.backup_timeout:
                return f"it has not caught up within {tuning.backup_timeout:g} s of the promotion"
        elif self.counted:
            if now - max(self.silent_since(tuning), awake_since) > tuning.ack_timeout:
                return f"no acknowledgement for {tuning.ack_timeout:g} s"
        elif now - max(self.last_ack, awake_since) > tuning.backup_timeout:
            return f"no acknowledgement for {tuning.backup_timeout:g} s"
        elif self.in_flight + self.held_bytes > tuning.joiner_max:
            return "it cannot keep up"
        return ""

    def verdict_at(self, tuning: Tuning, awake_since: float) -> float:
        """When its primary, awake since then, would give it up, if it says nothing more."""
        if self.on_the_clock:
            return self.since + tuning.backup_timeout
        since = self.silent_since(tuning) if self.counted else self.last_ack
        return max(since, awake_since) + (tuning.ack_timeout if self.counted else tuning.backup_timeout)

    def silent_since(self, tuning: Tuning) -> float:
        """Since when it owes an answer: its last ack, or the oldest batch that it has not made durable.

        A large batch, and what is behind it, is not overdue while its bytes move: on the link it has its time
        from when the last of them were handled, there from when it arrived, and beyond that as long as they
        take at `Tuning.least_rate`.
        """
        if self._arrived:
            _, arrived, unsynced = self._arrived[0]
            return min(self.last_ack, arrived + unsynced / tuning.least_rate)
        if self._travelling:
            batch = self._travelling[0]
            latest = batch.at + batch.ahead / tuning.least_rate
            return min(self.last_ack, max(batch.at, min(self._moved, latest)))
        return self.last_ack
