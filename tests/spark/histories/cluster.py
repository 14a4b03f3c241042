"""Simulates a cluster message by message: what its nodes hold, and what each process records in its ledger.

Owner: `generate`, which decides what happens next. Nothing here breaks a rule. A confirm waits for all
in-sync backups and for the disks. A promoted node has all confirmed messages. A rejoining node exports and
drops what the new history never had. Steps follow one another, and the only clock is `now`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tests.spark.histories.ledgers import Ledgers
from tests.spark.records import Process, Record, runs

Id = tuple[int, int]
"""Epoch and number of a message in its queue."""
START_US = 1_700_000_000_000_000
CLUSTER = "c1a5"


@dataclass
class Put:
    queue: str
    ids: list[Id]
    prod: str | None
    tag: int | None
    durable: bool
    name: str | None = None
    """The producer, if it numbers its messages."""
    number: int | None = None


@dataclass
class Entry:
    """One position of an epoch's history."""

    n: int
    puts: list[Put] = field(default_factory=list)
    takes: list[tuple[str, list[Id], str]] = field(default_factory=list)

    @property
    def durable(self) -> bool:
        return any(put.durable for put in self.puts)


@dataclass
class Node:
    name: str
    incarnation: int = 1
    view: int = 0
    alive: bool = True
    applied: int = 0
    """The last position of the current epoch that it has."""
    contents: dict[str, dict[Id, None]] = field(default_factory=lambda: defaultdict(dict))
    seen: set[tuple[str, Id]] = field(default_factory=set)
    """All ids that its line of history ever held."""
    disk: set[tuple[str, Id]] = field(default_factory=set)
    numbers: dict[tuple[str, str | None, int], Id] = field(default_factory=dict)
    """By queue, producer and number: the last id that its line of history gave."""

    @property
    def process(self) -> Process:
        return self.name, self.incarnation


@dataclass
class Pending:
    tag: int
    route: int
    persistent: bool


@dataclass
class Producer:
    name: str
    incarnation: int = 1
    connection: int = 0
    tag: int = 0
    logical: int = 0
    pending: dict[int, Pending] = field(default_factory=dict)
    """Messages sent and not yet answered, by logical number."""

    @property
    def process(self) -> Process:
        return self.name, self.incarnation

    @property
    def prod(self) -> str:
        return f"{self.name}.{self.connection}/1"

    @property
    def numbered(self) -> bool:
        """Every other one numbers its messages."""
        return int(self.name[1:]) % 2 == 0


@dataclass
class Consumer:
    name: str
    queue: str
    """Name of the queue, since the queue itself may be deleted and declared again."""
    incarnation: int = 1
    unacked: list[Id] = field(default_factory=list)

    @property
    def process(self) -> Process:
        return self.name, self.incarnation


