"""Rounds of kill, resend and restart: `python -m tests.failover.soak.exactly_once [--rounds N] [--seed S]`.

A pair of real nodes, and one publisher with `exactly_once` whose messages go to two queues. Each round kills
the publisher, the primary or both with SIGKILL in the midst of a burst, or starts a second publisher beside
the first. Consumers with `exactly_once` run throughout. After so many rounds (a *leg*) the publisher ends in
order. Then each number must have come to each queue once, and must have been processed once: none is
missing, none has two ids of which the second one's node knew the first, and none was handed out twice. Spark
must find the same in the ledgers. It lacks only what killed publishers did not note to a proof.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from tests.failover.nodes.cluster import PATIENCE
from tests.failover.nodes.pair import Pair
from tests.failover.soak.numbered import FENCED, HEARTBEAT, NAME, QUEUES
from tests.failover.soak.rounds import reconcile
from understudy.client import Consumer, OwnTransaction
from understudy.client.ledgers import parse_replication_id
from understudy.demo.processes import Child

FAULTS = ("publisher", "primary", "both", "two")
"""Who is killed in a round; `two`: nobody, a newer publisher begins beside the one that runs."""
KITS = ("0-9-1", "1.0")


@dataclass(slots=True)
class Outcome:
    """`missing`, `doubled`: numbers, by the consumers' count. `again`: processed twice. `skipped`: messages
    that came again after they were processed. `resent`: by publishers that lived to tell."""

    rounds: int = 0
    numbers: int = 0
    resumed: int = 0
    """Numbers that a restarted publisher published again, at the most."""
    resent: int = 0
    missing: int = 0
    doubled: int = 0
    again: int = 0
    skipped: int = 0
    faults: list[str] = field(default_factory=list)
    """What Spark finds."""

    @property
    def good(self) -> bool:
        return not (self.missing or self.doubled or self.again or self.faults)


class Reader:
    """Consumes one queue on a thread of its own, and notes the id of each number. That of one queue has its
    ids in a file, that of the other one in the transaction of its work: a row for each number."""

    def __init__(self, addresses: str, queue: str, ledgers: Path, *, own: bool) -> None:
        self.ids: dict[int, str] = {}
        self.twice: dict[int, tuple[str, str]] = {}
        """Numbers with two ids. A primary delivers a message before its backup has it. If it dies then, the
        message comes from its successor as a new one."""
        self.again: set[int] = set()
        self._own = own
        self._database = sqlite3.connect(f"{ledgers}.{queue}.db", check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE booked (number INTEGER)")
        memory = OwnTransaction(sqlite3, self._database)
        memory.create()
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._consumer = Consumer(
            addresses, queue, f"reader-{queue}", ledgers, declare=[QUEUES[queue]], heartbeat=HEARTBEAT,
            connect_timeout=HEARTBEAT, given_up=self._stop.is_set, exactly_once=True,
            processed=memory if own else None,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name=queue, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._consumer:
                for delivery in self._consumer.deliveries(until=self._stop.is_set):
                    number, own = int(delivery.body), str(delivery.id)
                    before = self.ids.get(number, "")
                    if before == own:
                        self.again.add(number)
                    elif before:
                        self.twice[number] = (before, own)
                    self.ids[number] = own
                    if self._own:
                        self._database.execute("INSERT INTO booked VALUES (?)", (number,))
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        twice = "SELECT number FROM booked GROUP BY number HAVING COUNT(*) > 1"
        booked = {number for (number,) in self._database.execute(twice)}
        self.again |= booked - self.twice.keys()
        self._database.close()

    @property
    def skipped(self) -> int:
        return self._consumer.counts.skipped


class Leg:
    """A fresh pair, its publisher and its readers. Call `round` as often as wanted, then `end`."""

    def __init__(self, pair: Pair, kit: str, rng: random.Random) -> None:
        self._pair = pair
        self._kit = kit
        self._rng = rng
        self._ledgers = pair.folder / "clients"
        self._primary, self._backup = "left", "right"
        self._lives = 0
        self.outcome = Outcome()
        self._readers = [
            Reader(pair.both, queue, self._ledgers, own=index == 1) for index, queue in enumerate(QUEUES)
        ]
        pair.until(lambda: all(each._consumer.failover.connected for each in self._readers), "the readers")
        self._publisher = self._start()

    # -- the publisher

    def _start(self) -> Child:
        self._lives += 1
        arguments = ["tests.failover.soak.numbered", self._kit, self._pair.both, str(self._ledgers)]
        return self._pair.children.start(f"publisher-{self._lives}", arguments, events=True)

    def _hear(self, child: Child, event: str) -> dict[str, Any]:
        """Wait for that event of the publisher."""
        until = time.monotonic() + PATIENCE
        while (left := until - time.monotonic()) > 0:
            try:
                name, told = self._pair.children.events.get(timeout=left)
            except Empty:
                break
            if name == child.name and told["event"] == event:
                return told
        raise AssertionError(f"{child.name} did not say {event}: {child.last_words()}")

    def _kill_publisher(self) -> None:
        self._publisher.signal(signal.SIGKILL)
        assert self._publisher.wait(PATIENCE) == -signal.SIGKILL

    def _restart_publisher(self) -> None:
        highest = self._highest()
        self._publisher = self._start()
        first = self._hear(self._publisher, "going")["number"]
        self.outcome.resumed += max(0, highest - first + 1)

    def _highest(self) -> int:
        """Number that a reader had."""
        return max(max(each.ids, default=0) for each in self._readers)

    # -- rounds

    def round(self, fault: str) -> None:
        for _ in range(self._rng.randrange(1, 6)):
            self._hear(self._publisher, "counts")
        threading.Event().wait(self._rng.random() * 0.05)  # somewhere within a burst
        if fault in ("publisher", "both"):
            self._kill_publisher()
        if fault in ("primary", "both"):
            self._pair.kill(self._primary)
        if fault in ("publisher", "both"):
            self._restart_publisher()
        if fault in ("primary", "both"):
            self._fail_over()
        if fault == "two":
            older, self._publisher = self._publisher, self._start()
            self._hear(self._publisher, "going")
            older.expected_to_end = True
            assert older.wait(PATIENCE) == FENCED, older.last_words()
        self._hear(self._publisher, "counts")
        for each in self._readers:
            if each.failure is not None:
                raise AssertionError(f"a reader: {each.failure!r}") from each.failure
        self.outcome.rounds += 1

    def _fail_over(self) -> None:
        """Promote the backup; the killed primary comes back as the backup."""
        self._primary, self._backup = self._backup, self._primary
        answer = self._pair.ask(self._primary, "promote")
        assert answer["ok"], answer
        self._pair.start(self._backup)
        self._pair.wait_for(self._backup, "ready")
        self._pair.wait_for(self._primary, "active")

    def end(self) -> Outcome:
        """Stop all in order, and count. The publisher first sends again all that one before it sent: it alone
        tells what became of that."""
        while self._hear(self._publisher, "counts")["number"] <= self._highest():
            pass
        self._publisher.say("stop")
        self._publisher.expected_to_end = True
        told = self._hear(self._publisher, "done")
        last = int(told["number"])
        numbers = set(range(1, last + 1))
        read = -1
        while (now := sum(len(each.ids) for each in self._readers)) > read:
            read = now
            try:
                self._pair.until(
                    lambda: all(numbers <= each.ids.keys() for each in self._readers), "all messages"
                )
            except AssertionError:
                pass  # they are slow, or messages are missing, which are counted below
        for each in self._readers:
            each.stop()
        for name in (self._backup, self._primary):
            assert self._pair.stop(name) == 0
        self.outcome.numbers = last
        self.outcome.resent = int(told["resent"])
        self.outcome.missing = sum(len(numbers - each.ids.keys()) for each in self._readers)
        self.outcome.doubled = sum(
            self._is_doubled(*ids) for each in self._readers for ids in each.twice.values()
        )
        self.outcome.again = sum(len(each.again) for each in self._readers)
        self.outcome.skipped = sum(each.skipped for each in self._readers)
        return self.outcome

    def _is_doubled(self, first: str, second: str) -> bool:
        """Whether the node that gave the second id had the first one."""
        return any(
            _noted(records, second, "enqueue") and _noted(records, first, "enqueue", "backup_enqueue")
            for records in map(self._pair.ledger, ("left", "right"))
        )


def _noted(records: Sequence[dict[str, Any]], own: str, *kinds: str) -> bool:
    id_ = parse_replication_id(own)
    return id_ is not None and any(
        record["kind"] in kinds
        and (record["queue"], record["epoch"]) == (id_.queue, id_.epoch)
        and record["first"] <= id_.sequence <= record["last"]
        for record in records
    )


def play(folder: Path, faults: Sequence[str], kit: str, seed: int, say: Callable[[str], None]) -> Outcome:
    """One leg. Raises AssertionError; no process is left either way."""
    rng = random.Random(seed)
    with Pair(folder) as pair:
        leg = Leg(pair.whole(), kit, rng)
        for number, fault in enumerate(faults, start=1):
            began = time.monotonic()
            leg.round(fault)
            say(f"{number:4}  {fault:<9}  {time.monotonic() - began:4.1f} s")
        return leg.end()


def judge(outcome: Outcome, answer: dict[str, Any]) -> str:
    """Note what Spark says against it. Returns that in words."""
    totals = answer["totals"]
    faults = [each["sentence"] for each in answer["findings"] if each["severity"] == "violation"]
    killed = (f"the ledger of {NAME} (", f"producer {NAME}.")
    faults += [each for each in answer["missing"] if not any(sign in each for sign in killed)]
    if not totals["numbered"]:
        faults.append("no message has a number")
    outcome.faults += faults
    told = f"{totals['lost']:,} lost, {totals['doubled']:,} doubled, {totals['left_out']:,} left out"
    return (
        f"Spark: {totals['numbered']:,} enqueued with numbers, {told}{': ' * bool(faults)}{'; '.join(faults)}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.failover.soak.exactly_once", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, help="of the first leg; drawn if not said")
    parser.add_argument("--every", type=int, default=25, help="rounds of a leg (25)")
    parser.add_argument("--kit", choices=KITS, help="of all legs; in turn if not said")
    parser.add_argument("--no-spark", action="store_true", help="only the consumers' own counts")
    parser.add_argument("--folder", type=Path, help="keep everything there")
    told = parser.parse_args(arguments)
    seed = secrets.randbelow(2**31) if told.seed is None else told.seed
    print(f"{told.rounds} rounds, seed {seed}", flush=True)
    root = told.folder or Path(tempfile.mkdtemp(prefix="understudy-exactly-once-"))
    began, total = time.monotonic(), Outcome()
    for leg, first in enumerate(range(0, told.rounds, told.every)):
        rng, kit = random.Random(seed + leg), told.kit or KITS[leg % len(KITS)]
        faults = [rng.choice(FAULTS) for _ in range(min(told.every, told.rounds - first))]
        folder = root / f"leg-{leg + 1}"
        outcome = play(folder, faults, kit, seed + leg, lambda line: print(line, flush=True))
        if not told.no_spark:
            print(judge(outcome, reconcile(folder)), flush=True)
        _add(total, outcome)
        print(
            f"leg {leg + 1}, AMQP {kit}: {outcome.numbers:,} messages to {len(QUEUES)} queues,"
            f" {outcome.missing} lost, {outcome.doubled} doubled, {outcome.again} processed twice,"
            f" {outcome.skipped} skipped; seed {seed + leg}",
            flush=True,
        )
        if not outcome.good:
            print(f"exactly_once: messages are lost or doubled, or not proven: {folder}", file=sys.stderr)
            return 1
        if told.folder is None:
            shutil.rmtree(folder)
    print(
        f"{total.rounds} rounds in {time.monotonic() - began:.0f} s: {total.numbers:,} messages, at least"
        f" {total.resumed + total.resent:,} sent again, {total.missing} lost, {total.doubled} doubled,"
        f" {total.again} processed twice, {total.skipped} skipped;"
        f" {'not judged' if told.no_spark else 'and none by Spark'}"
    )
    return 0


def _add(total: Outcome, leg: Outcome) -> None:
    total.rounds += leg.rounds
    total.numbers += leg.numbers
    total.resumed += leg.resumed
    total.resent += leg.resent
    total.missing += leg.missing
    total.doubled += leg.doubled
    total.again += leg.again
    total.skipped += leg.skipped
    total.faults += leg.faults


if __name__ == "__main__":
    sys.exit(main())
