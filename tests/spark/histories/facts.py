"""The facts of a correct history about single ids and tags, for choosing a place to spoil."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.spark.histories.ledgers import Ledgers
from tests.spark.records import Process, Record

Key = tuple[str, int, int]
"""Queue, epoch, number."""


@dataclass
class Known:
    puts: list[tuple[Process, Record]] = field(default_factory=list)
    dequeues: list[tuple[Process, Record]] = field(default_factory=list)
    """Dequeues by primaries and by backups."""
    received: list[tuple[Process, Record]] = field(default_factory=list)
    acked: list[tuple[Process, Record]] = field(default_factory=list)
    quarantined: int = 0
    present: int = 0

    @property
    def ended(self) -> bool:
        return bool(self.dequeues or self.acked or self.present)

    @property
    def fresh(self) -> int:
        return sum("reason" not in record for _, record in self.received)


class Facts:
    def __init__(self, ledgers: Ledgers) -> None:
        self.ids: dict[Key, Known] = defaultdict(Known)
        self.confirmed: dict[tuple[str, int], int] = {}
        """Session and tag -> time of the confirm."""
        self.sent: dict[tuple[str, int], tuple[Process, int]] = {}
        """Session and tag -> producer process and logical number."""
        self.sends: dict[tuple[Process, int], int] = defaultdict(int)
        self.at: dict[tuple[int, int], list[tuple[Process, Record]]] = defaultdict(list)
        """View and position -> what the primary enqueued at that position."""
        self.commits: list[Record] = []
        self.replicated: list[tuple[Process, Record]] = []
        self.sealed = {p for p, r in ledgers.every("seal")}
        self.promotes = sorted(((r["view"], p) for p, r in ledgers.every("promote")), key=lambda x: x[0])
        for process, record in list(ledgers.every(*KINDS)):
            self.enter(process, record)

    def enter(self, process: Process, record: Record) -> None:
        kind = record["kind"]
        numbers = range(record["first"], record["last"] + 1)
        if kind == "confirmed":
            self.confirmed |= {(record["prod"], tag): record["ts_us"] for tag in numbers}
        elif kind == "sent":
            for tag in numbers:
                logical = record["pfirst"] + tag - record["first"]
                self.sent[record["prod"], tag] = process, logical
                self.sends[process, logical] += 1
        elif kind == "commit":
            self.commits.append(record)
        elif kind == "replicated":
            self.replicated.append((process, record))
        else:
            if kind == "enqueue":
                self.at[record["view"], record["n"]].append((process, record))
            for number in numbers:
                self.enter_id(self.ids[record["queue"], record["epoch"], number], process, record)

    def enter_id(self, known: Known, process: Process, record: Record) -> None:
        match record["kind"]:
            case "enqueue" | "backup_enqueue":
                known.puts.append((process, record))
            case "dequeue" | "backup_dequeue":
                known.dequeues.append((process, record))
            case "received":
                known.received.append((process, record))
            case "acked":
                known.acked.append((process, record))
            case "quarantine":
                known.quarantined += 1
            case "present":
                known.present += 1

    @property
    def owner(self) -> Process:
        """The last primary."""
        return self.promotes[-1][1]

    def is_confirmed(self, record: Record, number: int) -> bool:
        tag = record["pfirst"] + number - record["first"] if "prod" in record else -1
        return (record.get("prod", ""), tag) in self.confirmed

    def promoted_after(self, process: Process, epoch: int) -> bool:
        return any(p == process and view > epoch for view, p in self.promotes)


KINDS = (
    "sent", "confirmed", "commit", "replicated", "enqueue", "backup_enqueue", "dequeue", "backup_dequeue",
    "received", "acked", "quarantine", "present",
)  # fmt: skip
