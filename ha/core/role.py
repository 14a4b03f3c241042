"""Role: what HaBroker holds, a Primary or a Backup; and the context that both share.

Owner: HaBroker. A role appends to `context.effects` and calls the model through its port; it never calls
HaBroker.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from broker.model.values import Position
from ha.core.clocks import Clocks
from ha.core.effects import Effect, Log, Note, SaveRecord
from ha.core.membership import Membership
from ha.core.record.in_sync_record import Incarnation, InSyncRecord
from ha.core.record.own_copy import OwnCopy
from ha.core.tuning import Tuning
from ha.core.wire.link import Heartbeat
from understudy.shared.codes import Coded


@dataclass(slots=True, frozen=True)
class OwnIdentity:
    """Who this node is. `number` (1..65535) goes into the epochs it mints and must differ within a pair.

    `life` is drawn at each start and written nowhere: two processes on copies of one data directory differ in
    nothing else.
    """

    node_id: str
    name: str
    incarnation: int
    number: int
    version: str = ""
    life: str = ""

    @property
    def who(self) -> Incarnation:
        return Incarnation(self.node_id, self.incarnation)


@dataclass(slots=True)
class Context:
    """What HaBroker and its role both work on."""

    me: OwnIdentity
    tuning: Tuning
    membership: Membership
    record: InSyncRecord | None
    copy: OwnCopy
    clocks: Clocks = field(default_factory=Clocks)
    effects: list[Effect] = field(default_factory=list)

    def do(self, *effects: Effect) -> None:
        self.effects += effects

    def heed_disk(self, synced: int) -> None:
        """The disk has all up to there."""
        if self.record is not None and self.copy.synced(synced):
            self.save(self.record, self.copy.incomplete)

    def save(self, record: InSyncRecord, incomplete: bool) -> None:
        """This node's copy of the record, in memory and on disk."""
        self.record, self.copy.incomplete = record, incomplete
        self.do(SaveRecord(record, self.copy.incomplete_on_disk))

    def mark_incomplete(self) -> None:
        """From now on. Saves decided before, and still to be made, must not take the mark back."""
        self.copy.incomplete = True
        self.effects = [replace(e, incomplete=True) if isinstance(e, SaveRecord) else e for e in self.effects]

    def beat(self, now: float) -> bytes:
        """A primary's heartbeat."""
        return Heartbeat(now, self.clocks.wall_at(now), self.clocks.machine_at(now)).encode()

    def compare_clocks(self, node_id: str, name: str, machine_ms: float, now: float) -> None:
        """Another node's wall clock showed this when its word came, `now`."""
        clock = self.membership.member(node_id).clock
        clock.note(machine_ms - self.clocks.machine_at(now))
        if clock.news():
            self.log(clock.words(name))

    def log(self, sentence: str) -> None:
        self.effects.append(Log(sentence))

    def warn(self, said: Coded) -> None:
        """What an operator may have to act on."""
        self.effects.append(Log(said.sentence, said.code))

    def note(self, kind: str, **fields: Any) -> None:
        self.effects.append(Note(kind, fields))

    def note_replicated(self, peer: str, old: Position, new: Position, what: str) -> None:
        """That backup has what is beyond `old`, up to `new`: "applied", or "durable"."""
        first = old.n + 1 if old.epoch == new.epoch else 1
        if first <= new.n:
            self.note("replicated", peer=peer, epoch=new.epoch, first=first, last=new.n, reason=what)

    def note_record(self, what: str, peer: str, position: Position) -> None:
        """The record is another, since `peer` is "included" or "excluded"."""
        names = self.record.names if self.record is not None else {}
        in_sync = self.record.in_sync if self.record is not None else ()
        found = sorted(names.get(who.node_id, who.node_id) for who in in_sync)
        self.note("insync", name=",".join(found), n=position.n, peer=peer, reason=what)


class Role(Protocol):
    """What HaBroker may ask of either."""

    def peer_lost(self, peer: int, clean: bool, now: float) -> None: ...

    def end_tick(self, now: float) -> None:
        """After the history of the tick was flushed, or the link's frames applied."""

    def timers(self, now: float) -> None: ...

    def next_deadline(self) -> float | None: ...

    def reason(self) -> str:
        """One sentence on how things stand."""
