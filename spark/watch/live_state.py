"""Applies rows to the live state: sessions, ids by queue and epoch, writers, promotions. Makes no decisions.

Owner: `Judge`, one thread. Pure. The order of rows matters only within one writer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spark.watch.aging import STEPS, Aging
from spark.watch.queue_ids import QueueIds
from spark.watch.range_set import RangeSet
from spark.watch.sessions import Placed, Session
from spark.watch.writers import LiveInventory, LivePromotion, LiveWriter, Process

Row = dict[str, Any]
Key = tuple[str, int]
"""Queue and epoch."""

DORMANT = 50_000
NEVER = -1, 0
DORMANCY = 4
"""Limits for dormant sessions, queue epochs and writers: those not heard for the retention.

Only their last number is kept, for DORMANT entries of each at most, and for DORMANCY times the retention.
"""
Dormant = tuple[int, int]
"""The last number, and the time since when it is dormant."""
PROMOTIONS = 256


@dataclass(slots=True)
class QueueFacts:
    name: str = ""
    copied: bool = False
    """Its messages are replicated: a backup recorded one, or its definition says it."""
    nodes: set[str] = field(default_factory=set)
    """Brokers that recorded anything about this queue."""
    epochs: set[int] = field(default_factory=set)


class LiveState:
    def __init__(self, retention_us: int) -> None:
        self.retention_us = retention_us
        self.now = 0
        self.writers: dict[Process, LiveWriter] = {}
        self.sessions: dict[str, Session] = {}
        self.ids: dict[Key, QueueIds] = {}
        self.queues: dict[str, QueueFacts] = {}
        self.promotions: list[LivePromotion] = []
        self.mentioned: dict[str, int] = {}
        """Brokers that other ledgers name, each with the time when it was last named."""
        self.clusters: set[str] = set()
        self.forgotten = 0
        """Confirmed messages without a fate that are no longer judged: too old, or records are missing."""
        self.records = 0
        self.producers = False
        """Whether a producer's ledger is, or was, here. Without one there is nothing to judge."""
        self.dormant_sessions: dict[str, Dormant] = {}
        self.dormant_ids: dict[Key, Dormant] = {}
        self.dormant_writers: dict[Process, Dormant] = {}

    @property
    def step_us(self) -> int:
        return max(1, self.retention_us // STEPS)

    @property
    def rows(self) -> int:
        """Size of the state in entries: mostly ranges and placements."""
        parts = sum(s.rows for s in self.sessions.values()) + sum(i.rows for i in self.ids.values())
        lives = sum(1 + len(w.chain) for w in self.writers.values())
        return parts + lives + len(self.dormant_ids) + len(self.dormant_sessions) + len(self.dormant_writers)

    def name_of(self, queue: str) -> str:
        facts = self.queues.get(queue)
        return facts.name if facts and facts.name else f"queue {queue[:8]}"

    # -- rows

    def take(self, rows: Iterable[Row]) -> None:
        """Apply the rows of one batch that name their writer."""
        before: dict[Process, RangeSet] = {}
        for row in sorted(rows, key=lambda r: (r["writer"], r["incarnation"], r["at"])):
            writer = self._writer(row["writer"], row["incarnation"])
            if writer.process not in before:
                before[writer.process] = writer.chain.copy()
            kind = row["kind"]
            if writer.inventory is not None and kind != "quiesce" and kind != "chain":
                self.end_inventory(writer)
            match kind:
                case "confirmed":
                    writer.role = writer.role or "producer"
                    self.producers = True
                    session = self.session(row["prod"])
                    self._confirm(session.confirm(row["first"], row["last"]))
                case "enqueue" | "backup_enqueue":
                    self._enqueue(writer, row)
                case "dequeue" | "backup_dequeue" | "acked":
                    if kind == "acked" or row["reason"]:
                        self.of((row["queue"], row["epoch"])).fate(row["first"], row["last"])
                case "unrouted":
                    self.session(row["prod"]).settle(row["first"], row["last"])
                case "chain":
                    self._chain(writer, row)
                case "horizon":
                    # Records that came earlier were read before they were pruned.
                    if row["at"] not in before[writer.process]:
                        self._begin(row)
                case _:
                    if row["at"] not in before[writer.process]:  # promotions and inventories count once
                        self._state(writer, row, kind)

    def _begin(self, row: Row) -> None:
        """Stop judging ids or tags up to this one: their records were pruned before the watch read them."""
        if row["queue"] is not None:
            self.forgotten += self.of((row["queue"], row["epoch"])).forget(row["last"])
        else:
            self.forgotten += self.session(row["prod"]).forget(row["last"])

    def _chain(self, writer: LiveWriter, row: Row) -> None:
        first, last = row["first"], row["last"]
        self.records += last - first + 1
        writer.chain.add(first, last)
        writer.beats |= row["epoch"] >= 2
        writer.hole_file = row["file"]
        if not row["reason"]:
            writer.clear = self.now

    def _writer(self, name: str, incarnation: int) -> LiveWriter:
        writer = self.writers.get((name, incarnation))
        if writer is None:
            writer = self.writers[name, incarnation] = LiveWriter(name, incarnation, first_heard=self.now)
            if (dormant := self.dormant_writers.pop((name, incarnation), None)) is not None:
                writer.begins = dormant[0] + 1
            self._succeed(writer)
        writer.heard = self.now
        return writer

    def _succeed(self, writer: LiveWriter) -> None:
        """Mark earlier lives of this writer as ended, since a later one has started."""
        for (name, incarnation), other in self.writers.items():
            if name == writer.name and incarnation < writer.incarnation and not other.sealed:
                other.ended, other.ended_at = f"{name} started again", self.now

    def session(self, prod: str) -> Session:
        session = self.sessions.get(prod)
        if session is None:
            session = self.sessions[prod] = Session()
            session.aging = Aging(self.dormant_sessions.pop(prod, NEVER)[0])
        session.aging.touch(self.now, self.step_us)
        return session

    def of(self, key: Key) -> QueueIds:
        ids = self.ids.get(key)
        if ids is None:
            ids = self.ids[key] = QueueIds()
            ids.aging = Aging(self.dormant_ids.pop(key, NEVER)[0])
            self.facts(key[0]).epochs.add(key[1])
        ids.aging.touch(self.now, self.step_us)
        return ids

    def facts(self, queue: str) -> QueueFacts:
        return self.queues.setdefault(queue, QueueFacts())

    def _confirm(self, placed: Iterable[Placed]) -> None:
        for queue, epoch, first, last in placed:
            self.of((queue, epoch)).confirm(first, last)

    def _enqueue(self, writer: LiveWriter, row: Row) -> None:
        writer.role = writer.role or "broker"
        queue, epoch, first, last = row["queue"], row["epoch"], row["first"], row["last"]
        facts = self.facts(queue)
        facts.nodes.add(writer.name)
        ids = self.of((queue, epoch))
        if row["kind"] == "backup_enqueue":
            facts.copied = True
        elif row["view"] == epoch:
            ids.owners.add(writer.name)
        ids.hold(writer.name, first, last)
        prod, tag = row["prod"], row["pfirst"]
        if prod is not None and tag is not None:
            self._confirm(self.session(prod).place(tag, tag + last - first, queue, epoch, first))

    def _state(self, writer: LiveWriter, row: Row, kind: str) -> None:
        """Apply a record about roles, contents or a writer's end. There are few of these."""
        writer.view = max(writer.view, row["view"] or 0)
        match kind:
            case "open":
                writer.role, writer.cluster = row["name"] or "", row["reason"] or ""
                self.producers |= writer.role == "producer"
                if writer.role == "broker" and writer.cluster:
                    self.clusters.add(writer.cluster)
            case "definition":
                facts = self.facts(row["queue"])
                facts.name = row["name"] or facts.name
                facts.copied |= row["reason"] == "replicated"
                if writer.role == "broker":
                    facts.nodes.add(writer.name)
            case "promote":
                writer.role, writer.owns = "broker", row["view"]
                self._promote(writer, row)
            case "demote":
                writer.owns = -1
            case "insync":
                self._insync(writer, row)
            case "quiesce":
                self._quiesce(writer, row)
            case "present":
                held = writer.listed.setdefault(row["queue"], {}).setdefault(row["epoch"], RangeSet())
                held.add(row["first"], row["last"])
            case "seal":
                writer.sealed = True
                self._end(writer, row["at"])

    def _promote(self, writer: LiveWriter, row: Row) -> None:
        view, peer = row["view"], row["peer"] or ""
        self.promotions.append(
            LivePromotion(view, *writer.process, row["at"], peer, row["reason"] or "", self.now)
        )
        del self.promotions[:-PROMOTIONS]
        if peer and peer != writer.name:
            self._excuse(peer, view, f"{writer.name} was promoted in its place")
            self.mentioned[peer] = self.now

    def _insync(self, writer: LiveWriter, row: Row) -> None:
        peer = row["peer"] or ""
        names = {name.strip() for name in (row["name"] or "").split(",")} | {peer}
        for name in names - {""}:
            self.mentioned[name] = self.now
        if peer and peer != writer.name and row["reason"] == "excluded":
            self._excuse(peer, row["view"] + 1, f"{writer.name} excluded it")

    def _excuse(self, name: str, view: int, why: str) -> None:
        """Stop waiting for lives of `name` that know no epoch from `view` on, until they are heard again."""
        for writer in self.writers.values():
            if writer.name == name and writer.view < view and not writer.sealed:
                writer.ended, writer.ended_at = why, self.now

    # -- inventories

    def _quiesce(self, writer: LiveWriter, row: Row) -> None:
        """Add one record to an inventory of the serving primary, if all its earlier records have come."""
        name, queue = row["name"] or "", row["queue"]
        point = writer.inventory
        if point is None or point.name != name:
            self.end_inventory(writer)
            if writer.owns != row["view"] or not writer.whole_to(row["at"] - 1):
                return
            point = writer.inventory = LiveInventory(name, self.now)
        point.seen = self.now
        if queue not in point.suspects:
            self.facts(queue).copied = True
            point.suspects[queue] = {
                epoch: self.ids[queue, epoch].held[writer.name].copy()
                for epoch in self.facts(queue).epochs
                if writer.name in self.ids[queue, epoch].held
            }
        if (held := point.suspects[queue].get(row["epoch"])) is not None:
            held.remove(row["first"], row["last"])

    def end_inventory(self, writer: LiveWriter) -> None:
        """End an inventory: what its writer held and did not list is gone."""
        point, writer.inventory = writer.inventory, None
        for queue, by_epoch in point.suspects.items() if point else ():
            for epoch, missing in by_epoch.items():
                self._gone((queue, epoch), missing)

    def _end(self, writer: LiveWriter, at: int) -> None:
        """Apply a clean end. If the writer was the last primary, what it held and did not list is gone."""
        last = max((p.view for p in self.promotions), default=-1)
        if writer.owns >= last and writer.owns != -1 and writer.whole_to(at - 1):
            for (queue, epoch), ids in self.ids.items():
                if (held := ids.held.get(writer.name)) is not None:
                    listed = writer.listed.get(queue, {}).get(epoch, RangeSet())
                    self._gone((queue, epoch), held.minus(listed))
        writer.listed = {}

    def _gone(self, key: Key, missing: RangeSet) -> None:
        ids = self.ids.get(key)
        if ids is not None and missing:
            for first, last in missing.minus(ids.fated):
                first = ids.aging.clip(first, last)
                if first <= last:
                    ids.gone.add(first, last)

    # -- forgetting

    def forget_open(self) -> int:
        """Stop judging all messages without a fate, because it may be in missing records. Returns their
        number.
        """
        count = sum(ids.forget(ids.aging.highest) for ids in self.ids.values())
        count += sum(s.forget(s.aging.highest) for s in self.sessions.values())
        self.forgotten += count
        return count

    def age(self) -> None:
        """Drop everything older than the retention."""
        limit = self.now - self.retention_us
        for prod, session in list(self.sessions.items()):
            self.forgotten += session.forget(session.aging.outdated(limit))
            if session.aging.touched <= limit:
                del self.sessions[prod]
                self.dormant_sessions[prod] = session.aging.highest, self.now
        for key, ids in list(self.ids.items()):
            self.forgotten += ids.forget(ids.aging.outdated(limit))
            if ids.aging.touched <= limit:
                del self.ids[key]
                self.facts(key[0]).epochs.discard(key[1])
                self.dormant_ids[key] = ids.aging.highest, self.now
        for process, writer in list(self.writers.items()):
            ended = writer.sealed or writer.ended or writer.silent
            if ended and writer.heard <= limit and not self._is_newest_broker(writer):
                del self.writers[process]
                self.dormant_writers[process] = writer.chain.last if writer.chain else -1, self.now
        self.mentioned = {name: at for name, at in self.mentioned.items() if at > limit}
        over = self.now - DORMANCY * self.retention_us
        for table in (self.dormant_sessions, self.dormant_ids, self.dormant_writers):
            for old in [key for key, (_, since) in table.items() if since <= over]:
                del table[old]  # type: ignore[arg-type]
            trim(table)
        trim(self.queues)

    def _is_newest_broker(self, writer: LiveWriter) -> bool:
        lives = [i for name, i in self.writers if name == writer.name]
        return writer.role == "broker" and writer.incarnation == max(lives)


def trim(table: dict[Any, Any]) -> None:
    """Remove the oldest entries beyond DORMANT."""
    for key in list(table)[: max(0, len(table) - DORMANT)]:
        del table[key]
