"""One load against one broker: `python -m bench.generator --port P --window W --messages N [--consume]`.

Runs in a process of its own and prints one JSON object. With `--connections` more publishers and consumers do
the same beside the first, each pair with its own queue. `--pid NAME=PID` adds that process's CPU per message
over exactly the measured part. Called by bench/run.py, and by hand when profiling.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench import amqp10_wire, native, portable
from bench.amqp10_wire import Link
from bench.clock import cpu_ns, resident_mib
from bench.loads import NONE_YET, Amqp10, Load, LoadError, Outcome, percentiles, together
from bench.messages import (
    DISTINCT,
    MIXED,
    Ring,
    alike,
    binding_headers,
    content,
    mix,
    prioritized,
    routed,
    with_ids,
)
from bench.octets import NoCounters, sent
from bench.wire import Wire, WireError, longstr, shortstr

SETTLING = 5.0
"""Seconds from a backlog's last confirm to the look at the memory: brokers free garbage meanwhile."""


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.generator", description=__doc__.split("\n")[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=5672)
    parser.add_argument("--user", default="guest")
    parser.add_argument("--password", default="guest")
    parser.add_argument("--window", type=int, default=1000, help="most publishes without a confirm")
    parser.add_argument("--messages", type=int, default=200_000, help="most messages of the measured part")
    parser.add_argument("--seconds", type=float, default=0, help="stop publishing after this long")
    parser.add_argument("--warmup", type=int, default=None, help="messages beforehand")
    parser.add_argument("--size", type=int, default=256, help="bytes of body")
    parser.add_argument("--consume", action="store_true", help="a second connection consumes and acks")
    parser.add_argument("--prefetch", type=int, default=1000, help="prefetch count; 0 is no limit")
    parser.add_argument("--ack-every", type=int, default=50, help="messages per ack, with multiple")
    parser.add_argument("--message-ids", action="store_true", help="each message with its own message-id")
    parser.add_argument("--mix", action="store_true", help="own ids and 11 headers each, 64 B to 4 KiB")
    parser.add_argument("--verify", action="store_true", help="compare each delivery with its publish")
    parser.add_argument("--connections", type=int, default=1, help="publishers, and as many consumers")
    parser.add_argument("--queues", type=int, default=1, help="for each publisher, which takes them in turn")
    parser.add_argument(
        "--exchange", choices=("fanout", "topic", "headers"), help="route by one of this type"
    )
    parser.add_argument(
        "--via", metavar="EXCHANGE", help="publish to this one, by the name of --queue as key"
    )
    parser.add_argument(
        "--consume-port", type=int, help="consume from the broker there; with --via nothing is declared"
    )
    parser.add_argument("--bindings", type=int, default=1, help="of a topic or headers exchange")
    parser.add_argument("--priorities", type=int, default=0, help="of the queue; messages take them in turn")
    parser.add_argument("--ttl", type=int, default=0, help="x-message-ttl of the queues, in ms")
    parser.add_argument("--backlog", action="store_true", help="publish all, then consume all")
    parser.add_argument("--quorum", action="store_true", help="queues of type quorum, which are durable")
    parser.add_argument("--queue", help="this one, which stays, instead of one that is deleted at the end")
    parser.add_argument("--durable", action="store_true", help="a durable queue")
    parser.add_argument("--persistent", action="store_true", help="persistent messages")
    parser.add_argument("--producer", help="the producer identity to announce, which the ledger then records")
    parser.add_argument("--numbers", action="store_true", help="messages have numbers, of a new producer")
    parser.add_argument("--tls-ca", metavar="FILE", help="TLS, with this authority; in Python only")
    parser.add_argument(
        "--amqp10",
        metavar="ADDRESS",
        help="AMQP 1.0, alike or --mix, verified; {} in the address is the queue; needs a C compiler",
    )
    parser.add_argument("--pid", action="append", default=[], metavar="NAME=PID", help="a process to clock")
    parser.add_argument(
        "--link", metavar="PIDS:PIDS", help="count what the first processes send the others: 12,13:14"
    )
    parser.add_argument("--engine", choices=("auto", "c", "python"), default="auto")
    return parser.parse_args(argv)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Open, warm up, measure, and delete a queue of its own again. Raises WireError, LoadError or OSError."""
    library = None if options.engine == "python" or options.tls_ca else native.compiled()
    if options.engine == "c" and library is None:
        raise LoadError("no C compiler: install gcc, or use --engine python")
    if options.amqp10 and library is None:
        raise LoadError("AMQP 1.0 needs the loop in C: install gcc, and use no --engine python")
    lanes: list[Lane] = []
    try:
        for _ in range(options.connections):
            lanes.append(Lane.open(options))
        return _measured(options, library, lanes)
    finally:
        for lane in lanes:
            lane.close()
        if not options.queue:
            _delete(options, [queue for lane in lanes for queue in lane.queues])


@dataclass(slots=True)
class Lane:
    """A publisher with its queues, and maybe their consumer."""

    queues: list[str]
    publisher: Wire
    consumer: Wire | None
    exchange: str
    sender: Link | None = None
    """In AMQP 1.0, in place of the publisher, which then only declares."""
    receiver: Link | None = None

    @classmethod
    def open(cls, options: argparse.Namespace) -> Lane:
        """Connect both, declare the queues, and consume. Raises WireError or OSError."""
        name = options.queue or f"bench-{uuid.uuid4().hex[:12]}"
        queues = [name] if options.queues == 1 else [f"{name}-{at}" for at in range(options.queues)]
        login = {"user": options.user, "password": options.password, "ca": options.tls_ca}
        numbered = name if options.numbers else None
        publisher = Wire.open(
            options.host, options.port, producer=options.producer, producer_id=numbered, **login
        )
        consumes = options.consume and not options.amqp10
        there = options.host, options.consume_port or options.port
        consumer = Wire.open(*there, **login) if consumes else None
        for queue in [] if options.via else queues:
            publisher.declare(
                queue, durable=options.durable or options.quorum, arguments=_queue_arguments(options)
            )
        lane = cls(queues, publisher, consumer, _exchange(options, name))
        lane.bind(options)
        if options.amqp10:
            lane.attach(options)
            return lane
        if not options.backlog:
            lane.consume(options)
        publisher.confirm_select()
        return lane

    def attach(self, options: argparse.Namespace) -> None:
        """In AMQP 1.0: a sender to the first queue, and a receiver from it."""
        where = options.host, options.port, options.amqp10.format(self.queues[0])
        login = {"user": options.user, "password": options.password}
        self.sender = Link.sender(*where, **login)
        if options.consume:
            self.receiver = Link.receiver(*where, options.prefetch, **login)

    def bind(self, options: argparse.Namespace) -> None:
        if not options.exchange:
            return
        self.publisher.declare_exchange(self.exchange, options.exchange)
        if options.exchange == "fanout":
            for queue in self.queues:
                self.publisher.bind(queue, self.exchange)
            return
        for at in range(options.bindings):
            headers = binding_headers(at) if options.exchange == "headers" else b""
            self.publisher.bind(self.queues[0], self.exchange, f"shop.{at}.*", headers)

    def consume(self, options: argparse.Namespace) -> None:
        """From all queues, with their numbers as consumer tags."""
        for at, queue in enumerate(self.queues):
            if self.consumer:
                self.consumer.consume(queue, options.prefetch, tag=str(at))

    def consume_backlog(self, options: argparse.Namespace) -> None:
        """The same when deliveries follow at once."""
        if self.consumer:
            self.consumer.socket.setblocking(True)
            for at, queue in enumerate(self.queues):
                self.consumer.consume_without_answer(queue, options.prefetch, tag=str(at))
            self.consumer.socket.setblocking(False)

    def load(self, options: argparse.Namespace, seed: int) -> Load:
        for wire in (self.publisher, self.consumer, self.sender, self.receiver):
            if wire:
                wire.socket.setblocking(False)
        if self.sender:
            return self.load_amqp10(options, seed, self.sender)
        return Load(
            publisher=self.publisher.socket,
            consumer=self.consumer.socket if self.consumer else None,
            ring=prebuilt(options, self.queues, seed, self.exchange),
            messages=0,
            window=options.window,
            ack_every=options.ack_every,
            content=content(max(options.size, MIXED[1])) if options.verify else None,
            streams=options.priorities or (1 if options.exchange == "fanout" else len(self.queues)),
            fanout=len(self.queues) if options.exchange == "fanout" else 1,
        )

    def load_amqp10(self, options: argparse.Namespace, seed: int, sender: Link) -> Load:
        persistent = options.persistent
        count = max(1_000, DISTINCT // options.connections)
        transfers = (
            amqp10_wire.mix(persistent=persistent, seed=seed, count=count)
            if options.mix
            else amqp10_wire.alike(options.size, persistent=persistent)
        )
        return Load(
            publisher=sender.socket,
            consumer=self.receiver.socket if self.receiver else None,
            ring=transfers.ring,
            messages=0,
            window=options.window,
            ack_every=options.ack_every,
            content=content(max(options.size, MIXED[1])),
            amqp10=Amqp10(transfers, options.prefetch, (sender.credit, sender.session_credit, NONE_YET)),
        )

    def close(self) -> None:
        for wire in (self.receiver, self.sender, self.consumer, self.publisher):
            if wire:
                wire.close()


def _measured(options: argparse.Namespace, library: Any, lanes: list[Lane]) -> dict[str, Any]:
    loads = [lane.load(options, seed) for seed, lane in enumerate(lanes)]
    engine = "c" if library else "python"
    clock = Clock.of(options.pid, options.link)

    def run(messages: int, seconds: float) -> Outcome:
        for load in loads:
            load.messages = -(-messages // len(loads))
            load.limit_ns = int(seconds * 1e9)
        outcomes = native.run(library, loads) if library else portable.run(loads)
        for load, outcome in zip(loads, outcomes, strict=True):
            load.messages = outcome.messages
            load.tags_used += outcome.messages - load.published
            load.deliveries_used += outcome.delivered
        return together(outcomes)

    if options.backlog:
        return _backlog(options, lanes, loads, clock, run) | {"engine": engine}
    warmup = options.warmup if options.warmup is not None else min(20_000, options.messages // 10)
    warmed = run(warmup, options.seconds and max(0.2, options.seconds / 4)).messages if warmup else 0
    clock.start()
    outcome = run(options.messages, options.seconds)
    own, spent = clock.since()
    result = summary(options, outcome, own, spent, engine, warmed)
    return result | {"link_octets_per_message": round(clock.link_octets() / outcome.messages, 1)}


def _backlog(
    options: argparse.Namespace,
    lanes: list[Lane],
    loads: list[Load],
    clock: Clock,
    run: Callable[[int, float], Outcome],
) -> dict[str, Any]:
    """Publish all, look at the memory, then consume all; rates and CPU times of both."""
    consumers = [load.consumer for load in loads]
    for load in loads:
        load.consumer = None
    before = clock.resident()
    clock.start()
    outcome = run(options.messages, options.seconds)
    own, spent = clock.since()
    result = summary(options, outcome, own, spent, "", 0)
    time.sleep(SETTLING)
    resident = {name: mib - before[name] for name, mib in clock.resident().items()}
    result["memory_bytes_per_message"] = {
        name: round(mib * 2**20 / outcome.messages) for name, mib in resident.items()
    }
    for lane, load, consumer in zip(lanes, loads, consumers, strict=True):
        load.consumer, load.published = consumer, load.messages
        lane.consume_backlog(options)
    clock.start()
    drained = run(outcome.messages, 0)
    _, spent = clock.since()
    return result | {
        "delivered": drained.delivered,
        "drain_rate": round(drained.delivered / (drained.elapsed_ns / 1e9)),
        "drain_cpu_us_per_message": {
            name: round(ns / 1e3 / outcome.messages, 3) for name, ns in spent.items()
        },
    }


@dataclass(slots=True)
class Clock:
    """CPU time and memory of the processes that were named on the command line; one name may have many."""

    pids: dict[str, list[int]]
    link: tuple[list[int], list[int]] | None = None
    """The processes whose octets to the others count."""
    before: dict[str, int] = field(default_factory=dict)
    own: int = 0
    octets: int = 0

    @classmethod
    def of(cls, items: list[str], link: str | None) -> Clock:
        pids: dict[str, list[int]] = defaultdict(list)
        for name, _, pid in (item.partition("=") for item in items):
            pids[name].append(int(pid))
        ends = [[int(pid) for pid in end.split(",")] for end in link.split(":")] if link else []
        return cls(dict(pids), (ends[0], ends[1]) if ends else None)

    def start(self) -> None:
        self.octets = sent(*self.link) if self.link else 0
        self.before = {name: sum(map(cpu_ns, each)) for name, each in self.pids.items()}
        self.own = time.process_time_ns()

    def since(self) -> tuple[int, dict[str, int]]:
        """Of this process, and of the others by name, in nanoseconds."""
        own = time.process_time_ns() - self.own
        return own, {name: sum(map(cpu_ns, each)) - self.before[name] for name, each in self.pids.items()}

    def link_octets(self) -> int:
        """Sent over the link since the start."""
        return sent(*self.link) - self.octets if self.link else 0

    def resident(self) -> dict[str, float]:
        """MiB by name."""
        return {name: sum(map(resident_mib, each)) for name, each in self.pids.items()}


def _queue_arguments(options: argparse.Namespace) -> bytes:
    fields = shortstr("x-queue-type") + b"S" + longstr(b"quorum") if options.quorum else b""
    for name, value in (("x-max-priority", options.priorities), ("x-message-ttl", options.ttl)):
        if value:
            fields += shortstr(name) + b"I" + struct.pack(">i", value)
    return fields


def _exchange(options: argparse.Namespace, name: str) -> str:
    """To which a lane publishes; "": the default exchange."""
    return options.via or (f"{name}-exchange" if options.exchange else "")


def prebuilt(options: argparse.Namespace, queues: list[str], seed: int, exchange: str = "") -> Ring:
    """The messages to send round and round."""
    if options.via:
        return alike(queues, options.size, persistent=options.persistent, exchange=exchange)
    if options.exchange == "fanout":
        return alike([""], options.size, persistent=options.persistent, exchange=exchange)
    if options.exchange:
        route = exchange, options.exchange, options.bindings
        return routed(*route, options.size, persistent=options.persistent, seed=seed)
    if options.priorities:
        return prioritized(queues[0], options.size, options.priorities, persistent=options.persistent)
    if options.mix:
        count = max(1_000, DISTINCT // options.connections)
        return mix(queues, persistent=options.persistent, seed=seed, count=count)
    build = with_ids if options.message_ids else alike
    return build(queues, options.size, persistent=options.persistent)


def summary(
    options: argparse.Namespace,
    outcome: Outcome,
    own_ns: int,
    spent_ns: dict[str, int],
    engine: str,
    warmup: int,
) -> dict[str, Any]:
    """The object that is printed: rates a second, times in microseconds."""
    messages = outcome.messages
    return {
        "window": options.window,
        "consume": options.consume,
        "persistent": options.persistent,
        "message_ids": options.message_ids,
        "size": options.size,
        "messages": messages,
        "warmup": warmup,
        "verified": options.verify and options.consume,
        "seconds": round(outcome.elapsed_ns / 1e9, 4),
        "rate": round(messages / (outcome.elapsed_ns / 1e9)),
        "nacked": outcome.nacked,
        "delivered": outcome.delivered,
        "confirm_us": percentiles(outcome.confirm_us),
        "deliver_us": percentiles(outcome.deliver_us),
        "cpu_us_per_message": {name: round(ns / 1e3 / messages, 3) for name, ns in spent_ns.items()},
        "generator_cpu_us_per_message": round(own_ns / 1e3 / messages, 3),
        "messages_per_read": round((messages + outcome.delivered) / max(1, outcome.reads), 1),
        "engine": engine,
    }


def _delete(options: argparse.Namespace, queues: list[str]) -> None:
    try:
        login = {"user": options.user, "password": options.password, "ca": options.tls_ca}
        wire = Wire.open(options.host, options.port, **login)
    except (OSError, WireError):
        return  # the measured part's own error says more
    try:
        for queue in queues:
            wire.delete(queue)
    finally:
        wire.close()


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    try:
        result = measure(options)
    except (OSError, WireError, LoadError, NoCounters) as error:
        print(f"bench.generator: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
