"""Plants one fault of each kind into a generated history, and states exactly what must be found.

The faults lie apart from each other, so that all of them fit into one history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tests.spark.ledgers import Pair
from tests.spark.records import Process, Record

FATES = ("received", "acked", "dequeue", "backup_dequeue", "present", "quiesce")


class Faults:
    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.ledgers = pair.run()
        self.places: dict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
        self.doubt: tuple[tuple[int, int], ...] = ()
        self.first, self.last = 1 << 16 | 1, pair.epoch
        self.names = {queue: name for name, queue in pair.queues.items()}
        self.orders, self.audit = pair.queues["orders"], pair.queues["audit"]

    def plant_all(self) -> None:
        for plant in (
            self.lose, self.receive_twice, self.receive_late, self.confirm_early, self.confirm_nowhere,
            self.enqueue_unsent, self.enqueue_twice, self.forget, self.resend_confirmed, self.deliver_unknown,
            self.differ, self.doubt_last, self.forget_own_disk, self.forget_disk_of_backup,
            self.dequeue_twice, self.return_acked, self.dequeue_for_no_reason, self.enqueue_by_two,
            self.serve_after_successor, self.quarantine_served, self.miss_in_quarantine,
            self.tear_transaction, self.commit_whole,
        ):  # fmt: skip
            plant()

    # -- tools

    def add(
        self, process: Process, kind: str, *, later_us: int = 0, view: int | None = None, **fields: Any
    ) -> None:
        """Add a record just before the seal of its ledger."""
        served = self.last if process[0] in "ab" else 0
        record = self.ledgers.note(
            process, self.pair.now + later_us, served if view is None else view, kind, **fields
        )
        records = self.ledgers.records[process]
        records.remove(record)
        records.insert(len(records) - 1, record)

    def find(self, kind: str, matches: Callable[[Record], bool]) -> Record:
        return next(r for _, r in self.ledgers.every(kind) if matches(r))

    def found(
        self, kind: str, queue: str | None, epoch: int | None, prod: str | None, *pairs: tuple[int, int]
    ) -> None:
        self.places[kind, self.names[queue] if queue else None, epoch, prod] += pairs

    @property
    def expected(self) -> set[tuple[Any, ...]]:
        """Kind (and note), queue name, epoch, prod, ranges of each expected finding."""
        return {(*place, tuple(sorted(pairs))) for place, pairs in self.places.items()}

    @property
    def primary(self) -> Process:
        return self.pair.primary.process

    # -- faults

    def lose(self) -> None:
        """Four confirmed ids of the dead primary's epoch leave no trace after their enqueue."""
        run = self.find("backup_enqueue", lambda r: r["queue"] == self.orders and r["last"] - r["first"] > 8)
        first = run["first"] + 2
        self.ledgers.cut(
            FATES, lambda r: (r["queue"], r["epoch"]) == (self.orders, run["epoch"]), first, first + 3
        )
        self.found("lost", self.orders, run["epoch"], None, (first, first + 3))

    def receive_twice(self) -> None:
        """A consumer receives two ids again, without the redelivered flag."""
        got = self.find("received", lambda r: (r["queue"], r["epoch"]) == (self.audit, self.last))
        first = got["first"]
        self.add(("c3", 3), "received", queue=self.audit, epoch=self.last, first=first, last=first + 1)
        self.found("duplicate-illegal", self.audit, self.last, None, (first, first + 1))

    def receive_late(self) -> None:
        """Two fresh deliveries to one consumer swap places."""
        mine = [
            r for r in self.ledgers.records["c3", 3]
            if r["kind"] == "received" and r["epoch"] != self.last and "reason" not in r
        ]  # fmt: skip
        a, b = mine[2], mine[3]
        first, last = a["first"], a["last"]
        for key in ("first", "last"):
            a[key], b[key] = b[key], a[key]
        self.found("reordered", self.audit, a["epoch"], None, (first, last))

    def confirm_early(self) -> None:
        """The ack of one position in the middle was never received."""
        copied = {(r["epoch"], r["n"]) for _, r in self.ledgers.every("backup_enqueue")}
        n = sorted(n for epoch, n in copied if epoch != self.last)[3]
        epoch = next(epoch for epoch, m in copied if epoch != self.last and m == n)
        self.ledgers.cut(["replicated"], lambda r: r["epoch"] == epoch, n, n)
        for _, run in self.ledgers.every("enqueue"):
            if (run["epoch"], run["n"]) == (epoch, n):
                self.found("early", run["queue"], epoch, None, (run["first"], run["last"]))
                if "durable" in run:
                    self.found("early: disk of b", run["queue"], epoch, None, (run["first"], run["last"]))

    def deliver_unknown(self) -> None:
        where: dict[str, Any] = {"queue": self.audit, "epoch": self.last, "first": 90_000, "last": 90_002}
        self.add(("c3", 3), "received", **where)
        self.found("never-published", self.audit, self.last, None, (90_000, 90_002))

    def confirm_nowhere(self) -> None:
        """Messages are sent and confirmed, but are in no queue."""
        self.add(("p2", 7), "sent", prod="p2.5/1", first=1, last=3, pfirst=80_001, name="fan|x")
        self.add(("p2", 7), "confirmed", prod="p2.5/1", first=1, last=3)
        self.found("unplaced", None, None, "p2.5/1", (1, 3))

    def enqueue_unsent(self) -> None:
        where: dict[str, Any] = {"queue": self.audit, "epoch": self.last, "first": 20_001, "last": 20_003}
        self.add(self.primary, "enqueue", **where, prod="p1.1/1", pfirst=70_000, n=900_000)
        self.add(self.primary, "dequeue", **where, reason="purged")
        self.found("unsent", None, None, "p1.1/1", (70_000, 70_002))

    def enqueue_twice(self) -> None:
        """One publish gets a second id in the same queue, which is never delivered."""
        run = self.find("enqueue", lambda r: (r["queue"], r["epoch"]) == (self.orders, self.last))
        where: dict[str, Any] = {"queue": self.orders, "epoch": self.last, "first": 30_001, "last": 30_001}
        self.add(self.primary, "enqueue", **where, prod=run["prod"], pfirst=run["pfirst"])
        self.add(self.primary, "dequeue", **where, reason="dropped")
        self.found("enqueued-twice", self.orders, self.last, run["prod"], (30_001, 30_001))

    def forget(self) -> None:
        """Ids of a publisher without a ledger vanish from the last primary."""
        where: dict[str, Any] = {"queue": self.audit, "epoch": self.last, "first": 40_001, "last": 40_005}
        self.add(self.primary, "enqueue", **where, n=900_001)
        self.found("unaccounted", self.audit, self.last, None, (40_001, 40_005))

    def resend_confirmed(self) -> None:
        """A producer resends two messages that had been confirmed; a consumer receives both."""
        run = self.find(
            "enqueue",
            lambda r: r["queue"] == self.audit and r["epoch"] != self.last and r["prod"] == "p2.0/1"
            and r["n"] < 40 and r["last"] - r["first"] > 3,
        )  # fmt: skip
        tag = run["pfirst"]
        sent = self.find("sent", lambda r: r["prod"] == "p2.0/1" and r["first"] <= tag <= r["last"])
        logical = sent["pfirst"] + tag - sent["first"]
        where: dict[str, Any] = {"queue": self.audit, "epoch": self.last, "first": 50_001, "last": 50_002}
        self.add(("p2", 7), "sent", prod="p2.6/1", first=1, last=2, pfirst=logical, name="fan|x")
        self.add(self.primary, "enqueue", **where, prod="p2.6/1", pfirst=1)
        self.add(("p2", 7), "confirmed", prod="p2.6/1", first=1, last=2)
        self.add(("c3", 3), "received", **where)
        self.add(("c3", 3), "acked", **where)
        self.found("duplicate-illegal", self.audit, None, "p2#7", (logical, logical + 1))

    def differ(self) -> None:
        """At the consistency checkpoint, one node lists one id less."""
        mine = [r for p, r in self.ledgers.every("quiesce") if p == self.pair.backup.process]
        listed = next(r for r in mine if r["last"] > r["first"])
        listed["last"] -= 1
        self.found(
            "copy-differs", listed["queue"], listed["epoch"], None, (listed["last"] + 1, listed["last"] + 1)
        )

    def doubt_last(self) -> None:
        self.add(("p1", 7), "sent", prod="p1.1/1", first=60_001, last=60_002, pfirst=60_001, name="fan|x")
        self.doubt = ((60_001, 60_002), (95_001, 95_008))

    def on_disk(self, epoch: int, wanted: int, *, copied: bool = False) -> tuple[int, list[Record]]:
        """The `wanted`th position whose confirm waits for the disk, and all such runs at that position."""
        kinds = ("backup_enqueue",) if copied else ("enqueue",)
        noted = [r for _, r in self.ledgers.every(*kinds) if r["epoch"] == epoch and "durable" in r]
        n = sorted({r["n"] for r in noted if r["n"] < 900_000})[wanted]
        runs = [r for _, r in self.ledgers.every("enqueue") if (r["epoch"], r.get("n")) == (epoch, n)]
        return n, [r for r in runs if "durable" in r]

    def forget_own_disk(self) -> None:
        """The primary never recorded that one position was on its own disk."""
        n, runs = self.on_disk(self.last, 5)
        self.ledgers.cut(["durable"], lambda r: r["epoch"] == self.last, n, n)
        for run in runs:
            self.found("early: disk of b", run["queue"], self.last, None, (run["first"], run["last"]))

    def forget_disk_of_backup(self) -> None:
        """The backup acknowledged one position, but never that it was on its disk."""
        n, runs = self.on_disk(self.first, 8, copied=True)
        self.ledgers.cut(["replicated"], lambda r: (r["epoch"], r["reason"]) == (self.first, "durable"), n, n)
        for run in runs:
            self.found("early: disk of b", run["queue"], self.first, None, (run["first"], run["last"]))

    def left(self, wanted: int, reason: str) -> Record:
        """A dequeue by the last primary for this reason, from the queue orders and its own epoch."""
        return [
            r for p, r in self.ledgers.every("dequeue")
            if p == self.primary and (r["queue"], r["epoch"]) == (self.orders, self.last)
            and r.get("reason") == reason
        ][wanted]  # fmt: skip

    def dequeue_twice(self) -> None:
        gone = self.left(0, "expired")
        where: dict[str, Any] = {
            "queue": self.orders,
            "epoch": self.last,
            "first": gone["first"],
            "last": gone["first"],
        }
        self.add(self.primary, "dequeue", **where, reason="purged")
        self.found("dequeued-twice: b", self.orders, self.last, None, (gone["first"], gone["first"]))

    def return_acked(self) -> None:
        """Ten seconds after the primary recorded an ack, it delivers the message to the other consumer."""
        gone = self.left(0, "acked")
        where: dict[str, Any] = {
            "queue": self.orders,
            "epoch": self.last,
            "first": gone["first"],
            "last": gone["first"],
        }
        done = [
            p for p, r in self.ledgers.every("acked")
            if (r["queue"], r["epoch"]) == (self.orders, self.last)
            and r["first"] <= gone["first"] <= r["last"]
        ]  # fmt: skip
        other = next(p for p in (("c1", 3), ("c2", 3)) if p not in done)
        self.add(other, "received", later_us=10_000_000, **where, reason="redelivered")
        self.found("acked-returned: b", self.orders, self.last, None, (gone["first"], gone["first"]))

    def dequeue_for_no_reason(self) -> None:
        gone = self.left(1, "acked")
        gone["reason"] = "boredom"
        self.found("unexplained: boredom", self.orders, self.last, None, (gone["first"], gone["last"]))
        other = self.left(1, "acked")
        del other["reason"]
        self.found("unexplained", self.orders, self.last, None, (other["first"], other["last"]))

    def enqueue_by_two(self) -> None:
        """The backup also assigns two of the primary's ids."""
        run = self.find("enqueue", lambda r: (r["queue"], r["epoch"]) == (self.audit, self.last))
        first = run["first"]
        where: dict[str, Any] = {"queue": self.audit, "epoch": self.last, "first": first, "last": first + 1}
        self.add(self.pair.backup.process, "enqueue", **where)
        self.found("enqueued-by-two", self.audit, self.last, None, (first, first + 1))

    def serve_after_successor(self) -> None:
        """An hour after it was replaced, the first primary takes three messages and confirms them."""
        hour = 3_600_000_000
        where: dict[str, Any] = {"queue": self.audit, "epoch": self.first, "first": 60_001, "last": 60_003}
        old = ("a", 1)
        self.add(
            ("p1", 7), "sent", later_us=hour, prod="p1.9/1", first=1, last=3, pfirst=90_001, name="fan|x"
        )
        self.add(old, "enqueue", later_us=hour, view=self.first, **where, prod="p1.9/1", pfirst=1, n=1)
        self.add(("p1", 7), "confirmed", later_us=hour, prod="p1.9/1", first=1, last=3)
        self.add(old, "dequeue", later_us=hour, view=self.first, **where, reason="purged")
        self.found("two-primaries: overlap", self.audit, self.first, None, (60_001, 60_003))

    def quarantine_served(self) -> None:
        """The rejoined node quarantines a message that its successor had received."""
        run = self.find("backup_enqueue", lambda r: (r["queue"], r["epoch"]) == (self.orders, self.first))
        where: dict[str, Any] = {
            "queue": self.orders,
            "epoch": self.first,
            "first": run["first"],
            "last": run["first"],
        }
        self.add(("a", 2), "quarantine", **where)
        self.found("quarantine-differs: served", self.orders, self.first, None, (run["first"], run["first"]))

    def miss_in_quarantine(self) -> None:
        """Messages on the first primary's disk were never sent to the backup, and were dropped when it
        rejoined."""
        where: dict[str, Any] = {"queue": self.orders, "epoch": self.first, "first": 70_001, "last": 70_004}
        self.add(("a", 1), "enqueue", view=self.first, **where, n=2, durable=1)
        self.found("quarantine-differs: missing", self.orders, self.first, None, (70_001, 70_004))

    def commit(
        self, prod: str, first: int, copied: tuple[int, ...], unrouted: int = 0, alone: int = 0
    ) -> None:
        """A transaction of four messages, of which the backup has those in `copied`."""
        n, logical = 900_010 + first, 95_000 + first
        self.add(("p1", 7), "sent", prod=prod, first=1, last=4, pfirst=logical, name="fan|x")
        for tag in range(1, 5):
            number = 80_000 + 10 * first + tag
            gone: dict[str, Any] = {"queue": self.orders, "epoch": self.last, "first": number, "last": number}
            where: dict[str, Any] = {**gone, "prod": prod, "pfirst": tag, "n": n}
            if tag == unrouted:
                self.add(self.primary, "unrouted", prod=prod, first=tag, last=tag)
                continue
            if tag == alone:
                continue
            self.add(self.primary, "enqueue", **where)
            if tag in copied:
                self.add(self.pair.backup.process, "backup_enqueue", **where)
            self.add(self.primary, "dequeue", **gone, reason="purged")
        self.add(self.primary, "commit", prod=prod, first=1, last=4, n=n)

    def tear_transaction(self) -> None:
        self.commit("p1.8/1", 1, copied=(1, 2, 4))
        self.found("torn: a", None, None, "p1.8/1", (1, 4))

    def commit_whole(self) -> None:
        """No fault: one message of the transaction is unrouted, and one is in a queue that is not
        replicated."""
        alone: dict[str, Any] = {"queue": "0" * 32, "epoch": self.last, "first": 1, "last": 1}
        self.add(self.primary, "enqueue", **alone, prod="p1.8/2", pfirst=4, n=900_015)
        self.add(self.primary, "dequeue", **alone, reason="purged")
        self.commit("p1.8/2", 5, copied=(1, 2), unrouted=3, alone=4)
