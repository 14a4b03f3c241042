"""One load against one broker: `python -m bench.generator --port P --window W --messages N [--consume]`.

Runs in a process of its own and prints one JSON object. `--pid NAME=PID` adds that process's CPU per message
over exactly the measured part. Called by bench/run.py, and by hand when profiling.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from typing import Any

from bench import native, portable
from bench.clock import cpu_ns
from bench.loads import Load, LoadError, Outcome, percentiles
from bench.wire import Wire, WireError, publish_frames

COPIES = 262144
"""Bytes of pre-built frames when all are alike."""
DISTINCT = 20_000
"""Messages built when each is to differ: too many for anything to remember them all."""


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
    parser.add_argument("--queue", help="this one, which stays, instead of one that is deleted at the end")
    parser.add_argument("--durable", action="store_true", help="a durable queue")
    parser.add_argument("--persistent", action="store_true", help="persistent messages")
    parser.add_argument("--producer", help="the producer identity to announce, which the ledger then records")
    parser.add_argument("--pid", action="append", default=[], metavar="NAME=PID", help="a process to clock")
    parser.add_argument("--engine", choices=("auto", "c", "python"), default="auto")
    return parser.parse_args(argv)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Open, warm up, measure, and delete a queue of its own again. Raises WireError, LoadError or OSError."""
    library = None if options.engine == "python" else native.compiled()
    if options.engine == "c" and library is None:
        raise LoadError("no C compiler: install gcc, or use --engine python")
    login = {"user": options.user, "password": options.password}
    queue = options.queue or f"bench-{uuid.uuid4().hex[:12]}"
    publisher = Wire.open(options.host, options.port, producer=options.producer, **login)
    consumer = Wire.open(options.host, options.port, **login) if options.consume else None
    try:
        publisher.declare(queue, durable=options.durable)
        publisher.confirm_select()
        if consumer:
            consumer.consume(queue, options.prefetch)
        return _measured(options, library, queue, publisher, consumer)
    finally:
        for wire in (consumer, publisher):
            if wire:
                wire.close()
        if not options.queue:
            _delete(options, queue)


def _measured(
    options: argparse.Namespace, library: Any, queue: str, publisher: Wire, consumer: Wire | None
) -> dict[str, Any]:
    frames, message_size = prebuilt(options, queue)
    load = Load(
        publish_fd=publisher.socket.fileno(),
        consume_fd=consumer.socket.fileno() if consumer else None,
        frames=frames,
        message_size=message_size,
        body_size=options.size,
        messages=options.warmup if options.warmup is not None else min(20_000, options.messages // 10),
        window=options.window,
        ack_every=options.ack_every,
        limit_ns=int(options.seconds * 1e9) or 0,
    )
    for wire in (publisher, consumer):
        if wire:
            wire.socket.setblocking(False)

    def run() -> Outcome:
        return native.run(library, load) if library else portable.run(load)

    if load.messages:
        load.tags_used = run().messages
    load.messages = options.messages
    pids = {name: int(pid) for name, _, pid in (item.partition("=") for item in options.pid)}
    before = {name: cpu_ns(pid) for name, pid in pids.items()}
    own = time.process_time_ns()
    outcome = run()
    own = time.process_time_ns() - own
    spent = {name: cpu_ns(pid) - before[name] for name, pid in pids.items()}
    return summary(options, outcome, own, spent, "c" if library else "python", load.tags_used)


def prebuilt(options: argparse.Namespace, queue: str) -> tuple[bytes, int]:
    """The frames to send round and round, and the size of one message."""
    body = (bytes(range(32, 96)) * (options.size // 64 + 1))[: options.size]
    if not options.message_ids:
        message = publish_frames(1, queue, body, persistent=options.persistent)
        return message * max(1, COPIES // len(message)), len(message)
    frames = [
        publish_frames(1, queue, body, persistent=options.persistent, message_id=str(uuid.uuid4()))
        for _ in range(DISTINCT)
    ]
    return b"".join(frames), len(frames[0])


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


def _delete(options: argparse.Namespace, queue: str) -> None:
    try:
        wire = Wire.open(options.host, options.port, user=options.user, password=options.password)
    except (OSError, WireError):
        return  # the measured part's own error says more
    try:
        wire.delete(queue)
    finally:
        wire.close()


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    try:
        result = measure(options)
    except (OSError, WireError, LoadError) as error:
        print(f"bench.generator: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