class Cluster:
    def __init__(self, rng: random.Random, brokers: int, producers: int, consumers: int, queues: int) -> None:
        self.rng = rng
        self.now = START_US
        self.ledgers = Ledgers()
        self.epoch, self.n, self.durable_upto = 1 << 16 | 1, 0, 0
        self.nodes = [Node("abc"[place]) for place in range(brokers)]
        self.primary = self.nodes[0]
        self.ready: list[Node] = []
        """Backups in sync."""
        self.log: list[Entry] = []
        self.acked: dict[str, int] = {}
        """The last acked position that the primary knows of, by backup."""
        self.queues = {f"q{place}": rng.randbytes(16).hex() for place in range(queues)}
        self.durable = {name: rng.random() < 0.6 for name in self.queues}
        self.next_id: dict[str, int] = defaultdict(lambda: 1)
        names = list(self.queues)
        self.routes = [
            tuple(names[:1]),
            *(tuple(rng.sample(names, rng.randint(1, len(names)))) for _ in names),
            (),
        ]
        self.producers = [Producer(f"p{place}") for place in range(producers)]
        self.consumers = [Consumer(f"c{place}", rng.choice(names)) for place in range(consumers)]
        self.delivered: dict[str, set[Id]] = defaultdict(set)
        """Ids delivered by the current primary, or possibly by an earlier one, by queue."""
        self.origin: dict[tuple[str, Id], Put] = {}
        self.quiet: tuple[int, int] = (0, 0)
        """Epoch and position of the last consistency checkpoint."""
        self.left_out: set[tuple[str, int, int]] = set()
        """Queue, epoch and number in the queue of ids that stand for messages that were sent again."""
        self.awaiting: list[tuple[int, Producer, str, list[int]]] = []
        """Position, producer, session and logical numbers of unconfirmed publishes."""

    @property
    def clients(self) -> list[Producer | Consumer]:
        return [*self.producers, *self.consumers]

    def living(self) -> list[Node | Producer | Consumer]:
        return [*(node for node in self.nodes if node.alive), *self.clients]

    # -- records

    def step(self, most_us: int = 400) -> None:
        self.now += self.rng.randint(20, most_us)

    def note(self, party: Node | Producer | Consumer, kind: str, **fields: Any) -> Record:
        view = party.view if isinstance(party, Node) else 0
        return self.ledgers.note(party.process, self.now, view, kind, **fields)

    def note_ids(self, party: Node | Consumer, kind: str, queue: str, ids: list[Id], **fields: Any) -> None:
        """Record ids in this order, as the ranges that a real writer would make of them."""
        for epoch, numbers in by_epoch(ids):
            for first, last in runs(numbers):
                self.note(party, kind, queue=queue, epoch=epoch, first=first, last=last, **fields)

    def open_all(self) -> None:
        for node in self.nodes:
            self.note(node, "open", name="broker", reason=CLUSTER)
        for role, clients in (("producer", self.producers), ("consumer", self.consumers)):
            for client in clients:
                self.note(client, "open", name=role, reason="")
        self.take_over(self.primary, "", "bootstrap")
        for name in self.queues:
            self.define(name)

    def define(self, name: str) -> None:
        for node in (self.primary, *self.ready):
            self.note(node, "definition", queue=self.queues[name], name=name)

    # -- publishing

    def send(
        self, producer: Producer, count: int, route: int, persistent: bool, first: int | None = None
    ) -> list[int]:
        """A producer sends `count` messages on one route. Returns their logical numbers."""
        first = producer.logical + 1 if first is None else first
        producer.logical = max(producer.logical, first + count - 1)
        numbers = list(range(first, first + count))
        for number in numbers:
            producer.tag += 1
            producer.pending[number] = Pending(producer.tag, route, persistent)
        where = {"first": producer.tag - count + 1, "last": producer.tag, "pfirst": first}
        self.note(producer, "sent", prod=producer.prod, **where, name="fan|" + ".".join(self.routes[route]))
        self.step()
        return numbers

    def arrive(self, producer: Producer, batches: list[list[int]], *, commit: bool = False) -> None:
        """The primary takes batches of one route each; with `commit`, all of them at one position."""
        entry = None
        for numbers in batches:
            pending = producer.pending[numbers[0]]
            first, last = pending.tag, producer.pending[numbers[-1]].tag
            if entry is None or not commit:
                entry = self.append()
            if not self.routes[pending.route]:
                self.note(self.primary, "unrouted", prod=producer.prod, first=first, last=last)
            for name in self.routes[pending.route]:
                if producer.numbered:
                    self.put_new(entry, name, producer, numbers, first, pending.persistent)
                else:
                    self.put(entry, name, len(numbers), producer.prod, first, pending.persistent)
            self.awaiting.append((entry.n, producer, producer.prod, numbers))
        if commit and entry:
            tags = [producer.pending[number].tag for numbers in batches for number in numbers]
            self.note(self.primary, "commit", prod=producer.prod, first=min(tags), last=max(tags), n=entry.n)
        self.step()

    def append(self) -> Entry:
        self.n += 1
        self.log.append(Entry(self.n))
        self.primary.applied = self.n
        return self.log[-1]

    def put_new(
        self, entry: Entry, name: str, producer: Producer, numbers: list[int], tag: int, persistent: bool
    ) -> None:
        """The queue leaves out what it had."""
        queue, who = self.queues[name], producer.name
        had = [self.primary.numbers.get((queue, who, number)) for number in numbers]
        for known, group in groupby(range(len(numbers)), lambda place: had[place] is not None):
            places = list(group)
            first, number = tag + places[0], numbers[places[0]]
            if not known:
                self.put(entry, name, len(places), producer.prod, first, persistent, who, number)
                continue
            where = {"prod": producer.prod, "first": first, "last": tag + places[-1]}
            self.note(self.primary, "duplicate", queue=queue, **where, name=who, number=number)
            self.left_out.update((queue, *i) for place in places if (i := had[place]) is not None)

    def put(
        self, entry: Entry, name: str, count: int, prod: str | None, tag: int | None, persistent: bool,
        who: str | None = None, number: int | None = None,
    ) -> None:  # fmt: skip
        queue = self.queues[name]
        first = self.next_id[queue]
        self.next_id[queue] += count
        ids = [(self.epoch, number) for number in range(first, first + count)]
        put = Put(queue, ids, prod, tag, persistent and self.durable[name], who, number)
        entry.puts.append(put)
        self.origin.update(dict.fromkeys(((queue, i) for i in ids), put))
        self.enter(self.primary, "enqueue", entry.n, put)

    def enter(self, node: Node, kind: str, n: int, put: Put) -> None:
        where = {"queue": put.queue, "epoch": put.ids[0][0], "first": put.ids[0][1], "last": put.ids[-1][1]}
        durable = 1 if put.durable else None
        told = {"durable": durable, "name": put.name, "number": put.number}
        self.note(node, kind, **where, prod=put.prod, pfirst=put.tag, n=n, **told)
        if put.number is not None:
            node.numbers |= {(put.queue, put.name, put.number + k): i for k, i in enumerate(put.ids)}
        node.contents[put.queue].update(dict.fromkeys(put.ids))
        node.seen.update((put.queue, i) for i in put.ids)

    def refuse(self, producer: Producer, numbers: list[int], kind: str) -> None:
        """The messages are nacked, or returned and confirmed; no queue gets them."""
        tags = [producer.pending.pop(number).tag for number in numbers]
        if kind == "returned":
            self.note(self.primary, "unrouted", prod=producer.prod, first=tags[0], last=tags[-1])
            self.step()
            self.note(producer, "returned", prod=producer.prod, first=tags[0], last=tags[-1])
        self.step()
        self.note(
            producer,
            "nacked" if kind == "nacked" else "confirmed",
            prod=producer.prod,
            first=tags[0],
            last=tags[-1],
        )

    # -- replication

    def replicate(self, lag: bool = False) -> None:
        """Backups apply and acknowledge, the primary syncs its disk and confirms what it may."""
        for node in self.ready:
            target = self.rng.randint(node.applied, self.n) if lag else self.n
            self.apply(node, target)
            self.step()
            heard = self.acked[node.name]
            if heard < target:
                upto = {"peer": node.name, "epoch": self.epoch, "first": heard + 1, "last": target}
                self.note(self.primary, "replicated", **upto, reason="applied")
                if any(e.durable for e in self.log[heard:target]):
                    self.step()
                    self.note(self.primary, "replicated", **upto, reason="durable")
                self.acked[node.name] = target
        self.sync_disk()
        self.confirm()

    def apply(self, node: Node, target: int) -> None:
        for entry in self.log[node.applied : target]:
            for put in entry.puts:
                self.enter(node, "backup_enqueue", entry.n, put)
            for queue, ids, reason in entry.takes:
                self.note_ids(node, "backup_dequeue", queue, ids, reason=reason)
                for i in ids:
                    node.contents[queue].pop(i, None)
        node.applied = target

    def sync_disk(self) -> None:
        fresh = self.log[self.durable_upto :]
        if any(entry.durable for entry in fresh):
            self.note(self.primary, "durable", epoch=self.epoch, first=self.durable_upto + 1, last=self.n)
            for put in (put for entry in fresh for put in entry.puts if put.durable):
                self.primary.disk.update((put.queue, i) for i in put.ids)
            self.durable_upto = self.n
        self.step()

    def confirm(self) -> None:
        floor = min((self.acked[node.name] for node in self.ready), default=self.n)
        floor = min(floor, self.n)
        due = [waiting for waiting in self.awaiting if waiting[0] <= floor]
        self.awaiting = [waiting for waiting in self.awaiting if waiting[0] > floor]
        for _, producer, prod, numbers in due:
            tags = sorted(producer.pending.pop(number).tag for number in numbers)
            self.step(100)
            for first, last in runs(tags):
                self.note(producer, "confirmed", prod=prod, first=first, last=last)

    def include(self, node: Node) -> None:
        """A node gets in sync by a snapshot. First it exports and drops what the new history never had."""
        node.view = self.epoch
        for queue, held in node.contents.items():
            surplus = [i for i in held if (queue, i) not in self.primary.seen]
            self.note_ids(node, "quarantine", queue, sorted(surplus))
        for name, queue in self.queues.items():
            self.note(node, "definition", queue=queue, name=name)
        self.copy_state(node)
        self.ready.append(node)
        self.acked[node.name] = self.n
        self.note_sync(node.name, "included")
        self.quiesce()

    def copy_state(self, node: Node) -> None:
        node.contents.clear()
        for queue, held in sorted(self.primary.contents.items()):
            for put in self.as_runs(queue, sorted(held)):
                self.enter(node, "backup_enqueue", self.n, put)
        node.seen, node.applied, node.disk = set(self.primary.seen), self.n, set()
        node.numbers = dict(self.primary.numbers)

    def as_runs(self, queue: str, ids: list[Id]) -> list[Put]:
        """The remaining parts of the runs to which these ids belonged."""
        out: list[Put] = []
        for i in ids:
            whole = self.origin[queue, i]
            if out and self.origin[queue, out[-1].ids[-1]] is whole and out[-1].ids[-1][1] + 1 == i[1]:
                out[-1].ids.append(i)
            else:
                shift = i[1] - whole.ids[0][1]
                tag = None if whole.tag is None else whole.tag + shift
                number = None if whole.number is None else whole.number + shift
                out.append(Put(queue, [i], whole.prod, tag, whole.durable, whole.name, number))
        return out

    def note_sync(self, peer: str, reason: str) -> None:
        names = ",".join(sorted(node.name for node in (self.primary, *self.ready)))
        self.note(self.primary, "insync", name=names, n=self.n + 1, peer=peer, reason=reason)

    def exclude(self, node: Node) -> None:
        """Exclude a node for which confirms have waited; from now on they do not."""
        self.ready.remove(node)
        self.note_sync(node.name, "excluded")
        self.step()
        self.confirm()

    def quiesce(self) -> None:
        """Make a consistency checkpoint, unless nothing happened since the last one."""
        if self.quiet != (self.epoch, self.n):
            self.quiet = self.epoch, self.n
            self.list_contents("quiesce")

    def list_contents(self, kind: str) -> None:
        for node in (self.primary, *self.ready):
            for queue, held in sorted(node.contents.items()):
                name = f"{self.epoch}.{self.n}" if kind == "quiesce" else None
                self.note_ids(node, kind, queue, sorted(held), name=name)
                if not held and kind == "quiesce":
                    self.note(node, kind, name=name, queue=queue, epoch=self.epoch, first=0, last=-1)

    # -- consuming

    def deliver(self, consumer: Consumer, count: int) -> None:
        """Deliver the oldest messages that no consumer holds, flagged if they may have been
        delivered before."""
        queue = self.queues[consumer.queue]
        taken = {i for other in self.consumers if other.queue == consumer.queue for i in other.unacked}
        free = [i for i in sorted(self.primary.contents[queue]) if i not in taken][:count]
        consumer.unacked += free
        again = self.delivered[queue]
        flagged = [i for i in free if i in again or i[0] < self.epoch]
        self.note_ids(consumer, "received", queue, flagged, reason="redelivered")
        self.note_ids(consumer, "received", queue, [i for i in free if i not in set(flagged)])
        again.update(free)
        self.step()

    def acknowledge(self, consumer: Consumer, count: int, *, seen: bool = True) -> None:
        """The consumer acks its oldest messages. Unless `seen`, the connection fails before the primary
        knows."""
        done, consumer.unacked = consumer.unacked[:count], consumer.unacked[count:]
        queue = self.queues[consumer.queue]
        self.note_ids(consumer, "acked", queue, sorted(done))
        self.step()
        if seen and done:
            self.take(queue, done, "acked")

    def take(self, queue: str, ids: list[Id], reason: str, entry: Entry | None = None) -> None:
        """Remove ids from the primary's queue, and later from the backups'."""
        (entry or self.append()).takes.append((queue, sorted(ids), reason))
        self.note_ids(self.primary, "dequeue", queue, sorted(ids), reason=reason)
        for i in ids:
            del self.primary.contents[queue][i]

    # -- roles

    def take_over(self, node: Node, previous: str, reason: str) -> None:
        self.primary, self.n, self.durable_upto, self.log = node, 0, 0, []
        self.next_id.clear()
        self.ready, self.acked, self.awaiting = [], {}, []
        node.view, node.applied = self.epoch, 0
        self.note(node, "promote", peer=previous, reason=reason)
        self.note(node, "insync", name=node.name, n=1, peer=previous, reason="promoted")


def by_epoch(ids: list[Id]) -> list[tuple[int, list[int]]]:
    """Ids -> stretches of the same epoch, in order."""
    out: list[tuple[int, list[int]]] = []
    for epoch, number in ids:
        if not out or out[-1][0] != epoch:
            out.append((epoch, []))
        out[-1][1].append(number)
    return out
