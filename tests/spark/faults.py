"""Plants one fault of each kind into a made history, and says exactly what must be found.

Each lies apart from the others, so that all of them fit into one history.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.spark.ledgers import Pair, Process, Record

FATES = ("received", "acked", "dequeue", "backup_dequeue", "present", "quiesce")


class Faults:
    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.books = pair.run()
        self.expected: set[tuple[Any, ...]] = set()
        self.doubt: tuple[tuple[int, int], ...] = ()
        self.last = pair.epoch
        self.names = {queue: name for name, queue in pair.queues.items()}
        self.orders, self.audit = pair.queues["orders"], pair.queues["audit"]

    def plant_all(self) -> None:
        for plant in (
            self.lose, self.receive_twice, self.receive_late, self.confirm_early, self.confirm_nowhere,
            self.enqueue_unsent, self.enqueue_twice, self.forget, self.resend_confirmed, self.deliver_unknown,
            self.differ, self.doubt_last,
        ):  # fmt: skip
            plant()

    # -- tools

    def add(self, process: Process, kind: str, **fields: Any) -> None:
        """A record just before the seal."""
        record = self.books.note(
            process, self.pair.now, self.last if process[0] in "ab" else 0, kind, **fields
        )
        records = self.books.records[process]
        records.remove(record)
        records.insert(len(records) - 1, record)

    def find(self, kind: str, matches: Callable[[Record], bool]) -> Record:
        return next(r for _, r in self.books.every(kind) if matches(r))

    def found(
        self, kind: str, queue: str | None, epoch: int | None, prod: str | None, *pairs: tuple[int, int]
    ) -> None:
        self.expected.add((kind, self.names[queue] if queue else None, epoch, prod, pairs))

    @property
    def primary(self) -> Process:
        return self.pair.primary.process

    # -- faults

    def lose(self) -> None:
        """Four confirmed ids of the dead primary's epoch leave no trace beyond their enqueue."""
        run = self.find("backup_enqueue", lambda r: r["queue"] == self.orders and r["last"] - r["first"] > 8)
        first = run["first"] + 2
        self.books.cut(
            FATES, lambda r: (r["queue"], r["epoch"]) == (self.orders, run["epoch"]), first, first + 3
        )
        self.found("lost", self.orders, run["epoch"], None, (first, first + 3))

    def receive_twice(self) -> None:
        """A consumer gets two ids again, and nobody flags them."""
        got = self.find("received", lambda r: (r["queue"], r["epoch"]) == (self.audit, self.last))
        first = got["first"]
        self.add(("c3", 3), "received", queue=self.audit, epoch=self.last, first=first, last=first + 1)
        self.found("duplicate-illegal", self.audit, self.last, None, (first, first + 1))

    def receive_late(self) -> None:
        """Two fresh deliveries to one consumer change places."""
        mine = [
            r for r in self.books.records["c3", 3]
            if r["kind"] == "received" and r["epoch"] != self.last and "reason" not in r
        ]  # fmt: skip
        a, b = mine[2], mine[3]
        first, last = a["first"], a["last"]
        for key in ("first", "last"):
            a[key], b[key] = b[key], a[key]
        self.found("reordered", self.audit, a["epoch"], None, (first, last))

    def confirm_early(self) -> None:
        """The acknowledgement of one position in the middle was never received."""
        copied = {(r["epoch"], r["n"]) for _, r in self.books.every("backup_enqueue")}
        n = sorted(n for epoch, n in copied if epoch != self.last)[3]
        epoch = next(epoch for epoch, m in copied if epoch != self.last and m == n)
        self.books.cut(["replicated"], lambda r: r["epoch"] == epoch, n, n)
        for _, run in self.books.every("enqueue"):
            if (run["epoch"], run["n"]) == (epoch, n):
                self.found("early", run["queue"], epoch, None, (run["first"], run["last"]))

    def deliver_unknown(self) -> None:
        where = {"queue": self.audit, "epoch": self.last, "first": 90_000, "last": 90_002}
        self.add(("c3", 3), "received", **where)
        self.found("never-published", self.audit, self.last, None, (90_000, 90_002))

    def confirm_nowhere(self) -> None:
        """Sent and confirmed, and in no queue."""
        self.add(("p2", 7), "sent", prod="p2.5/1", first=1, last=3, pfirst=80_001, name="fan|x")
        self.add(("p2", 7), "confirmed", prod="p2.5/1", first=1, last=3)
        self.found("unplaced", None, None, "p2.5/1", (1, 3))

    def enqueue_unsent(self) -> None:
        where = {"queue": self.audit, "epoch": self.last, "first": 20_001, "last": 20_003}
        self.add(self.primary, "enqueue", **where, prod="p1.1/1", pfirst=70_000, n=900_000)
        self.add(self.primary, "dequeue", **where, reason="purged")
        self.found("unsent", None, None, "p1.1/1", (70_000, 70_002))

    def enqueue_twice(self) -> None:
        """One publish gets a second id in the same queue, which is never delivered."""
        run = self.find("enqueue", lambda r: (r["queue"], r["epoch"]) == (self.orders, self.last))
        where = {"queue": self.orders, "epoch": self.last, "first": 30_001, "last": 30_001}
        self.add(self.primary, "enqueue", **where, prod=run["prod"], pfirst=run["pfirst"])
        self.add(self.primary, "dequeue", **where, reason="dropped")
        self.found("enqueued-twice", self.orders, self.last, run["prod"], (30_001, 30_001))

    def forget(self) -> None:
        """Ids of a publisher without a ledger vanish from the last primary."""
        where = {"queue": self.audit, "epoch": self.last, "first": 40_001, "last": 40_005}
        self.add(self.primary, "enqueue", **where, n=900_001)
        self.found("unaccounted", self.audit, self.last, None, (40_001, 40_005))

    def resend_confirmed(self) -> None:
        """A producer sends two messages again that had been confirmed; a consumer gets both."""
        run = self.find(
            "enqueue",
            lambda r: r["queue"] == self.audit and r["epoch"] != self.last and r["prod"] == "p2.0/1"
            and r["n"] < 40 and r["last"] - r["first"] > 3,
        )  # fmt: skip
        tag = run["pfirst"]
        sent = self.find("sent", lambda r: r["prod"] == "p2.0/1" and r["first"] <= tag <= r["last"])
        logical = sent["pfirst"] + tag - sent["first"]
        where = {"queue": self.audit, "epoch": self.last, "first": 50_001, "last": 50_002}
        self.add(("p2", 7), "sent", prod="p2.6/1", first=1, last=2, pfirst=logical, name="fan|x")
        self.add(self.primary, "enqueue", **where, prod="p2.6/1", pfirst=1)
        self.add(("p2", 7), "confirmed", prod="p2.6/1", first=1, last=2)
        self.add(("c3", 3), "received", **where)
        self.add(("c3", 3), "acked", **where)
        self.found("duplicate-illegal", self.audit, None, "p2#7", (logical, logical + 1))

    def differ(self) -> None:
        """At the quiesce point one node lists one id less."""
        mine = [r for p, r in self.books.every("quiesce") if p == self.pair.backup.process]
        listed = next(r for r in mine if r["last"] > r["first"])
        listed["last"] -= 1
        self.found(
            "copy-differs", listed["queue"], listed["epoch"], None, (listed["last"] + 1, listed["last"] + 1)
        )

    def doubt_last(self) -> None:
        self.add(("p1", 7), "sent", prod="p1.1/1", first=60_001, last=60_002, pfirst=60_001, name="fan|x")
        self.doubt = ((60_001, 60_002),)
