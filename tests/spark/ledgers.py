"""Generates the ledgers of a pair, its producers and consumers through a failover: consistent, seeded, small.

`Pair(seed).run()` gives `Ledgers` of plain dicts. Tests plant faults in them; then `write` numbers the
records and writes the files. Shares no code with the job: it follows single ids, never ranges.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.spark.records import Process, Record, Records, remainder, runs

CLUSTER = "c1a5"
START_US = 1_700_000_000_000_000


class Ledgers(Records):
    def cut(self, kinds: Iterable[str], matches: Callable[[Record], bool], first: int, last: int) -> None:
        """Remove first..last from all matching records of these kinds, and keep what remains of each."""
        wanted = set(kinds)
        for process, records in self.records.items():
            kept: list[Record] = []
            for r in records:
                hit = r["kind"] in wanted and matches(r) and r["first"] <= last and r["last"] >= first
                kept += remainder(r, first, last) if hit else [r]
            self.records[process] = kept

    def write(self, folder: Path, skew_us: Mapping[str, int] = MappingProxyType({})) -> Path:
        """Write one file for each process, named as the real writers name theirs.

        `skew_us`: how far a writer's clock is ahead.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for (writer, incarnation), records in self.records.items():
            head = {"v": 2, "writer": writer, "incarnation": incarnation}
            ahead = skew_us.get(writer, 0)
            lines = [
                json.dumps({**head, "wseq": wseq, **record, "ts_us": record["ts_us"] + ahead})
                for wseq, record in enumerate(records)
            ]
            path = folder / f"{writer}-{incarnation}-0.ledger.jsonl"
            path.write_text("".join(line + "\n" for line in lines))
        return folder


