"""bench.durable backlog: a queue that is deeper than the memory that the broker may take."""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench import brokers
from bench.clock import cpu_ns
from bench.durable.nodes import connected, depth, end, peak_mib, start
from bench.durable.report import Cell, Figure, Findings
from bench.wire import FRAME_END, METHOD, longstr, method, shortstr

SIZE, WINDOW, STEPS = 1024, 1000, 10
PREFETCH, ACK_EVERY = 2000, 500
LIMIT_MIB, MOST_MIB = 600, 1024.0
"""Where messages begin to leave, and what the process may have at most."""
CLIFF = 2.0
QOS_OK = struct.pack(">HH", 60, 11)
QUEUE = "deep"


@dataclass(slots=True, frozen=True)
class Leg:
    """One load: messages a second, and CPU microseconds of the broker a message."""

    rate: float
    cpu: float


def backlog(options: argparse.Namespace) -> Findings:
    findings = Findings(
        "backlog",
        f"backlog: {options.backlog:,} messages of 1 KiB in one queue, with paging from {LIMIT_MIB} MiB on",
        [
            "messages", "empty, messages/s", "CPU us", "filling, messages/s", "its slowest tenth", "CPU us",
            "deep, messages/s", "CPU us", "empty to deep", "peak MiB", "started again s", "peak MiB then",
        ],
    )  # fmt: skip
    for persistent in (False, True):
        findings.rows.append(_case(options, persistent))
    findings.notes.append(
        "*Empty* and *deep*: a publisher with confirms and a consumer, on the empty queue and on the full "
        "one, where all that is consumed has to be read back. *Empty to deep*: how many times less is "
        f"passed. Targets: under {MOST_MIB:,.0f} MiB, and at most {CLIFF:g} times less. *Started again*: "
        "after kill -9."
    )
    return findings


def _case(options: argparse.Namespace, persistent: bool) -> list[Cell]:
    settings = [f"broker.paging_limit={LIMIT_MIB}MiB", "ledger.enabled=false"]
    with brokers.alone(*settings, under=options.data) as cluster:
        broker = cluster.brokers[0]
        wire = connected(broker.port)
        wire.declare(QUEUE, durable=True)
        some = max(20_000, min(500_000, options.backlog // 4))
        empty = _both_ways(broker, some, persistent)
        fills = [_load(broker, options.backlog // STEPS, persistent) for _ in range(STEPS)]
        deep = _both_ways(broker, some, persistent)
        peak = peak_mib(broker.process.pid)
        held = depth(wire, QUEUE)
        wire.close()
        if held != options.backlog // STEPS * STEPS:
            raise brokers.BrokerError(f"the queue has {held:,} messages, and not {options.backlog:,}")
        seconds, then = _again(cluster, broker, held) if persistent else (None, None)
    return [
        "persistent" if persistent else "transient",
        Figure(empty.rate),
        Figure(empty.cpu, 2),
        Figure(STEPS / sum(1 / leg.rate for leg in fills)),
        Figure(min(leg.rate for leg in fills)),
        Figure(sum(leg.cpu for leg in fills) / STEPS, 2),
        Figure(deep.rate),
        Figure(deep.cpu, 2),
        Figure(empty.rate / deep.rate, 2, most=CLIFF),
        Figure(peak, most=MOST_MIB),
        Figure(seconds, 2),
        Figure(then, most=MOST_MIB),
    ]


def _both_ways(broker: brokers.Broker, messages: int, persistent: bool) -> Leg:
    """As many published, with confirms, as are consumed meanwhile, from the front of the queue."""
    before, began = cpu_ns(broker.process.pid), time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        consumed = pool.submit(_consume, broker.port, messages)
        _load(broker, messages, persistent)
        consumed.result()
    seconds = time.monotonic() - began
    return Leg(messages / seconds, (cpu_ns(broker.process.pid) - before) / 1e3 / messages)


def _consume(port: int, messages: int) -> None:
    """All deliveries are alike in length: they are counted by their bytes, and each has its own frame end."""
    wire = connected(port)
    wire.call(1, 60, 10, struct.pack(">IHB", 0, PREFETCH, 0))
    wire.call(1, 60, 20, b"\0\0" + shortstr(QUEUE) + shortstr("c") + b"\0" + longstr(b""))
    wire.fill(7)
    at = 0
    for _ in range(3):  # basic.deliver, header, body
        wire.fill(at + 7)
        at += int.from_bytes(wire.held[at + 3 : at + 7], "big") + 8
    wire.fill(at)
    length, octets, acked = at, len(wire.held), 0
    data, offset = bytearray(wire.held), 0
    while True:
        while len(data) - offset >= length:
            if data[offset] != METHOD or data[offset + length - 1] != FRAME_END:
                raise brokers.BrokerError("a delivery of another shape")
            offset += length
        del data[:offset]
        offset = 0
        done = octets // length
        if done - acked >= ACK_EVERY or done >= messages:
            acked = min(done, messages)
            wire.socket.sendall(method(1, 60, 80, struct.pack(">QB", acked, 1)))
        if done >= messages:
            break
        got = wire.socket.recv(1 << 18)
        if not got:
            raise brokers.BrokerError("the broker closed the consumer's connection")
        octets += len(got)
        data += got
    wire.held = data
    wire.socket.sendall(method(1, 60, 10, struct.pack(">IHB", 0, 0, 0)))
    while wire.read_frame() != (METHOD, QOS_OK):
        pass  # what was acked before has been heard then
    wire.close()


def _load(broker: brokers.Broker, messages: int, persistent: bool) -> Leg:
    command = [sys.executable, "-m", "bench.generator", "--port", str(broker.port), "--queue", QUEUE]
    command += ["--messages", str(messages), "--warmup", "0", "--window", str(WINDOW), "--size", str(SIZE)]
    command += ["--durable", *(["--persistent"] if persistent else [])]
    before = cpu_ns(broker.process.pid)
    done = subprocess.run(command, cwd=brokers.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise brokers.BrokerError(f"{done.stderr.strip()}\n{broker.last_words()}")
    cpu = (cpu_ns(broker.process.pid) - before) / 1e3 / messages
    return Leg(float(json.loads(done.stdout)["rate"]), cpu)


def _again(cluster: brokers.Cluster, broker: brokers.Broker, held: int) -> tuple[float, float]:
    """Killed, and started on its store: as many messages, in as little memory."""
    end(cluster, broker, "kill")
    settings = [f"broker.paging_limit={LIMIT_MIB}MiB", "ledger.enabled=false"]
    started = start(cluster, broker.name, broker.port, QUEUE, *settings)
    if started.messages != held:
        raise brokers.BrokerError(f"{started.messages:,} messages came back, and not {held:,}")
    return started.seconds, started.peak_mib
