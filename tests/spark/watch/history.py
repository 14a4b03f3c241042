"""Random histories of a pair as its ledgers show them, one message at a time, with real losses.

Shares nothing with the judge: `History` keeps each queue as a set of ids, and knows what it has lost. `Stage`
shows it to a judge as a watch would see it: in batches, with each ledger read up to a slightly different
time.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from spark.watch.alarms import Alarm
from spark.watch.frozen import freeze, thaw
from spark.watch.judge import Judge, Limits
from spark.watch.lines import condense

Record = dict[str, Any]
Process = tuple[str, int]
Id = tuple[int, int]
"""Epoch and sequence number."""
Written = tuple[Process, Record, int]
"""Process, record, and the number of the write(2) that wrote it together with other buffered records."""
QUEUE = "0a" * 16
HOUR = 3_600_000_000


class Ledgers:
    """Records in the order in which they reached the disk. Clients write theirs some time after the event."""

    def __init__(self, rng: random.Random) -> None:
        self.written: list[Written] = []
        self._buffers: dict[Process, list[Record]] = defaultdict(list)
        self._wseq: dict[Process, int] = defaultdict(int)
        self._skew = defaultdict(lambda: rng.randint(-5, 5) * HOUR)
        self._writes = 0
        self.now = 1_700_000_000_000_000

    def note(self, process: Process, view: int, kind: str, /, **fields: Any) -> None:
        given = {key: value for key, value in fields.items() if value is not None}
        self.now += 1000
        ts_us = self.now + self._skew[process[0]]
        header = {"v": 2, "writer": process[0], "incarnation": process[1], "wseq": self._wseq[process]}
        self._wseq[process] += 1
        self._buffers[process].append({**header, "ts_us": ts_us, "view": view, "kind": kind, **given})

    def flush(self, process: Process) -> None:
        self._writes += 1
        self.written += [(process, record, self._writes) for record in self._buffers.pop(process, [])]

    def skip(self, process: Process, wseq: int) -> None:
        """Set the number of the next record of a process."""
        self._wseq[process] = wseq

    def drop(self, process: Process) -> None:
        """A process is killed, and loses its unwritten records."""
        self._buffers.pop(process, None)


class History:
    """One queue, a primary and a backup that swap roles, two producers, and a consumer."""

    def __init__(self, seed: int, steps: int = 60) -> None:
        self.rng = random.Random(seed)
        self.ledgers = Ledgers(self.rng)
        self.lives = {"a": 1, "b": 1}
        self.primary, self.backup = "a", "b"
        self.contents: dict[str, set[Id]] = {"a": set(), "b": set()}
        self.in_sync = True
        self.epoch, self.next_id, self.n = 0, 1, 0
        self.tags = {"p": 0, "q": 0}
        self.sessions = {"p": 0, "q": 0}
        self.confirmed: set[Id] = set()
        self.fated: set[Id] = set()
        self.lost: set[Id] = set()
        self.vanished: set[Id] = set()
        """Dropped by the primary without a record; lost as soon as an inventory does not list them."""
        self.unplaced: set[tuple[str, int]] = set()
        self.received: list[Id] = []
        for name in self.lives:
            self.note(name, "open", name="broker", reason="c1")
            self.ledgers.flush(self.process(name))
        for name in ("p", "q", "c"):
            self.client(name, "open", name="consumer" if name == "c" else "producer")
            self.ledgers.flush((name, 1))  # a ledger writes this before its client does anything
        self.promote("bootstrap", "")
        self.run(steps)

    # -- tools

    def process(self, name: str) -> Process:
        return name, self.lives.get(name, 1)

    def note(self, node: str, kind: str, /, **fields: Any) -> None:
        """A broker writes each record at once."""
        self.ledgers.note(self.process(node), self.epoch, kind, **fields)
        self.ledgers.flush(self.process(node))

    def client(self, name: str, kind: str, /, **fields: Any) -> None:
        self.ledgers.note((name, 1), 0, kind, **fields)

    def ranges(self, ids: Iterable[Id]) -> Iterator[tuple[int, int, int]]:
        ordered = sorted(ids)
        for _, group in groupby(enumerate(ordered), lambda pair: (pair[1][0], pair[1][1] - pair[0])):
            run = [number for _, number in group]
            yield run[0][0], run[0][1], run[-1][1]

    # -- events

    def run(self, steps: int) -> None:
        usual = ("publish", "publish", "consume", "consume", "flush", "flush", "beat")
        rare = ("quiesce", "fail_over", "exclude", "vanish", "swallow", "expire", "unrouted")
        for _ in range(steps):
            name = self.rng.choice(usual if self.rng.random() < 0.75 else rare)
            getattr(self, name)()
        self.quiesce()

    def publish(self) -> None:
        name = self.rng.choice(("p", "q"))
        count = self.rng.randint(1, 6)
        first = self.tags[name] + 1
        self.tags[name] += count
        ids = [(self.epoch, self.next_id + i) for i in range(count)]
        self.next_id += count
        self.n += 1
        where = {"queue": QUEUE, "epoch": self.epoch, "first": ids[0][1], "last": ids[-1][1]}
        made = {**where, "prod": self.prod(name), "pfirst": first, "n": self.n}
        self.note(self.primary, "enqueue", **made)
        self.contents[self.primary] |= set(ids)
        if self.in_sync:
            self.note(self.backup, "backup_enqueue", **made)
            self.contents[self.backup] |= set(ids)
        if self.rng.random() < 0.85:
            self.confirm(name, first, ids)

    def prod(self, name: str) -> str:
        return f"{name}.1.{self.sessions[name]}/1"

    def confirm(self, name: str, first: int, ids: list[Id]) -> None:
        self.client(name, "confirmed", prod=self.prod(name), first=first, last=first + len(ids) - 1)
        self.confirmed |= set(ids)

    def consume(self) -> None:
        """Consume part of the queue. Some messages are acked; the primary, or only the backup, may not know
        it."""
        held = sorted(self.contents[self.primary] - set(self.received))
        taken = [number for number in held if self.rng.random() < 0.6][:8]
        for epoch, first, last in self.ranges(taken):
            self.client("c", "received", queue=QUEUE, epoch=epoch, first=first, last=last)
        self.received += taken
        done = {number for number in self.received if self.rng.random() < 0.7}
        self.received = [number for number in self.received if number not in done]
        for epoch, first, last in self.ranges(done):
            where = {"queue": QUEUE, "epoch": epoch, "first": first, "last": last}
            self.client("c", "acked", **where)
            if self.rng.random() < 0.8:
                self.leave(where, "acked")
        self.fated |= done

    def leave(self, where: dict[str, Any], reason: str) -> None:
        gone = {(where["epoch"], number) for number in range(where["first"], where["last"] + 1)}
        self.note(self.primary, "dequeue", **where, reason=reason)
        self.contents[self.primary] -= gone
        if self.in_sync and self.rng.random() < 0.8:
            self.note(self.backup, "backup_dequeue", **where, reason=reason)
            self.contents[self.backup] -= gone
        self.fated |= gone

    def expire(self) -> None:
        for epoch, first, last in list(self.ranges(self.contents[self.primary] - set(self.received)))[:1]:
            self.leave({"queue": QUEUE, "epoch": epoch, "first": first, "last": last}, "expired")

    def unrouted(self) -> None:
        self.tags["p"] += 1
        where = {"prod": self.prod("p"), "first": self.tags["p"], "last": self.tags["p"]}
        self.note(self.primary, "unrouted", **where)
        self.client("p", "confirmed", **where)

    def flush(self) -> None:
        self.ledgers.flush((self.rng.choice(("p", "q", "c")), 1))

    def beat(self) -> None:
        for name in ("p", "q", "c"):
            self.client(name, "heartbeat")
            self.ledgers.flush((name, 1))
        for name in self.lives:
            self.note(name, "heartbeat")

    def quiesce(self) -> None:
        self.n += 1
        name = f"{self.epoch}.{self.n}"
        held = self.contents[self.primary]
        process = self.process(self.primary)
        for epoch, first, last in list(self.ranges(held)) or [(0, 0, -1)]:
            where = {"queue": QUEUE, "epoch": epoch, "first": first, "last": last}
            self.ledgers.note(process, self.epoch, "quiesce", name=name, **where)
        self.ledgers.flush(process)
        self.lost |= self.vanished
        self.vanished = set()

    def exclude(self) -> None:
        """Exclude the backup, or include it again."""
        self.in_sync = not self.in_sync
        names = "a,b" if self.in_sync else self.primary
        how = "included" if self.in_sync else "excluded"
        if self.in_sync:
            self.copy()
        self.note(self.primary, "insync", name=names, n=self.n, peer=self.backup, reason=how)

    def copy(self) -> None:
        """The backup receives what it lacks in pieces, and drops what it has too much without a record."""
        missing = self.contents[self.primary] - self.contents[self.backup]
        for epoch, first, last in self.ranges(missing):
            where = {"queue": QUEUE, "epoch": epoch, "first": first, "last": last}
            self.note(self.backup, "backup_enqueue", **where, n=self.n)
        self.contents[self.backup] = set(self.contents[self.primary])

    def fail_over(self) -> None:
        """Kill the primary. The backup is promoted, whatever it holds, and the old primary joins."""
        old, self.primary, self.backup = self.primary, self.backup, self.primary
        self.promote("unforced" if self.in_sync else "force-lossy", old)
        held = self.contents[self.primary]
        self.lost |= (self.confirmed | self.vanished) - self.fated - held
        self.vanished = set()
        self.received = []
        self.lives[old] += 1
        self.note(old, "open", name="broker", reason="c1")
        self.in_sync = True
        self.copy()
        for name in self.tags:
            self.sessions[name] += 1
            self.tags[name] = 0

    def promote(self, reason: str, peer: str) -> None:
        self.epoch, self.next_id, self.n = self.epoch + 65537, 1, 0
        self.note(self.primary, "promote", peer=peer, reason=reason)
        if not peer:
            self.note(self.primary, "definition", queue=QUEUE, name="orders", reason="replicated")
        self.note(self.primary, "insync", name="a,b", n=0, peer=self.primary, reason="promoted")

    def vanish(self) -> None:
        """The primary and its backup lose confirmed messages from memory."""
        open_ones = (self.contents[self.primary] & self.confirmed) - set(self.received) - self.fated
        gone = {number for number in open_ones if self.rng.random() < 0.2}
        for node in self.contents:
            self.contents[node] -= gone
        self.vanished |= gone

    def swallow(self) -> None:
        """A confirm of a message that was never enqueued. Another message makes the session known to the
        broker."""
        name = self.rng.choice(("p", "q"))
        self.tags[name] += 1
        tag = self.tags[name]
        self.client(name, "confirmed", prod=self.prod(name), first=tag, last=tag)
        self.unplaced.add((self.prod(name), tag))
        self.tags[name] += 1
        self.note(self.primary, "unrouted", prod=self.prod(name), first=tag + 1, last=tag + 1)


class Stage:
    """Shows written records to a judge as a watch would read them, one batch a second."""

    def __init__(self, seed: int, limits: Limits | None = None) -> None:
        self.rng = random.Random(seed)
        self.limits = limits or Limits()
        self.judge = Judge(self.limits)
        self.now = 1_700_000_000_000_000
        self.alarms: list[Alarm] = []
        self.shown: list[list[dict[str, Any]]] = []
        """The rows of each batch."""

    def batch(
        self, records: dict[Process, list[Record]], *, behind: int = 0, seconds: float = 1.0, name: str = ""
    ) -> None:  # fmt: skip
        """Give these records to the judge. `name`: their file, if it is not the first of their writer."""
        self.now += int(seconds * 1_000_000)
        tick = {"kind": "tick", "ts_us": self.now, "first": behind}
        rows: list[dict[str, Any]] = [dict.fromkeys(_COLUMNS) | tick]
        for (writer, incarnation), own in records.items():
            for row in condense([dict(r) for r in own], name or f"{writer}-{incarnation}-0.ledger.jsonl"):
                rows.append(dict.fromkeys(_COLUMNS) | row)
        self.rng.shuffle(chunks := [list(g) for _, g in groupby(rows, lambda row: row.get("writer"))])
        self.shown.append([row for chunk in chunks for row in chunk])
        self.alarms += self.judge.batch(self.shown[-1])
        if self.rng.random() < 0.3:
            self.judge = thaw(json.loads(json.dumps(freeze(self.judge))), self.limits)

    def show(self, written: list[Written], *, most: int = 12) -> None:
        """Show records in batches of up to `most`. Ledgers read later in a batch show a little more."""
        taken: dict[Process, int] = defaultdict(int)
        by_process: dict[Process, list[tuple[int, Record, int]]] = defaultdict(list)
        for at, (process, record, write) in enumerate(written):
            by_process[process].append((at, record, write))
        at = 0
        while most and at < len(written):
            at += self.rng.randint(0, most)
            records = {}
            for process, own in by_process.items():
                upto = at + self.rng.randint(0, 5)
                end = max(taken[process], sum(place < upto for place, _, _ in own))
                while 0 < end < len(own) and own[end][2] == own[end - 1][2]:
                    end += 1  # a write is visible as a whole or not at all
                if end > taken[process]:
                    records[process] = [record for _, record, _ in own[taken[process] : end]]
                taken[process] = end
            self.batch(records)
        rest = {process: [r for _, r, _ in own[taken[process] :]] for process, own in by_process.items()}
        self.batch({process: own for process, own in rest.items() if own})

    def end(self, history: History) -> None:
        """All processes write a few more heartbeats."""
        for _ in range(5):
            begin = len(history.ledgers.written)
            history.beat()
            self.show(history.ledgers.written[begin:], most=0)

    def rest(self, batches: int = 20) -> None:
        """Batches without any new record."""
        for _ in range(batches):
            self.batch({})

    def told(self, kind: str) -> list[tuple[Any, int]]:
        """Each number in alarms of this kind, with its epoch or session."""
        return [
            (alarm.prod if alarm.prod is not None else alarm.epoch, number)
            for alarm in self.alarms if alarm.kind == kind
            for first, last in alarm.ranges for number in range(first, last + 1)
        ]  # fmt: skip

    def kinds(self) -> set[str]:
        return {alarm.kind for alarm in self.alarms}


_COLUMNS = (
    "kind", "writer", "queue", "reason", "prod", "name", "peer", "file", "incarnation", "at", "ts_us", "view",
    "epoch", "first", "last", "pfirst",
)  # fmt: skip
