"""A pair and its clients as their ledgers tell of them, in real time, with losses planted: what a watch is
measured against.

A process of its own (`python -m bench.watch.traffic '{"folder": ...}'`). The records are those that real
nodes write, through the real `LedgerWriter`; no message moves. Each planted loss is noted in `planted.jsonl`
with the time at which it became certain: that of the last record which it takes.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from understudy.ledger.writer import LedgerWriter

TICK = 0.05
RUN = 27
"""Messages in a run, about: what a trial with real clients had."""
QUIESCE = 5.0
PLANTED = "planted.jsonl"
KINDS = ("unplaced", "inventory", "failover")


@dataclass(slots=True)
class Plan:
    folder: str
    rate: int = 50_000
    """Ids a second."""
    seconds: float = 60.0
    losses: int = 125
    failover_every: float = 15.0
    producers: int = 3
    seed: int = 1
    rotate_bytes: int = 64 * 1024 * 1024
    held: int = 0
    """Messages that stay in the queue unread, besides those under way."""


@dataclass(slots=True)
class _Producer:
    writer: LedgerWriter
    name: str
    session: int = 1
    tag: int = 0
    number: int = 0

    @property
    def prod(self) -> str:
        return f"{self.name}.{self.session}/1"


@dataclass(slots=True)
class _Node:
    name: str
    folder: str
    rotate: int
    life: int = 0
    writer: LedgerWriter = field(init=False)

    def start(self, view: int) -> None:
        self.life += 1
        self.writer = LedgerWriter(
            self.folder, self.name, "broker", incarnation=self.life, view=view, rotate_bytes=self.rotate,
            cluster="bench",
        )  # fmt: skip


class Traffic:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.queue = self.random.randbytes(16).hex()
        self.planted = open(Path(plan.folder).with_name(PLANTED), "a", buffering=1)  # noqa: SIM115
        self.nodes = [_Node(name, plan.folder, plan.rotate_bytes) for name in ("a", "b")]
        self.primary, self.backup = self.nodes
        self.producers = [
            _Producer(self._client(f"p{i}", "producer"), f"p{i}") for i in range(plan.producers)
        ]
        self.consumer = self._client("c", "consumer")
        self.epoch, self.n, self.next_id = 0, 0, 1
        self.contents: list[tuple[int, int, int]] = []
        """epoch, first, last in the primary's queue, oldest first."""
        self.due: list[str] = []
        self.gone: list[tuple[int, int, int]] = []
        """Planted: dropped by the primary without a word, to be missing in the next inventory."""
        self.alone: list[tuple[int, int, int]] = []
        """Planted: confirmed without the backup, to be lost with the primary."""

    def _client(self, name: str, role: str) -> LedgerWriter:
        folder, rotate = self.plan.folder, self.plan.rotate_bytes
        return LedgerWriter(folder, name, role, incarnation=1, rotate_bytes=rotate)

    def run(self) -> None:
        plan = self.plan
        for node in self.nodes:
            node.start(0)
        self._promote("")
        began = time.monotonic()
        times = sorted(self.random.uniform(2, plan.seconds - QUIESCE - 4) for _ in range(plan.losses))
        kinds = [KINDS[i % len(KINDS)] for i in range(plan.losses)]
        quiesce_at, failover_at = QUIESCE, plan.failover_every
        for tick in range(int(plan.seconds / TICK)):
            now = tick * TICK
            time.sleep(max(0.0, began + now - time.monotonic()))
            while times and times[0] <= now:
                times.pop(0)
                self.due.append(kinds.pop())
            self._consume()
            for index, producer in enumerate(self.producers):
                self._publish(producer, self._share(tick, index))
            if now >= failover_at or now >= plan.seconds - QUIESCE - 3 > failover_at - plan.failover_every:
                failover_at = now + plan.failover_every
                self._fail_over()
            if now >= quiesce_at:
                quiesce_at = now + QUIESCE
                self._quiesce()
            self._flush()
        self._end()

    def _share(self, tick: int, index: int) -> int:
        """Messages of one producer in one tick; the rate is kept on the whole."""
        each = self.plan.rate * TICK / len(self.producers)
        return int(each * (tick + 1)) - int(each * tick) if index else int(each)

    # -- traffic

    def _publish(self, producer: _Producer, count: int) -> None:
        while count > 0:
            run = min(count, self.random.randint(RUN - 15, RUN + 15))
            count -= run
            kind = self.due.pop() if self.due else ""
            first, last = producer.tag + 1, producer.tag + run
            producer.writer.record(
                "sent", prod=producer.prod, first=first, last=last, pfirst=producer.number + 1, name="|bench"
            )
            producer.tag, producer.number = last, producer.number + run
            if kind == "unplaced":
                self._settle(producer, first, last, lost=self.random.randint(1, run))
            else:
                self._place(producer, first, last, kind)
                producer.writer.record("confirmed", prod=producer.prod, first=first, last=last)

    def _settle(self, producer: _Producer, first: int, last: int, *, lost: int) -> None:
        """The last `lost` of them are confirmed and go nowhere."""
        if last - lost >= first:
            self._place(producer, first, last - lost, "")
        producer.writer.record("confirmed", prod=producer.prod, first=first, last=last)
        self._flush()
        self._plant("unplaced", [(last - lost + 1, last)], prod=producer.prod)

    def _place(self, producer: _Producer, first: int, last: int, kind: str) -> None:
        self.n += 1
        ids = self.next_id, self.next_id + last - first
        self.next_id = ids[1] + 1
        fields: dict[str, Any] = {
            "queue": self.queue, "epoch": self.epoch, "first": ids[0], "last": ids[1],
            "prod": producer.prod, "pfirst": first, "n": self.n,
        }  # fmt: skip
        self.primary.writer.record("enqueue", **fields)
        if kind != "failover":
            self.backup.writer.record("backup_enqueue", **fields)
        if kind == "failover":
            self.alone.append((self.epoch, *ids))
        elif kind == "inventory":
            self.gone.append((self.epoch, *ids))
        else:
            self.contents.append((self.epoch, *ids))

    def _consume(self) -> None:
        """All but the newest `held` are received, acked and dequeued."""
        keep = self.plan.held
        left: list[tuple[int, int, int]] = []
        for epoch, first, last in reversed(self.contents):
            if keep > 0:
                keep -= last - first + 1
                left.append((epoch, first, last))
                continue
            where: dict[str, Any] = {"queue": self.queue, "epoch": epoch, "first": first, "last": last}
            self.consumer.record("received", **where)
            self.consumer.record("acked", **where)
            self.primary.writer.record("dequeue", **where, reason="acked")
            self.backup.writer.record("backup_dequeue", **where, reason="acked")
        self.contents = left[::-1]

    def _quiesce(self) -> None:
        name = f"{self.epoch}.{self.n}"
        every = [*self.contents, *self.alone]
        for writer in (self.primary.writer, self.backup.writer):
            for epoch, first, last in every or [(self.epoch, 0, -1)]:
                writer.record("quiesce", name=name, queue=self.queue, epoch=epoch, first=first, last=last)
        self._flush()
        for epoch, first, last in self.gone:
            self._plant("inventory", [(first, last)], epoch=epoch)
        self.gone.clear()

    # -- failover

    def _promote(self, peer: str) -> None:
        self.epoch, self.n, self.next_id = self.epoch + 65537, 0, 1
        writer = self.primary.writer
        writer.view = self.backup.writer.view = self.epoch
        writer.record("promote", peer=peer, reason="unforced" if peer else "bootstrap")
        writer.record("definition", queue=self.queue, name="bench", reason="replicated")
        writer.record("insync", name=f"{self.primary.name},{self.backup.name}", n=0, peer=self.backup.name,
                      reason="included")  # fmt: skip

    def _fail_over(self) -> None:
        """kill -9 of the primary; the backup takes over at once, and the old one joins again."""
        self._flush()
        old = self.primary
        old.writer.close(seal=False)
        self.primary, self.backup = self.backup, old
        old.start(self.epoch)
        self._promote(old.name)
        lost, self.alone = [*self.alone, *self.gone], []
        self.gone.clear()
        self._flush()
        for epoch, first, last in lost:
            self._plant("failover", [(first, last)], epoch=epoch)
        for epoch, first, last in self.contents:
            fields: dict[str, Any] = {"queue": self.queue, "epoch": epoch, "first": first, "last": last}
            self.backup.writer.record("backup_enqueue", **fields, n=0)
        for producer in self.producers:
            producer.session, producer.tag = producer.session + 1, 0

    def _writers(self) -> Iterable[LedgerWriter]:
        """Brokers first: what is confirmed is in their ledgers before."""
        yield from (node.writer for node in self.nodes)
        yield self.consumer
        yield from (producer.writer for producer in self.producers)

    def _flush(self) -> None:
        for writer in self._writers():
            writer.flush()

    def _plant(self, kind: str, ranges: list[tuple[int, int]], **where: Any) -> None:
        self.planted.write(json.dumps({"at": time.time(), "kind": kind, "ranges": ranges, **where}) + "\n")

    def _end(self) -> None:
        self._quiesce()
        for epoch, first, last in self.contents:
            for node in self.nodes:
                node.writer.record("present", queue=self.queue, epoch=epoch, first=first, last=last)
        for writer in self._writers():
            writer.close()
        self.planted.close()


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Traffic(Plan(**json.loads(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
