"""Tools for planting faults: choose places that no other fault has touched, and collect the expected
findings."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.spark.histories.facts import Facts, Key
from tests.spark.histories.generate import History
from tests.spark.histories.oracle import Named
from tests.spark.records import Process, Record, runs

MARGIN = 3
"""Ids left alone on both sides of a fault, so that two faults are not found as one."""


class Spoiler:
    def __init__(self, history: History, seed: int) -> None:
        self.history, self.ledgers = history, history.ledgers
        self.rng = random.Random(seed)
        self.facts = Facts(history.ledgers)
        self.claimed: set[Key] = set(history.cluster.left_out)
        self.numbers: dict[tuple[Any, ...], set[int]] = defaultdict(set)
        """The expected findings: (kind, queue, epoch, prod, note) -> numbers."""
        self.gaps: list[tuple[Process, Record]] = []
        self.endless: list[Process] = []
        self.sessions = 90
        self.names = iter(range(1_000_000, 9_000_000, 1000))
        tops: dict[tuple[str, int], int] = defaultdict(int)
        for queue, epoch, number in self.facts.ids:
            tops[queue, epoch] = max(tops[queue, epoch], number)
        self.tops = tops

    def found(self, kind: str, queue: str | None, epoch: int | None, prod: str | None, note: str | None,
              numbers: Iterable[int]) -> None:  # fmt: skip
        self.numbers[kind, queue, epoch, prod, note].update(numbers)

    def expected(self) -> set[Named]:
        return {(*key, tuple(runs(sorted(numbers)))) for key, numbers in self.numbers.items()}

    # -- places

    def shuffled(self, records: Iterable[tuple[Process, Record]]) -> list[tuple[Process, Record]]:
        out = list(records)
        self.rng.shuffle(out)
        return out

    def piece(self, record: Record, good: Callable[[Key], bool], most: int = 4) -> range | None:
        """Claim some ids of a record that are all `good` and unclaimed. Returns None if there are none."""
        queue, epoch = record["queue"], record["epoch"]
        size = self.rng.randint(1, most)
        starts = list(range(record["first"], record["last"] - size + 2))
        self.rng.shuffle(starts)
        for first in starts[:8]:
            if self.claim(queue, epoch, range(first, first + size), good):
                return range(first, first + size)
        return None

    def claim(
        self, queue: str, epoch: int, numbers: range, good: Callable[[Key], bool] = lambda _: True
    ) -> bool:
        keys = [(queue, epoch, number) for number in numbers]
        wide = [(queue, epoch, number) for number in range(numbers[0] - MARGIN, numbers[-1] + MARGIN + 1)]
        if any(key in self.claimed for key in wide) or not all(good(key) for key in keys):
            return False
        self.claimed.update(keys)
        return True

    def places(self, *kinds: str) -> Iterator[tuple[Process, Record]]:
        yield from self.shuffled(self.ledgers.every(*kinds))

    def about(self, record: Record, *kinds: str) -> list[Record]:
        """All records of these kinds in the same queue and epoch as this one."""
        where = record["queue"], record["epoch"]
        return [r for _, r in self.ledgers.every(*kinds) if (r["queue"], r["epoch"]) == where]

    def index(self, process: Process, record: Record) -> int:
        return next(i for i, r in enumerate(self.ledgers.records[process]) if r is record)

    def after(self, process: Process, record: Record, kind: str, **fields: Any) -> Record:
        return self.ledgers.insert(process, self.index(process, record) + 1, kind, like=record, **fields)

    # -- at the end of a ledger

    def at_end(self, process: Process, kind: str, view: int | None = None, **fields: Any) -> Record:
        """Add a record at the end: before the seal, or last in the ledger of a killed process."""
        records = self.ledgers.records[process]
        sealed = records[-1]["kind"] == "seal"
        like = {"ts_us": self.history.cluster.now, "view": records[-1]["view"] if view is None else view}
        return self.ledgers.insert(process, len(records) - sealed, kind, like=like, **fields)

    def fresh_ids(self, queue: str, epoch: int, count: int) -> range:
        first = self.tops[queue, epoch] + MARGIN + 2
        self.tops[queue, epoch] = first + count - 1
        return range(first, first + count)

    def session(self) -> tuple[Process, str]:
        """A producer process, and an unused session of it."""
        producer = self.rng.choice(self.history.cluster.producers)
        self.sessions += 1
        return producer.process, f"{producer.name}.{self.sessions}/1"

    def send(self, process: Process, prod: str, tags: range, logical: int | None = None) -> None:
        first = next(self.names) if logical is None else logical
        self.at_end(process, "sent", prod=prod, first=tags[0], last=tags[-1], pfirst=first, name="fan|late")

    def enqueue(
        self, owner: Process, view: int, queue: str, ids: range, prod: str | None, tag: int | None,
        **more: Any,
    ) -> None:  # fmt: skip
        """Enqueue a run at a new position, acked by the backups that were in sync last."""
        n = max((n for v, n in self.facts.at if v == view), default=0) + 1000 + len(self.facts.at)
        self.facts.at[view, n] = []
        where = {"queue": queue, "epoch": view, "first": ids[0], "last": ids[-1], "prod": prod, "pfirst": tag}
        self.at_end(owner, "enqueue", view, **where, n=n, **more)
        changes = [r for r in self.ledgers.records[owner] if r["kind"] == "insync" and r["view"] == view]
        for name in changes[-1]["name"].split(",") if changes else []:
            if name != owner[0]:
                upto = {"peer": name, "epoch": view, "first": n, "last": n, "reason": "applied"}
                self.at_end(owner, "replicated", view, **upto)

    def drop(self, owner: Process, view: int, queue: str, ids: range, reason: str = "dropped") -> None:
        self.at_end(
            owner, "dequeue", view, queue=queue, epoch=view, first=ids[0], last=ids[-1], reason=reason
        )

    def some_queue(self) -> str:
        return self.rng.choice(sorted(self.history.cluster.queues.values()))