@dataclass
class Producer:
    name: str
    session: int = 0
    tag: int = 0
    logical: int = 0
    unconfirmed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Logical number -> (tag in this session, route)."""

    @property
    def process(self) -> Process:
        return self.name, 7

    @property
    def prod(self) -> str:
        return f"{self.name}.{self.session}/1"


@dataclass
class Consumer:
    name: str
    queue: str
    unacked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def process(self) -> Process:
        return self.name, 3


@dataclass
class Node:
    name: str
    incarnation: int = 1
    contents: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    had: dict[str, set[tuple[str, int]]] = field(default_factory=lambda: defaultdict(set))
    """By queue: producers and numbers that it had."""

    @property
    def process(self) -> Process:
        return self.name, self.incarnation


class Pair:
    """A primary `a` and a backup `b`, two producers, three consumers, two queues, and unrouted messages.
    `numbered`: producers number their messages, and queues take no number twice."""

    def __init__(self, seed: int = 1, ticks: int = 60, batch: int = 30, *, numbered: bool = False) -> None:
        self.numbered = numbered
        self.rng = random.Random(seed)
        self.ticks, self.batch = ticks, batch
        self.now = START_US
        self.ledgers = Ledgers()
        self.epoch, self.n = 1 << 16 | 1, 0
        self.primary, self.backup = Node("a"), Node("b")
        self.in_sync = False
        self.reached: dict[tuple[int, str, str | None], int] = {}
        """The last position of each kind of ack in each epoch."""
        self.queues = {name: self.rng.randbytes(16).hex() for name in ("orders", "audit")}
        self.next_id = dict.fromkeys(self.queues.values(), 1)
        self.routes = [("orders",), ("orders", "audit"), ("audit",), ()]
        self.producers = [Producer("p1"), Producer("p2")]
        orders, audit = self.queues.values()
        self.consumers = [Consumer("c1", orders), Consumer("c2", orders), Consumer("c3", audit)]

    def note(self, process: Process, kind: str, **fields: Any) -> Record:
        view = self.epoch if process[0] in ("a", "b") else 0
        return self.ledgers.note(process, self.now, view, kind, **fields)

    def run(self) -> Ledgers:
        for node in (self.primary, self.backup):
            self.note(node.process, "open", name="broker", reason=CLUSTER)
        for role, clients in (("producer", self.producers), ("consumer", self.consumers)):
            for client in clients:
                self.note(client.process, "open", name=role, reason="")
        self.promote("", "bootstrap")
        for name, queue in self.queues.items():
            self.note(self.primary.process, "definition", queue=queue, name=name)
        for tick in range(self.ticks):
            if tick == self.ticks // 6 or (tick == self.ticks * 3 // 4 and not self.in_sync):
                self.include()
            if tick == self.ticks // 2:
                self.fail_over()
            self.tick()
        self.end()
        return self.ledgers

    # -- the life of the pair

    def promote(self, previous: str, reason: str) -> None:
        self.note(self.primary.process, "promote", peer=previous, reason=reason)
        alone = {"name": self.primary.name, "n": 1, "peer": previous, "reason": "promoted"}
        self.note(self.primary.process, "insync", **alone)

    def include(self) -> None:
        """The backup catches up by a snapshot; confirms wait for it from the next position on."""
        self.backup.contents = defaultdict(list, {q: list(ids) for q, ids in self.primary.contents.items()})
        self.backup.had = defaultdict(set, {q: set(had) for q, had in self.primary.had.items()})
        self.in_sync = True
        for name, queue in self.queues.items():
            self.note(self.backup.process, "definition", queue=queue, name=name)
        names = ",".join(sorted((self.primary.name, self.backup.name)))
        self.note(
            self.primary.process, "insync", name=names, n=self.n + 1, peer=self.backup.name, reason="included"
        )

    def tick(self) -> None:
        self.now += self.rng.randint(1000, 5000)
        for producer in self.producers:
            sent = self.send(producer, self.rng.randint(0, self.batch), self.rng.randrange(len(self.routes)))
            self.enqueue(producer, sent)
            self.replicate()
            self.confirm(producer, sent)
        for consumer in self.consumers:
            self.deliver(consumer, self.rng.randint(0, self.batch))
            if self.rng.random() < 0.6:
                self.acknowledge(consumer)

    def send(self, producer: Producer, count: int, route: int, logical: int | None = None) -> list[int]:
        """Publish `count` messages on one route. Returns their logical numbers."""
        if not count:
            return []
        first, tag = (producer.logical + 1 if logical is None else logical), producer.tag + 1
        producer.logical = max(producer.logical, first + count - 1)
        producer.tag += count
        for place in range(count):
            producer.unconfirmed[first + place] = (tag + place, route)
        name = "|".join(("fan", ".".join(self.routes[route])))
        self.note(
            producer.process,
            "sent",
            prod=producer.prod,
            first=tag,
            last=producer.tag,
            pfirst=first,
            name=name,
        )
        return list(range(first, first + count))

    def enqueue(self, producer: Producer, numbers: list[int], *, copied: bool = True) -> None:
        """The primary enqueues a run; an in-sync backup follows unless `copied` is false."""
        if not numbers:
            return
        tag, route = producer.unconfirmed[numbers[0]]
        last_tag = tag + len(numbers) - 1
        self.n += 1
        if not self.routes[route]:
            self.note(self.primary.process, "unrouted", prod=producer.prod, first=tag, last=last_tag)
        for name in self.routes[route]:
            queue = self.queues[name]
            told = {"name": producer.name, "number": numbers[0]} if self.numbered else {}
            again = {(producer.name, number) for number in numbers}
            if self.numbered and again & self.primary.had[queue]:
                assert again <= self.primary.had[queue]
                where = {"queue": queue, "prod": producer.prod, "first": tag, "last": last_tag, **told}
                self.note(self.primary.process, "duplicate", **where)
                continue
            self.primary.had[queue] |= again
            if copied and self.in_sync:
                self.backup.had[queue] |= again
            first = self.next_id[queue]
            self.next_id[queue] += len(numbers)
            ids = [(self.epoch, sequence) for sequence in range(first, first + len(numbers))]
            where = {"queue": queue, "epoch": self.epoch, "first": first, "last": ids[-1][1], "pfirst": tag}
            where |= ({"durable": 1} if name == "orders" else {}) | told
            self.note(self.primary.process, "enqueue", **where, prod=producer.prod, n=self.n)
            self.primary.contents[queue] += ids
            if copied and self.in_sync:
                self.note(self.backup.process, "backup_enqueue", **where, prod=producer.prod, n=self.n)
                self.backup.contents[queue] += ids

    def replicate(self) -> None:
        """Record that all positions so far are on the primary's disk, and applied and on disk at an in-sync
        backup."""
        kinds: list[tuple[str, str | None, str | None]] = [("durable", None, None)]
        if self.in_sync:
            kinds += [("replicated", self.backup.name, reason) for reason in ("applied", "durable")]
        for kind, peer, reason in kinds:
            noted = self.reached.get((self.epoch, kind, reason), 0)
            if noted < self.n:
                self.note(
                    self.primary.process, kind, peer=peer, epoch=self.epoch, first=noted + 1, last=self.n,
                    reason=reason,
                )  # fmt: skip
                self.reached[self.epoch, kind, reason] = self.n

    def confirm(self, producer: Producer, numbers: list[int]) -> None:
        self.replicate()
        for first, last in runs(producer.unconfirmed.pop(number)[0] for number in numbers):
            self.note(producer.process, "confirmed", prod=producer.prod, first=first, last=last)

    def deliver(self, consumer: Consumer, count: int) -> None:
        """Deliver the oldest messages that no consumer holds; those of an earlier epoch are flagged."""
        held = {i for c in self.consumers if c.queue == consumer.queue for i in c.unacked}
        free = [i for i in self.primary.contents[consumer.queue] if i not in held][:count]
        consumer.unacked += free
        for epoch in sorted({epoch for epoch, _ in free}):
            reason = "redelivered" if epoch < self.epoch else None
            for first, last in runs(sequence for e, sequence in free if e == epoch):
                self.note(
                    consumer.process, "received", queue=consumer.queue, epoch=epoch, first=first, last=last,
                    reason=reason,
                )  # fmt: skip

    def acknowledge(self, consumer: Consumer, *, seen: bool = True, copied: bool = True) -> None:
        """The consumer acks all it holds. If `seen`, the primary dequeues it; if `copied`, the backup too."""
        done, consumer.unacked = consumer.unacked, []
        for epoch in sorted({epoch for epoch, _ in done}):
            for first, last in runs(sorted(sequence for e, sequence in done if e == epoch)):
                where = {"queue": consumer.queue, "epoch": epoch, "first": first, "last": last}
                self.note(consumer.process, "acked", **where)
                if seen:
                    reason = self.rng.choice(("acked", "acked", "acked", "expired"))
                    self.note(self.primary.process, "dequeue", **where, reason=reason)
                    if copied and self.in_sync:
                        self.note(self.backup.process, "backup_dequeue", **where, reason=reason)
        for node, follows in ((self.primary, seen), (self.backup, seen and copied and self.in_sync)):
            if follows:
                gone, held = set(done), node.contents[consumer.queue]
                node.contents[consumer.queue] = [i for i in held if i not in gone]

    def fail_over(self) -> None:
        """Kill the primary with various messages in flight. The backup takes over; the old primary joins
        later."""
        one, two = self.producers
        self.send(one, 5, 0)  # never reaches the primary
        copied = self.send(one, 6, 1)  # replicated, but the confirm gets lost
        self.enqueue(one, copied)
        self.replicate()
        alone = self.send(two, 7, 0)  # only in the dead primary, which delivers it
        self.enqueue(two, alone, copied=False)
        self.deliver(self.consumers[0], 200)
        self.deliver(self.consumers[2], 200)
        self.acknowledge(self.consumers[0], copied=False)
        self.acknowledge(self.consumers[2], seen=False)
        for consumer in self.consumers:
            consumer.unacked = []
        old, self.primary = self.primary, self.backup
        self.now += 350_000
        self.epoch, self.n, self.in_sync = 2 << 16 | 2, 0, False
        self.next_id = dict.fromkeys(self.next_id, 1)
        self.promote(old.name, "unforced")
        self.now += 20_000
        self.backup = Node(old.name, old.incarnation + 1)
        self.note(self.backup.process, "open", name="broker", reason=CLUSTER)
        for producer in self.producers:
            self.resend(producer)

    def resend(self, producer: Producer) -> None:
        """Begin a new session with the in-doubt messages, in order, one route after the other."""
        doubt, producer.unconfirmed = producer.unconfirmed, {}
        producer.session, producer.tag = producer.session + 1, 0
        for route in range(len(self.routes)):
            for first, last in runs(sorted(number for number, (_, r) in doubt.items() if r == route)):
                sent = self.send(producer, last - first + 1, route, first)
                self.enqueue(producer, sent)
                self.confirm(producer, sent)

    def end(self) -> None:
        """One queue is emptied, the other keeps messages. All processes end cleanly, with equal copies."""
        self.now += 3000
        more = self.send(self.producers[0], 40, 1)
        self.enqueue(self.producers[0], more)
        self.replicate()
        self.confirm(self.producers[0], more)
        self.deliver(self.consumers[2], 100_000)
        for consumer in self.consumers:
            self.acknowledge(consumer)
        for node in (self.primary, self.backup):
            for kind, name in (("quiesce", "end"), ("present", None)):
                self.list_contents(node, kind, name)
        clients: list[Producer | Consumer] = [*self.producers, *self.consumers]
        for party in (self.primary, self.backup, *clients):
            self.note(party.process, "seal")

    def list_contents(self, node: Node, kind: str, name: str | None) -> None:
        for queue, ids in sorted(node.contents.items()):
            for epoch in sorted({epoch for epoch, _ in ids}):
                for first, last in runs(sorted(s for e, s in ids if e == epoch)):
                    where = {"queue": queue, "epoch": epoch, "first": first, "last": last}
                    self.note(node.process, kind, name=name, **where)
            if not ids and kind == "quiesce":
                self.note(node.process, kind, name=name, queue=queue, epoch=self.epoch, first=0, last=-1)
