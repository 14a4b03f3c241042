"""What a ledger costs: `python -m bench.ledger [--messages N] [--repeats N]`.

Real brokers are loaded, alone and as a pair; their ledgers then say which records were handed to the kernel
in which flush. That is done again, as often as asked, by a ledger's sink alone, on the CPU clock of this
process: so the mix of run lengths, of kinds and of writes is that of a broker, and nothing else is measured.
Besides, the CPU time of whole brokers with a ledger and without one, in turns.

A *core at 100,000 a second* is the share of one core that so many messages a second, in and out again, take.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from bench import brokers
from broker.model.history.batch import Batch
from broker.model.history.records import Dequeue, EnqueueRun, Envelope, Record, Unrouted
from broker.model.values import Position, Reason, Scope
from understudy.ledger.batches import BACKUP, PRIMARY, LedgerSink

REASONS = {reason.ledger_name: reason for reason in Reason}
FIELDS = ("queue", "epoch", "first", "last", "reason", "prod", "pfirst", "name", "peer", "n")
OF_BATCHES = ("enqueue", "backup_enqueue", "dequeue", "backup_dequeue", "unrouted")
GOAL = 0.02
Step = Callable[[LedgerSink], None]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ledger", description=__doc__.split("\n")[0])
    parser.add_argument("--messages", type=int, default=300_000, help="of each load")
    parser.add_argument("--windows", type=int, nargs="*", default=[1000, 100], metavar="N")
    parser.add_argument("--repeats", type=int, default=9, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="whole brokers with and without, in turns")
    options = parser.parse_args(argv)
    rows = []
    for window in options.windows:
        for mode, start in (("alone", brokers.alone), ("pair", brokers.pair)):
            for role, records in recorded(start, window, options.messages).items():
                rows.append(measured(f"{mode}, {role}, window {window}", records, options.repeats))
    for notes in (False, True):
        what = "made: runs of 26 to 34, a flush each" + (
            ", and notes of both disks in another" if notes else ""
        )
        rows.append(measured(what, made(options.messages, notes=notes), options.repeats))
    for row in rows:
        print(json.dumps(row), flush=True)
    if options.rounds:
        print(json.dumps(in_turns(options)), flush=True)
    return 0 if all(row["core_at_100k_median"] <= GOAL for row in rows if "made" not in row["what"]) else 1


# -- what real brokers write


def load(cluster: brokers.Cluster, window: int, messages: int) -> dict[str, Any]:
    """Publish and consume durably at the first broker; what the generator says."""
    broker = cluster.brokers[0]
    command = [sys.executable, "-m", "bench.generator", "--port", str(broker.port), "--consume"]
    command += ["--window", str(window), "--messages", str(messages), "--durable"]
    command += ["--persistent", "--producer", "shop.1.1", "--pid", f"broker={broker.process.pid}"]
    done = subprocess.run(command, cwd=brokers.ROOT, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def recorded(
    start: Callable[..., brokers.Cluster], window: int, messages: int
) -> dict[str, list[dict[str, Any]]]:
    """Records by role, as one load left them."""
    found = {}
    with start(under=Path(tempfile.gettempdir())) as cluster:
        load(cluster, window, messages)
        for place, broker in enumerate(cluster.brokers):
            broker.process.terminate()
            broker.process.wait(30)
            paths = (cluster.folder / broker.name / "ledger").glob("*.ledger.jsonl")
            lines = [line for path in sorted(paths) for line in path.read_text().splitlines()]
            records = sorted(map(json.loads, lines), key=lambda record: record["wseq"])
            found["backup" if place else "primary"] = records
    return found


def made(messages: int, *, notes: bool) -> list[dict[str, Any]]:
    """A primary that gets no more than one run in each tick; acks in any order leave ranges of 12 to 146.
    `notes`: it is told of its own disk, and by its backup of memory and disk, between any two runs."""
    draw = random.Random(1)
    found: list[dict[str, Any]] = []
    enqueued = dequeued = ts = 0

    def note(kind: str, **fields: Any) -> None:
        found.append({"ts_us": ts, "view": 7, "kind": kind, "epoch": 7, **fields})

    while enqueued < messages:
        first, enqueued, ts = enqueued + 1, enqueued + draw.randint(26, 34), ts + 1
        of_queue = {"queue": f"{ts % 4:032x}"}
        tags = {"prod": "shop.1.1/1", "pfirst": first}
        note("enqueue", first=first, last=enqueued, n=ts, durable=1, **of_queue, **tags)
        if enqueued - dequeued > 79:
            last = dequeued + draw.randint(12, 146)
            note("dequeue", first=dequeued + 1, last=last, reason="acked", **of_queue)
            dequeued = last
        if not notes:
            continue
        ts += 1
        for reason in ("applied", "durable"):
            note("replicated", peer="b", first=ts, last=ts, reason=reason)
        note("durable", first=ts, last=ts)
    return found


# -- the same by a sink alone


def steps(records: list[dict[str, Any]]) -> list[Step]:
    """What a node asked of its sink: batches and notes; each flush had a reading of the clock of its own."""
    found: list[Step] = []
    for _, flushed in groupby(records, key=lambda record: record["ts_us"]):
        for batched, group in groupby(flushed, key=lambda record: record["kind"] in OF_BATCHES):
            if not batched:
                for record in group:
                    fields = {name: record[name] for name in FIELDS if name in record}
                    found.append(noting(record["kind"], fields))
                continue
            key = lambda r: (r["view"], r["kind"].startswith("backup_"))  # noqa: E731
            for (view, backup), one in groupby(group, key=key):
                some = list(one)
                n = next((r["n"] for r in some if "n" in r), 1)
                batch = Batch(Position(view, n), 0, gathered(some))
                found.append(batching(batch, BACKUP if backup else PRIMARY))
        found.append(LedgerSink.flush)
    return found


def noting(kind: str, fields: dict[str, Any]) -> Step:
    return lambda sink: sink.record(kind, **fields)


def batching(batch: Batch, role: str) -> Step:
    return lambda sink: sink.batch(batch, role)


def gathered(records: list[dict[str, Any]]) -> list[Record]:
    """History records again, of a run's ranges or a queue's dequeues each."""
    found: list[Record] = []
    for record in records:
        kind = record["kind"].removeprefix("backup_")
        span = (record["first"], record["last"])
        if kind == "enqueue":
            envelope = Envelope(
                record["epoch"], "", "k", persistent=True, wall_ms=0, channel=1, largest_frame=9
            )
            scope = Scope.STORE if record.get("durable") else Scope.NONE
            raws = [b""] * (span[1] - span[0] + 1)
            queue = bytes.fromhex(record["queue"])
            tag = record.get("pfirst", 0)
            found.append(EnqueueRun([queue], [span[0]], envelope, raws, record.get("prod"), tag, scope))
        elif kind == "unrouted":
            found.append(Unrouted(record["prod"], *span))
        else:
            queue, reason = bytes.fromhex(record["queue"]), REASONS[record["reason"]]
            last = found[-1] if found else None
            same = isinstance(last, Dequeue) and (last.queue, last.epoch) == (queue, record["epoch"])
            if same and isinstance(last, Dequeue) and last.reason is reason:
                last.ranges.append(span)
            else:
                found.append(Dequeue(queue, record["epoch"], reason, [span]))
    return found


def measured(name: str, records: list[dict[str, Any]], repeats: int) -> dict[str, Any]:
    todo = steps(records)
    ids = Counter[str]()
    runs = Counter[str]()
    for record in records:
        if record["kind"] in OF_BATCHES:
            kind = record["kind"].removeprefix("backup_")
            ids[kind] += record["last"] - record["first"] + 1
            runs[kind] += 1
    spent = []
    for _ in range(repeats):
        folder = tempfile.mkdtemp(prefix="understudy-bench-")
        try:
            sink = LedgerSink(folder, "a", "broker", incarnation=1)
            began = time.process_time()
            for step in todo:
                step(sink)
            spent.append(time.process_time() - began)
            sink.close(seal=True)
        finally:
            shutil.rmtree(folder)
    cores = sorted(seconds / ids["enqueue"] * 100_000 for seconds in spent)
    flushes = sum(step is LedgerSink.flush for step in todo)
    return {
        "what": name, "messages": ids["enqueue"], "dequeued": ids["dequeue"], "records": len(records),
        "flushes": flushes, "enqueue_run": round(ids["enqueue"] / max(1, runs["enqueue"]), 1),
        "dequeue_run": round(ids["dequeue"] / max(1, runs["dequeue"]), 1),
        "core_at_100k_median": round(median(cores), 4), "core_at_100k_least": round(cores[0], 4),
        "core_at_100k_most": round(cores[-1], 4),
    }  # fmt: skip


# -- whole brokers


def in_turns(options: argparse.Namespace) -> dict[str, Any]:
    """CPU microseconds a message of a standalone broker, with and without, one after the other."""
    found: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(options.rounds):
        for name, setting in (("with", "true"), ("without", "false")):
            with brokers.alone(f"ledger.enabled={setting}") as cluster:
                told = load(cluster, options.windows[0], options.messages)
                found[name].append(told["cpu_us_per_message"]["broker"])
    return {
        "what": "whole broker, CPU us a message",
        **{name: [round(us, 2) for us in sorted(values)] for name, values in found.items()},
        "difference_of_medians": round(median(found["with"]) - median(found["without"]), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
