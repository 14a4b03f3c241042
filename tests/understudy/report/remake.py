"""Regenerates the stored results: `python -m tests.understudy.report.remake` (needs Spark; takes a
minute)."""

from __future__ import annotations

import json
import math
import random
import tempfile
from pathlib import Path
from typing import Any

from spark.insight.survey import survey
from spark.latency.confirms import confirm_latency
from spark.reconcile.input.read import find_ledgers, read_records
from spark.reconcile.job import reconcile
from spark.session import open_session
from tests.spark.faults import Faults
from tests.spark.ledgers import CLUSTER, START_US, Ledgers, Pair
from tests.understudy.report.stored import FOLDER
from understudy.report.evidence import with_lines

DAYS = 6
HOUR_US = 3_600_000_000
DELAYS = {"confirmed": 3, "received": 40, "replicated": 2}


def stretched(ledgers: Ledgers, factor: int, unit_us: int = 0) -> Ledgers:
    """The same history, `unit` times longer: every kind of answer takes that much more time."""
    rng = random.Random(4)
    for records in ledgers.records.values():
        for record in records:
            record["ts_us"] = START_US + factor * (record["ts_us"] - START_US)
            units = DELAYS.get(record["kind"], 0)
            record["ts_us"] += int(units * unit_us * rng.lognormvariate(0, 0.6))
    return ledgers


class Days(Pair):
    """Six days of traffic that rises by day and falls by night, with two failovers."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.owners = 0

    def promote(self, previous: str, reason: str) -> None:
        self.owners += 1
        self.epoch = self.owners << 16 | self.owners
        super().promote(previous, reason)

    def run(self) -> Ledgers:
        self.begin()
        for hour in range(24 * DAYS):
            self.now = START_US + hour * HOUR_US + self.rng.randrange(HOUR_US // 60)
            self.batch = 3 + round(24 * max(0.0, math.sin((hour % 24 - 6) / 12 * math.pi)))
            if hour in (2, 62, 110):
                self.include()
            if hour in (60, 108):
                self.busy(6)
                self.fail_over()
                self.busy(6)
            self.busy(2)
        self.replicate()
        self.end()
        return self.ledgers

    def begin(self) -> None:
        """The writers and the first promotion, as in the parent's `run`, whose days last milliseconds."""
        for node in (self.primary, self.backup):
            self.note(node.process, "open", name="broker", reason=CLUSTER)
        clients: list[tuple[str, Any]] = [("producer", p) for p in self.producers]
        clients += [("consumer", c) for c in self.consumers]
        for role, client in clients:
            self.note(client.process, "open", name=role, reason="")
        self.promote("", "bootstrap")
        for name, queue in self.queues.items():
            self.note(self.primary.process, "definition", queue=queue, name=name)

    def busy(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()


def not_provable(folder: Path) -> None:
    """A loss in ledgers that lack a record of the primary and the seal of a producer."""
    faults = Faults(Pair(5))
    faults.lose()
    faults.ledgers.write(folder)
    for name, unwanted in (("a-1-0", b'"replicated"'), ("p2-7-0", b'"seal"')):
        ledger = folder / f"{name}.ledger.jsonl"
        lines = ledger.read_bytes().splitlines(keepends=True)
        place = next(k for k, line in enumerate(lines) if unwanted in line and k > 20)
        ledger.write_bytes(b"".join(lines[:place] + lines[place + 1 :]))


def main() -> None:
    session = open_session(small=True)

    def run(folder: Path) -> dict[str, Any]:
        found = find_ledgers([folder])
        answer = reconcile(session, found)
        answer["latency"] = confirm_latency(read_records(session, found.ledgers), answer["timeline"])
        return with_lines(answer, [folder])

    with tempfile.TemporaryDirectory() as scratch:
        top = Path(scratch)
        faults = Faults(Pair(4))
        faults.plant_all()
        stretched(faults.ledgers, 1, 100).write(top / "violated")
        stretched(Pair(1, ticks=200).run(), 20, 900).write(top / "proven")
        not_provable(top / "not-provable")
        stretched(Days(7).run(), 1, 900).write(top / "days")
        answers = {name: run(top / name) for name in ("proven", "violated", "not-provable")}
        answers["days"] = survey(session, find_ledgers([top / "days"]), 0, 1 << 62)
    session.stop()
    FOLDER.mkdir(exist_ok=True)
    for name, answer in answers.items():
        (FOLDER / f"{name}.json").write_text(json.dumps(answer, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
