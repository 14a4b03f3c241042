"""What a load is and what came of it: shared by the native loop, its Python twin and bench/generator.py."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.amqp10_wire import Transfers
from bench.messages import Ring


class LoadError(Exception):
    """The broker closed, stalled, or answered what no broker may answer; the text says what."""


@dataclass(slots=True)
class Amqp10:
    """What a load in AMQP 1.0 has besides. Its sockets are past the attach of a sender and of a receiver."""

    transfers: Transfers
    prefetch: int
    """Link credit of the receiver."""
    kept: tuple[int, int, int]
    """For the next run: transfers that the broker permits on the link, those that its session's window
    permits, and the id of the first delivery (`NONE_YET`)."""


NONE_YET = 2**64 - 1


@dataclass(slots=True)
class Load:
    """One measured run over sockets that are past basic.consume. Times in nanoseconds."""

    publisher: socket.socket
    consumer: socket.socket | None
    ring: Ring
    """Pre-built publishes, to be sent round and round; many, so that one write carries many."""
    messages: int
    window: int
    """Most publishes outstanding without a confirm."""
    ack_every: int = 50
    limit_ns: int = 0
    """Stop publishing after this long; 0 is never."""
    stall_ns: int = 15_000_000_000
    tags_used: int = 0
    """Confirm tags taken by earlier runs on the same channel."""
    deliveries_used: int = 0
    """Delivery tags taken by earlier runs on the same channel."""
    published: int = 0
    """Messages that an earlier run published; this one publishes no more, and consumes."""
    content: bytes | None = None
    """Verify: each body has the number of its message in its first 8 octets, and then these from the ninth
    on. Each message must come once, in the order of its queue, with its properties and its body."""
    streams: int = 1
    """With `content`: message i of the ring goes to queue i % streams."""
    fanout: int = 1
    """With `content`: the copies of each message, for consumers with the tags 0, 1, 2 ..."""
    amqp10: Amqp10 | None = None
    """Needs `content`, and the loop in C."""


@dataclass(slots=True)
class Outcome:
    """What was counted. Latencies as {microseconds: messages}."""

    messages: int
    elapsed_ns: int
    nacked: int
    delivered: int
    reads: int
    writes: int
    confirm_us: Mapping[int, int] = field(default_factory=dict)
    deliver_us: Mapping[int, int] = field(default_factory=dict)


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Of loads that ran side by side."""
    confirm_us: Counter[int] = Counter()
    deliver_us: Counter[int] = Counter()
    for outcome in outcomes:
        confirm_us.update(outcome.confirm_us)
        deliver_us.update(outcome.deliver_us)
    return Outcome(
        messages=sum(outcome.messages for outcome in outcomes),
        elapsed_ns=max(outcome.elapsed_ns for outcome in outcomes),
        nacked=sum(outcome.nacked for outcome in outcomes),
        delivered=sum(outcome.delivered for outcome in outcomes),
        reads=sum(outcome.reads for outcome in outcomes),
        writes=sum(outcome.writes for outcome in outcomes),
        confirm_us=confirm_us,
        deliver_us=deliver_us,
    )


def percentile(counts: Mapping[int, int], share: float) -> int | None:
    """The smallest value that at least `share` (0..1) of the counted values do not exceed."""
    wanted = share * sum(counts.values())
    passed = 0
    for value in sorted(counts):
        passed += counts[value]
        if passed >= wanted:
            return value
    return None


def percentiles(counts: Mapping[int, int]) -> dict[str, int | None]:
    """The two that are reported: half of all, and all but one in a hundred."""
    return {"p50": percentile(counts, 0.50), "p99": percentile(counts, 0.99)}
