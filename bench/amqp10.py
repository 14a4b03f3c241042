"""What AMQP 1.0 costs: `python -m bench.amqp10 [--messages N] [--repeats N] [--window N]`.

A broker alone and a pair, each loaded by the client kit over Proton with so many messages of 256 octets in
doubt at most, then emptied by it; the same by the kit over kombu (0-9-1), in turns. Queues are durable,
messages transient. What is told is the CPU time of whole processes a message, as the kernel accounts it.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

import kombu
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench import brokers
from bench.clock import cpu_ns
from understudy import client
from understudy.client import amqp10

QUEUE = "bench"
BODY = b"x" * 256
MODES = {"alone": brokers.alone, "replicated": brokers.pair}
PROTOCOLS = {"1.0": amqp10, "0-9-1": client}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.amqp10", description=__doc__.split("\n")[0])
    parser.add_argument("--messages", type=int, default=20_000, help="of each load")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--window", type=int, default=500)
    options = parser.parse_args(argv)
    found: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for mode, start in MODES.items():
        with start() as cluster:
            address = cluster.brokers[0].address
            _declare(address)
            turns = [name for _ in range(options.repeats) for name in PROTOCOLS]
            for name in track(turns, description=mode):
                pids = [broker.process.pid for broker in cluster.brokers]
                found[mode, name].append(
                    _turn(PROTOCOLS[name], address, pids, options.messages, options.window)
                )
    Console().print(_table(found))
    return 0


def _declare(address: str) -> None:
    untyped: Any = kombu  # its own annotations are partial
    with untyped.Connection(f"amqp://guest:guest@{address}//") as connection:
        untyped.Queue(QUEUE, durable=True)(connection.channel()).declare()


def _turn(kit: Any, address: str, pids: list[int], messages: int, window: int) -> tuple[float, ...]:
    """Publish, then consume: seconds and CPU us a message of the first broker, of the second, and of this
    process, for each of the two."""
    with kit.Publisher(address, name="bench", window=window) as publisher:
        published = _measured(pids, messages, _publishing(publisher, messages))
    with kit.Consumer(address, QUEUE, name="bench", prefetch=window) as consumer:
        consumed = _measured(pids, messages, _consuming(consumer, messages))
    return (*published, *consumed)


def _publishing(publisher: Any, messages: int) -> Iterable[None]:
    publisher.connect()
    yield
    for _ in range(messages):
        publisher.publish(BODY, QUEUE, persistent=False)
    publisher.flush()


def _consuming(consumer: Any, messages: int) -> Iterable[None]:
    deliveries = consumer.deliveries()
    yield
    for _ in range(messages):
        next(deliveries)
    deliveries.close()


def _measured(pids: list[int], messages: int, steps: Iterable[None]) -> tuple[float, ...]:
    """Of what follows the first step."""
    work = iter(steps)
    next(work)
    before, own, began = [cpu_ns(pid) for pid in pids], time.process_time_ns(), time.perf_counter()
    for _ in work:
        pass
    seconds = time.perf_counter() - began
    spent = [(cpu_ns(pid) - was) / 1000 / messages for pid, was in zip(pids, before, strict=True)]
    spent += [0.0] * (2 - len(spent))
    return seconds, *spent, (time.process_time_ns() - own) / 1000 / messages


def _table(found: dict[tuple[str, str], list[tuple[float, ...]]]) -> Table:
    table = Table(title="CPU us a message, median of the turns")
    for column in ("brokers", "protocol", "load", "primary", "backup", "client"):
        table.add_column(column, justify="right" if column in ("primary", "backup", "client") else "left")
    for (mode, name), runs in found.items():
        for load, first in (("publish, outcome", 0), ("receive, accept", 4)):
            middle = [f"{median(run[first + at] for run in runs):.1f}" for at in (1, 2, 3)]
            table.add_row(mode, name, load, middle[0], middle[1] if mode == "replicated" else "-", middle[2])
    return table


if __name__ == "__main__":
    raise SystemExit(main())
