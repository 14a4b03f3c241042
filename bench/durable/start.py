"""bench.durable start: from exec until a client has its answer, with many messages or many queues on disk."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bench import brokers
from bench.durable.nodes import Started, end, fill, forget_pages, size_of, start
from bench.durable.report import Cell, Figure, Findings
from bench.join import fill_many

SIZE = 256
MANY = 10_000_000
COLUMNS = [
    "on disk",
    "seconds",
    "CPU s",
    "peak MiB",
    "files MiB",
    "seconds once more",
    "files MiB then",
    "stop s",
]
TARGETS = {1_000_000: 5.0, MANY: 40.0}
QUEUES_TARGET = 3.0


def begin(options: argparse.Namespace) -> Findings:
    findings = Findings("start", "from exec of `understudy serve` until queue.declare is answered", COLUMNS)
    counts = [options.deep, *([MANY] if options.large else [])]

    def messages(count: int, *, distinct: bool) -> Callable[[int], tuple[str, int]]:
        def load(port: int) -> tuple[str, int]:
            fill(port, "deep", count, SIZE, distinct=distinct)
            return "deep", count

        return load

    def queues(port: int) -> tuple[str, int]:
        fill_many(port, options.queues, 0, SIZE)
        return f"q-{options.queues - 1}", 0

    for count in counts:
        for how in ("kill", "stop"):
            name = f"{count:,} messages"
            findings.rows.append(
                case(options, name, how, messages(count, distinct=False), TARGETS.get(count))
            )
    name = f"{options.deep:,} messages, each with its message-id"
    most = TARGETS.get(options.deep)
    findings.rows.append(case(options, name, "kill", messages(options.deep, distinct=True), most))
    for how in ("kill", "stop"):
        findings.rows.append(case(options, f"{options.queues:,} queues", how, queues, QUEUES_TARGET))
    cached = "not in the page cache" if options.cold else "in the page cache"
    findings.notes = [
        "Targets: 5 s for 1,000,000 messages of 256 bytes, 40 s for 10,000,000, 3 s for 10,000 queues. "
        "*Once more*: ended in the same way right after the first start and started again. *Stop*: from "
        f"SIGTERM until the process is gone. The files were {cached}."
    ]
    return findings


def case(
    options: argparse.Namespace,
    name: str,
    how: str,
    load: Callable[[int], tuple[str, int]],
    most: float | None,
) -> list[Cell]:
    with brokers.alone(under=options.data) as cluster:
        broker = cluster.brokers[0]
        queue, count = load(broker.port)
        ends, sizes, starts = [], [], list[Started]()
        for _ in range(2):
            ends.append(end(cluster, broker, how))
            sizes.append(size_of(cluster.folder / broker.name))
            if options.cold:
                forget_pages(cluster.folder / broker.name)
            starts.append(start(cluster, broker.name, broker.port, queue))
            broker = starts[-1].broker
            if starts[-1].messages != count:
                raise brokers.BrokerError(f"{starts[-1].messages:,} of {count:,} messages came back")
    first, again = starts
    return [
        f"{name}, after {'kill -9' if how == 'kill' else 'a stop'}",
        Figure(first.seconds, 2, most=most),
        Figure(first.cpu_seconds, 2),
        Figure(first.peak_mib),
        Figure(sizes[0] / 2**20, 1),
        Figure(again.seconds, 2, most=most),
        Figure(sizes[1] / 2**20, 1),
        Figure(max(ends), 2) if how == "stop" else "-",
    ]
