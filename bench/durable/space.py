"""bench.durable space: what is on disk while messages pass through a queue that is always nearly empty."""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from bench import brokers, portable
from bench.durable.nodes import Written, connected, depth, end, size_of, start
from bench.durable.report import Cell, Figure, Findings
from bench.loads import Load
from bench.messages import alike
from bench.wire import Wire, method, publish_frames, shortstr

SIZE, WINDOW = 256, 1000
MOST_MIB = 256.0
"""What counts as small: four segments of 64 MiB."""
EACH = 1000
SETTLE = 5.0
"""Seconds of quiet before the last sample."""
QUEUE = "passing"
CASES = {
    "plain": "all acked",
    "head": "the first one never acked",
    "each": f"every {EACH:,}th never acked",
}


@dataclass(slots=True, frozen=True)
class Sample:
    seconds: float
    store: int
    """Bytes of the store's directory."""
    all: int
    """Of the whole data directory, ledger and all."""
    depth: int
    """Ready messages of the queue."""


class Sampler(threading.Thread):
    """Looks at a data directory and a queue at an interval, until `stop`."""

    def __init__(self, folder: Path, port: int, interval: float) -> None:
        super().__init__(daemon=True)
        self.folder, self.interval = folder, interval
        self.samples: list[Sample] = []
        self._wire = connected(port)
        self._enough = threading.Event()
        self._began = time.monotonic()
        self.start()

    def run(self) -> None:
        while not self._enough.wait(self.interval):
            self.look()

    def look(self) -> None:
        seconds = time.monotonic() - self._began
        store = size_of(self.folder / "store")
        self.samples.append(Sample(seconds, store, size_of(self.folder), depth(self._wire, QUEUE)))

    def stop(self) -> None:
        self._enough.set()
        self.join()
        self.look()
        self._wire.close()


class Leaving(portable.Run):
    """The generator's loop in Python, of which each EACHth delivery is never acked, so all others are acked
    one by one; and nothing is published before what was is delivered.
    """

    def permitted(self) -> int:
        return min(super().permitted(), self.acked + 2 * self.load.window)

    def acknowledge(self) -> None:
        first = self.load.tags_used + self.acked + 1
        for tag in range(first, self.load.tags_used + self.delivered + 1):
            if tag % EACH:
                self.acks += _ACK.pack(1, 1, 13, 60, 80, tag, 0, 0xCE)
        self.acked = self.delivered
        super().acknowledge()


_ACK = struct.Struct(">BHIHHQBB")


def space(options: argparse.Namespace) -> Findings:
    columns = ["load", "messages/s", "written MiB", "largest MiB", "at the end MiB", "after quiet MiB"]
    columns += ["ledger MiB", "deepest queue", "start after kill -9 s"]
    title = f"{options.messages:,} persistent messages of {SIZE} bytes pass a queue that is nearly empty"
    findings = Findings("space", title, columns)
    findings.notes = [f"Small is {MOST_MIB:g} MiB at most, whatever has passed."]
    for case, words in CASES.items():
        with brokers.alone(under=options.data) as cluster:
            row, samples = _case(cluster, case, options)
        findings.rows.append([words, *row])
        findings.notes.append(f"Store over time, MiB, {words}: {over_time(samples)}.")
    return findings


def _case(
    cluster: brokers.Cluster, case: str, options: argparse.Namespace
) -> tuple[list[Cell], list[Sample]]:
    broker = cluster.brokers[0]
    setup = connected(broker.port)
    setup.declare(QUEUE, durable=True)
    if case == "head":
        setup.socket.sendall(publish_frames(1, QUEUE, b"\0" * SIZE, persistent=True))
        setup.socket.sendall(_get())
        setup.expect((60, 71))
    before = Written.of(broker)
    sampler = Sampler(cluster.folder / broker.name, broker.port, options.interval)
    began = time.monotonic()
    holder: Wire | None = None
    if case == "each":
        holder = leave(broker.port, options.messages)
    else:
        generate(broker, options.messages)
    seconds = time.monotonic() - began
    sampler.look()
    ended = sampler.samples[-1]
    time.sleep(min(SETTLE, seconds))
    sampler.stop()
    wrote = Written.of(broker).since(before)
    quiet = sampler.samples[-1]
    left = {"plain": 0, "head": 1, "each": options.messages // EACH}[case]
    started = _comes_back(cluster, left)
    for wire in (setup, holder):
        if wire is not None:
            wire.close()
    row: list[Cell] = [
        Figure(options.messages / seconds),
        Figure(wrote.bytes / 2**20),
        Figure(max(sample.store for sample in sampler.samples) / 2**20, most=MOST_MIB),
        Figure(ended.store / 2**20),
        Figure(quiet.store / 2**20),
        Figure((quiet.all - quiet.store) / 2**20),
        Figure(max(sample.depth for sample in sampler.samples)),
        Figure(started, 2),
    ]
    return row, sampler.samples


def _comes_back(cluster: brokers.Cluster, left: int) -> float:
    """Kill and start: how long it took. Raises BrokerError unless exactly the unacked messages are there."""
    broker = cluster.brokers[0]
    end(cluster, broker, "kill")
    again = start(cluster, broker.name, broker.port, QUEUE)
    if again.messages != left:
        raise brokers.BrokerError(f"{again.messages:,} messages came back, {left:,} were not acked")
    return again.seconds


def generate(broker: brokers.Broker, messages: int) -> None:
    command = [sys.executable, "-m", "bench.generator", "--port", str(broker.port), "--queue", QUEUE]
    command += ["--messages", str(messages), "--warmup", "0", "--window", str(WINDOW), "--size", str(SIZE)]
    command += ["--consume", "--durable", "--persistent"]
    done = subprocess.run(command, cwd=brokers.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise brokers.BrokerError(f"{done.stderr.strip()}\n{broker.last_words()}")


def leave(port: int, messages: int) -> Wire:
    """Publish and consume here; each EACHth is unacked until the connection that is returned is closed."""
    publisher = connected(port)
    consumer = connected(port)
    publisher.confirm_select()
    consumer.consume(QUEUE, 0)
    for wire in (publisher, consumer):
        wire.socket.setblocking(False)
    load = Load(
        publisher=publisher.socket,
        consumer=consumer.socket,
        ring=alike([QUEUE], SIZE, persistent=True),
        messages=messages,
        window=WINDOW,
    )
    portable.loop([Leaving(load)])
    publisher.close()
    consumer.socket.setblocking(True)
    return consumer


def _get() -> bytes:
    return method(1, 60, 70, b"\0\0" + shortstr(QUEUE) + b"\0")


def over_time(samples: list[Sample], points: int = 12) -> str:
    """The store's size at so many times, first and last among them, in MiB."""
    if len(samples) > points:
        step = (len(samples) - 1) / (points - 1)
        samples = [samples[round(at * step)] for at in range(points)]
    return ", ".join(f"{sample.store / 2**20:,.0f} at {sample.seconds:,.0f} s" for sample in samples)
