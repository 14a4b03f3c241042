"""What a load is and what came of it: shared by the native loop, its Python twin and bench/generator.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class LoadError(Exception):
    """The broker closed, stalled, or answered what no broker may answer; the text says what."""


@dataclass(slots=True)
class Load:
    """One measured run over sockets that are past basic.consume. Times in nanoseconds."""

    publish_fd: int
    consume_fd: int | None
    frames: bytes
    """Pre-built publishes of one size, to be sent round and round; many, so that one write carries many."""
    message_size: int
    """Bytes of one publish with all its frames; `frames` is a multiple of it."""
    body_size: int
    messages: int
    window: int
    """Most publishes outstanding without a confirm."""
    ack_every: int = 50
    limit_ns: int = 0
    """Stop publishing after this long; 0 is never."""
    stall_ns: int = 15_000_000_000
    tags_used: int = 0
    """Tags taken by earlier runs on the same channels."""


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
