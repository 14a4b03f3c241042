"""The load generator counts what happened: both loops, against a broker that keeps its own count."""

from __future__ import annotations

import os
from typing import Any

import pytest

from bench import native
from bench.generator import arguments, measure
from bench.loads import LoadError, percentile
from tests.bench.echo_broker import EchoBroker

ENGINES = [
    pytest.param("c", marks=pytest.mark.skipif(native.compiled() is None, reason="no C compiler")),
    "python",
]


def load(broker: EchoBroker, engine: str, *more: str) -> dict[str, Any]:
    return measure(arguments(["--port", str(broker.port), "--engine", engine, *more]))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("window", [1, 7, 1000])
def test_counts_every_confirm_and_delivery(engine: str, window: int) -> None:
    with EchoBroker() as broker:
        size = ["--window", str(window), "--messages", "1210", "--warmup", "130", "--consume"]
        result = load(broker, engine, *size)
    assert (result["messages"], result["delivered"], result["nacked"]) == (1210, 1210, 0)
    assert broker.published == broker.delivered == 1340
    assert {len(body) for body in broker.bodies} == {256}
    # A run acks each fifty and then the rest: the warm-up 50, 100, 130, and so on from there.
    assert broker.ack_frames == [50, 100, 130, *range(180, 1340, 50), 1340]
    assert 0 <= result["confirm_us"]["p50"] <= result["confirm_us"]["p99"]


@pytest.mark.parametrize("engine", ENGINES)
def test_messages_with_ids_of_their_own_are_counted_alike(engine: str) -> None:
    with EchoBroker() as broker:
        result = load(broker, engine, "--messages", "30000", "--warmup", "0", "--consume", "--message-ids")
    assert (result["messages"], result["delivered"]) == (30000, 30000) == (broker.published, broker.delivered)
    assert len(broker.headers) == 20000


@pytest.mark.parametrize("engine", ENGINES)
def test_publishes_only(engine: str) -> None:
    with EchoBroker() as broker:
        result = load(broker, engine, "--window", "100", "--messages", "5000", "--warmup", "0")
    assert (result["messages"], result["delivered"]) == (5000, 0)
    assert broker.published == 5000
    assert result["deliver_us"] == {"p50": None, "p99": None}


@pytest.mark.parametrize("engine", ENGINES)
def test_time_limit_ends_a_run_with_everything_settled(engine: str) -> None:
    with EchoBroker() as broker:
        limited = ["--messages", "30000000", "--seconds", "0.2", "--warmup", "0", "--consume"]
        result = load(broker, engine, *limited)
    assert 0 < result["messages"] == result["delivered"] == broker.published


@pytest.mark.parametrize("engine", ENGINES)
def test_counts_nacks(engine: str) -> None:
    with EchoBroker(nack_every=2) as broker:
        result = load(broker, engine, "--window", "10", "--messages", "500", "--warmup", "0")
    assert 0 < result["nacked"] < 500


@pytest.mark.parametrize("engine", ENGINES)
def test_says_why_the_broker_closed(engine: str) -> None:
    with EchoBroker(close_after=300) as broker, pytest.raises(LoadError, match="NOT_FOUND - gone"):
        load(broker, engine, "--window", "10", "--messages", "1000", "--warmup", "0")


def test_clocks_the_processes_it_is_given() -> None:
    with EchoBroker() as broker:
        result = load(broker, "python", "--messages", "3000", "--pid", f"self={os.getpid()}")
    assert result["cpu_us_per_message"]["self"] > 0


def test_percentile_takes_the_smallest_value_that_covers_the_share() -> None:
    assert percentile({}, 0.5) is None
    assert percentile({5: 1}, 0.99) == 5
    assert percentile({1: 50, 2: 49, 9: 1}, 0.5) == 1
    assert percentile({1: 50, 2: 49, 9: 1}, 0.99) == 2
