"""Makes the ledgers of a pair and its clients through a failover, of any size: consistent, seeded.

    python -m bench.spark.generate FOLDER --ids 100M [--form jsonl] [--skew] [--per-id]

Works on columns, never on single messages: block by block, so that memory does not grow with the size. Runs
of several producers interleave in each queue, deliveries go round among consumers, acks arrive out of order
and are gathered, as the brokers do; in the middle the primary dies with messages in doubt and in flight. The
job must find all of it proven.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.spark.files import Ints, Ledger, Value

START_US = 1_700_000_000_000_000
CLUSTER = "c1a5"
EPOCHS = (1 << 16 | 1, 2 << 16 | 2)
US_PER_ID = 20
"""50,000 messages a second."""


@dataclass(slots=True, frozen=True)
class Shape:
    """How long things are, in ids or in runs, on average where not exact."""

    run: int = 30
    """ids of a producer that the primary enqueues together"""
    gather: int = 8
    """runs of a producer in a `sent` and in a `confirmed`"""
    flush: int = 8
    """runs between two flushes of the primary: one `replicated` each"""
    chunk: int = 200
    """ids that a consumer receives, and acks, at once"""
    acks: int = 4
    """chunks that a flush of dequeues gathers"""
    queues: int = 4
    producers: int = 8
    consumers: int = 3
    """consumers of each queue"""
    skew: float = 0.0
    """share of the first queue; 0: all alike"""
    doubt: int = 40
    """ids of each producer that are in doubt at the failover"""
    block: int = 4_000_000
    """ids made at once"""


PER_ID = Shape(run=1, gather=1, chunk=1, acks=64, block=500_000)
"""Each record names one id."""


@dataclass(slots=True)
class State:
    """Where everything stands between two blocks. One entry for each queue or producer."""

    now: int
    view: int
    n: int
    next_id: Ints
    tags: Ints
    logical: Ints
    session: int = 0


@dataclass(slots=True)
class Runs:
    """Enqueued runs in order. `tag` and `ids`: the first of each; times in microseconds."""

    producer: Ints
    queue: Ints
    count: Ints
    tag: Ints
    logical: Ints
    ids: Ints
    n: Ints
    sent_us: Ints
    flush_us: Ints
    flush: Ints


def before(values: Ints, groups: Ints, starts: Ints) -> Ints:
    """For each place, its group's start plus what the group's earlier values add up to."""
    order = np.argsort(groups, kind="stable")
    sums = np.cumsum(values[order]) - values[order]
    sorted_groups = groups[order]
    first = np.searchsorted(sorted_groups, np.arange(len(starts)))
    base = np.append(sums, 0)[np.minimum(first, len(sums) - 1)]
    out = np.empty_like(values)
    out[order] = sums - base[sorted_groups] + starts[sorted_groups]
    return out


def bounds(size: int, step: int) -> Ints:
    return np.arange(0, size, step, dtype=np.int64)


@dataclass(slots=True)
class Pair:
    """The processes, and what happens to them. `run` makes it all."""

    folder: Path
    ids: int
    shape: Shape
    seed: int
    form: str = "parquet"
    progress: Callable[[int], None] = lambda done: None
    rng: np.random.Generator = field(init=False)
    state: State = field(init=False)
    queue_names: npt.NDArray[np.object_] = field(init=False)
    brokers: dict[str, Ledger] = field(init=False)
    producers: list[Ledger] = field(init=False)
    consumers: list[Ledger] = field(init=False)
    closed: list[Ledger] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = self.shape
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rng = np.random.default_rng(self.seed)
        names = [self.rng.bytes(16).hex() for _ in range(shape.queues)]
        self.queue_names = np.array(names, dtype=object)
        ones = np.ones(shape.producers, dtype=np.int64)
        self.state = State(START_US, EPOCHS[0], 1, np.ones(shape.queues, dtype=np.int64), ones, ones.copy())
        self.brokers = {name: self._ledger(name, 1, "broker") for name in "ab"}
        self.producers = [self._ledger(f"shop{p}", 7, "producer") for p in range(shape.producers)]
        takers = range(shape.queues * shape.consumers)
        self.consumers = [self._ledger(f"till{c}", 3, "consumer") for c in takers]

    def _ledger(self, writer: str, incarnation: int, role: str) -> Ledger:
        cluster, view = (CLUSTER, self.state.view) if role == "broker" else ("", 0)
        return Ledger(self.folder, writer, incarnation, self.form, role, cluster, view)

    def run(self) -> int:
        """Write everything; returns the number of records."""
        for ledger in (*self.brokers.values(), *self.producers, *self.consumers):
            ledger.note("open", self.state.now - 1000, name=ledger.role, reason=ledger.cluster)
        self._open_epoch("a", "b", "", "bootstrap")
        for name, queue in zip(self._names(), self.queue_names, strict=True):
            self.brokers["a"].note("definition", self.state.now, queue=str(queue), name=name)
        done, half = 0, self.ids // 2
        for part in self._parts(half):
            self._block("a", "b", self._publish(part))
            self.progress(done := done + part)
        left, resent = self._fail_over()
        for place, part in enumerate(self._parts(self.ids - half)):
            runs = self._publish(part, resent if place == 0 else None)
            self._block("b", "a", runs, left if place == 0 else None)
            self.progress(done := done + part)
        self._end()
        every = (*self.brokers.values(), *self.producers, *self.consumers, *self.closed)
        return sum(ledger.rows for ledger in every)

    def _names(self) -> list[str]:
        return [f"orders{q}" for q in range(self.shape.queues)]

    def _parts(self, ids: int) -> Iterator[int]:
        while ids > 0:
            yield min(ids, self.shape.block)
            ids -= self.shape.block

    def _open_epoch(self, node: str, peer: str, previous: str, reason: str) -> None:
        primary, now = self.brokers[node], self.state.now
        primary.note("promote", now, peer=previous, reason=reason)
        primary.note("insync", now, name=node, n=1, peer=previous, reason="promoted")
        primary.note("insync", now + 1, name="a,b", n=1, peer=peer, reason="included")

    # -- publishing

    def _publish(self, ids: int, resent: Ints | None = None) -> Runs:
        """Runs of `ids` new messages, in random turns of the producers; first, of each producer, `resent`."""
        shape, state, rng = self.shape, self.state, self.rng
        count = rng.geometric(1 / shape.run, ids // shape.run + 1) if shape.run > 1 else np.ones(ids, int)
        count = count[: np.searchsorted(np.cumsum(count), ids) + 1].astype(np.int64)
        producer = rng.choice(shape.producers, len(count), p=self._weights()).astype(np.int64)
        if resent is not None:
            count, producer = np.append(resent, count), np.append(np.arange(len(resent)), producer)
        queue, n = producer % shape.queues, state.n + np.arange(len(count))
        flush = np.arange(len(count)) // shape.flush
        sent = state.now + (np.cumsum(count) - count) * US_PER_ID
        last = np.minimum((flush + 1) * shape.flush, len(count)) - 1
        runs = Runs(
            producer, queue, count, before(count, producer, state.tags),
            before(count, producer, state.logical), before(count, queue, state.next_id), n, sent,
            sent[last] + 200, flush,
        )  # fmt: skip
        self._account(runs)
        return runs

    def _weights(self) -> npt.NDArray[np.float64]:
        queue = np.arange(self.shape.producers) % self.shape.queues
        alike = np.ones(self.shape.producers)
        if self.shape.skew:
            alike[queue == 0] = self.shape.skew / np.count_nonzero(queue == 0)
            alike[queue != 0] = (1 - self.shape.skew) / np.count_nonzero(queue != 0)
        return np.asarray(alike / alike.sum())

    def _account(self, runs: Runs) -> None:
        state = self.state
        published = np.bincount(runs.producer, runs.count, self.shape.producers).astype(np.int64)
        state.tags, state.logical = state.tags + published, state.logical + published
        taken = np.bincount(runs.queue, runs.count, self.shape.queues).astype(np.int64)
        state.next_id = state.next_id + taken
        state.n = int(runs.n[-1]) + 1
        state.now = int(runs.flush_us[-1]) + 20_000

    def _block(self, node: str, peer: str, runs: Runs, left: list[tuple[int, int]] | None = None) -> None:
        """All that happens to these runs, and to what an earlier epoch `left`."""
        self._broker_runs(node, peer, runs)
        self._producer_runs(runs, confirmed=len(runs.count))
        for queue in range(self.shape.queues):
            if left is not None:
                self._take_over(node, peer, queue, *left[queue])
            mine = runs.queue == queue
            if mine.any():
                self._consume(node, peer, queue, runs.ids[mine], runs.count[mine], runs.flush_us[mine])
        for ledger in (*self.brokers.values(), *self.producers, *self.consumers):
            ledger.turn()

    def _broker_runs(self, node: str, peer: str, runs: Runs) -> None:
        prod = np.array([self._prod(p) for p in range(self.shape.producers)], dtype=object)
        where: dict[str, Value] = {
            "queue": self.queue_names[runs.queue], "epoch": self.state.view, "first": runs.ids,
            "last": runs.ids + runs.count - 1, "prod": prod[runs.producer], "pfirst": runs.tag, "n": runs.n,
        }  # fmt: skip
        self.brokers[node].note("enqueue", runs.flush_us, **where)
        self.brokers[peer].note("backup_enqueue", runs.flush_us + 300, **where)
        first = bounds(len(runs.n), self.shape.flush)
        last = np.append(first[1:], len(runs.n)) - 1
        self.brokers[node].note(
            "replicated", runs.flush_us[last] + 500, epoch=self.state.view, first=runs.n[first],
            last=runs.n[last], peer=peer, reason="applied",
        )  # fmt: skip

    def _prod(self, producer: int) -> str:
        return f"shop{producer}.{self.state.session}/1"

    def _producer_runs(self, runs: Runs, *, confirmed: int) -> None:
        """`sent` and `confirmed` of whole gatherings; those beyond run `confirmed` stay in doubt."""
        for p, ledger in enumerate(self.producers):
            mine = np.flatnonzero(runs.producer == p)
            begin = bounds(len(mine), self.shape.gather)
            if not len(begin):
                continue
            first, last = mine[begin], mine[np.append(begin[1:], len(mine)) - 1]
            tags: dict[str, Ints] = {"first": runs.tag[first], "last": runs.tag[last] + runs.count[last] - 1}
            name = f"|{self._names()[p % self.shape.queues]}"
            ledger.note(
                "sent", runs.sent_us[first], prod=self._prod(p), pfirst=runs.logical[first], name=name, **tags
            )
            sure = last < confirmed
            answered = {key: value[sure] for key, value in tags.items()}
            ledger.note("confirmed", runs.flush_us[last][sure] + 700, prod=self._prod(p), **answered)

    # -- consuming

    def _consume(self, node: str, peer: str, queue: int, ids: Ints, count: Ints, flush_us: Ints) -> None:
        """Chunks in order of ids, each to some consumer of the queue, acked and dequeued soon after."""
        end = int(ids[-1] + count[-1])
        first = np.arange(int(ids[0]), end, self.shape.chunk, dtype=np.int64)
        last = np.minimum(first + self.shape.chunk, end) - 1
        run = np.searchsorted(ids, last, side="right") - 1
        when = flush_us[run] + 1000 + np.arange(len(run)) % 7
        when = np.maximum.accumulate(when)
        self._deliver(queue, self.state.view, first, last, when)
        self._settle(node, peer, queue, self.state.view, first, last, when + 2000)

    def _deliver(
        self, queue: int, epoch: int, first: Ints, last: Ints, when: Ints, reason: str | None = None
    ) -> None:
        taker = self.rng.integers(self.shape.consumers, size=len(first))
        where: dict[str, Value] = {"queue": str(self.queue_names[queue]), "epoch": epoch}
        for c in range(self.shape.consumers):
            mine = taker == c
            ledger = self.consumers[queue * self.shape.consumers + c]
            flag: dict[str, Value] = {"reason": reason} if reason else {}
            ledger.note("received", when[mine], first=first[mine], last=last[mine], **where, **flag)
            ledger.note("acked", when[mine] + 1000, first=first[mine], last=last[mine], **where)

    def _settle(
        self, node: str, peer: str, queue: int, epoch: int, first: Ints, last: Ints, when: Ints
    ) -> None:
        """Dequeues: acks come out of order, a flush gathers some chunks and notes them as a set of ranges."""
        come = np.argsort(np.arange(len(first)) + self.rng.random(len(first)) * 3 * self.shape.acks)
        flush = np.empty_like(come)
        flush[come] = np.arange(len(come)) // self.shape.acks
        order = np.lexsort((first, flush))
        flush, a, b = flush[order], first[order], last[order]
        begins = np.ones(len(a), dtype=bool)
        begins[1:] = (flush[1:] != flush[:-1]) | (a[1:] != b[:-1] + 1)
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(a)) - 1
        late = np.maximum.reduceat(when[order], starts) if len(starts) else when
        where: dict[str, Value] = {
            "queue": str(self.queue_names[queue]), "epoch": epoch, "first": a[starts], "last": b[ends],
            "reason": "acked",
        }  # fmt: skip
        self.brokers[node].note("dequeue", late, **where)
        self.brokers[peer].note("backup_dequeue", late + 400, **where)

    # -- the failover, and the end

    def _fail_over(self) -> tuple[list[tuple[int, int]], Ints]:
        """The primary dies: a last run of each producer is copied, and neither confirmed nor delivered."""
        shape, state = self.shape, self.state
        begin, doubt = state.next_id.copy(), np.full(shape.producers, shape.doubt, dtype=np.int64)
        producer = np.arange(shape.producers, dtype=np.int64)
        queue, n = producer % shape.queues, state.n + producer
        now = np.full(shape.producers, state.now, dtype=np.int64)
        runs = Runs(
            producer, queue, doubt, before(doubt, producer, state.tags),
            before(doubt, producer, state.logical), before(doubt, queue, state.next_id), n, now, now + 200,
            np.zeros_like(n),
        )  # fmt: skip
        logical = state.logical.copy()
        self._broker_runs("a", "b", runs)
        self._producer_runs(runs, confirmed=0)
        self._account(runs)
        left = [(int(begin[q]), int(state.next_id[q]) - 1) for q in range(shape.queues)]
        state.logical = logical
        for ledger in (*self.brokers.values(), *self.producers, *self.consumers):
            ledger.turn()
        dead = self.brokers["a"]
        dead.close()
        self.closed.append(dead)
        state.now += 350_000
        state.view, state.n, state.session = EPOCHS[1], 1, 1
        state.tags, state.next_id = np.ones_like(state.tags), np.ones_like(state.next_id)
        again = self._ledger("a", 2, "broker")
        again.note("open", state.now, name="broker", reason=CLUSTER)
        self.brokers["a"], self.brokers["b"].view = again, EPOCHS[1]
        self._open_epoch("b", "a", "a", "unforced")
        state.now += 20_000
        return left, doubt

    def _take_over(self, node: str, peer: str, queue: int, first: int, last: int) -> None:
        """What the dead primary left in the queue is delivered by its successor."""
        if last < first:
            return
        a, b = np.array([first], dtype=np.int64), np.array([last], dtype=np.int64)
        when = np.array([self.state.now - 10_000], dtype=np.int64)
        self._deliver(queue, EPOCHS[0], a, b, when)
        self._settle(node, peer, queue, EPOCHS[0], a, b, when + 2000)

    def _end(self) -> None:
        """A few messages nobody took; all end cleanly."""
        self.state.now += 1000
        runs = self._publish(self.shape.queues * 10)
        self._broker_runs("b", "a", runs)
        self._producer_runs(runs, confirmed=len(runs.count))
        for queue in range(self.shape.queues):
            mine = runs.queue == queue
            if mine.any():
                end = int(runs.ids[mine][-1] + runs.count[mine][-1]) - 1
                where: dict[str, Value] = {"queue": str(self.queue_names[queue]), "epoch": self.state.view}
                for ledger in self.brokers.values():
                    ledger.note("present", self.state.now, first=runs.ids[mine][:1], last=end, **where)
        for ledger in (*self.brokers.values(), *self.producers, *self.consumers):
            ledger.note("seal", self.state.now + 1000)
            ledger.close()


def amount(text: str) -> int:
    """10M, 500k, 1G, 1000000."""
    found = re.fullmatch(r"(\d+)([kMG]?)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"not a number of ids: {text}")
    return int(found[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[found[2]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.spark.generate", description="Make ledgers of any size.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ids", type=amount, default=1_000_000, help="messages: 10M, 500k, 1000000")
    parser.add_argument("--form", choices=("parquet", "jsonl"), default="parquet")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skew", action="store_true", help="one queue has 90 %% of the messages")
    parser.add_argument("--per-id", action="store_true", help="each record names one id")
    options = parser.parse_args()
    shape = PER_ID if options.per_id else Shape(skew=0.9 if options.skew else 0.0)
    pair = Pair(
        options.folder, options.ids, shape, options.seed, options.form,
        progress=lambda done: print(f"\r{done:,} ids", end="", flush=True),
    )  # fmt: skip
    print(f"\n{pair.run():,} records, seed {options.seed}")


if __name__ == "__main__":
    main()
