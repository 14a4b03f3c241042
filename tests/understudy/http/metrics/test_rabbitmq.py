"""RabbitMQ's metrics of a pair: Prometheus' own parser reads them, and a queue counts on one node only."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.ha.pair import Pair
from understudy.http.metrics import families, rabbitmq
from understudy.http.metrics.exposition import labels_of
from understudy.http.metrics.families import EXCHANGES, VHOSTS
from understudy.http.metrics.scrape import Scrapes

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "metrics.md").read_text()
ROWS = re.findall(r"^\| `(rabbitmq_\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
NASTY = ['a"b\\c', "tab\there", "esc\x1b[31m", "two\nlines", "<b>ü</b>", "%2f/"]
LIMITS = (
    "rabbitmq_process_max_tcp_sockets", "rabbitmq_resident_memory_limit_bytes",
    "rabbitmq_disk_space_available_limit_bytes",
)  # fmt: skip
"""Nodes of tests have none."""


@pytest.fixture(scope="module")
def pair() -> Pair:
    """Two messages in `orders`, one of them held by a consumer; a queue for each bad name."""
    pair = Pair()
    pair.up()
    first = pair.hosts[0]
    for name in ("orders", *NASTY):
        pair.declare(first, name)
    pair.publish(first, "orders", "ab")
    pair.run(0.1)
    queue = first.running.vhost.queues["orders"]
    assert queue.pop(no_ack=False) is not None
    pair.run(0.5)
    return pair


def read(pieces: Iterator[str]) -> dict[str, tuple[str, list[Any]]]:
    """By name: the type, and the samples."""
    families = list(text_string_to_metric_families("".join(pieces)))
    named: dict[str, tuple[str, list[Any]]] = {}
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in named, "each family is in one piece"
        named[name] = (family.type.replace("unknown", "untyped"), family.samples)
    return named


def test_one_sample_a_metric_is_the_sum_over_all_queues(pair: Pair) -> None:
    found = read(rabbitmq.aggregated(pair.hosts[0].running))
    one = {name: samples[0].value for name, (_, samples) in found.items() if len(samples) == 1}
    assert (one["rabbitmq_queue_messages_ready"], one["rabbitmq_queue_messages_unacked"]) == (1, 1)
    assert (one["rabbitmq_queue_messages"], one["rabbitmq_queue_messages_bytes"]) == (2, 2)
    assert one["rabbitmq_process_open_fds"] > 3 and one["rabbitmq_unreachable_cluster_peers_count"] == 0
    who = found["rabbitmq_identity_info"][1][0].labels
    assert (who["rabbitmq_node"], who["rabbitmq_cluster"]) == ("a", pair.hosts[0].running.core.cluster_id)


def test_a_backup_is_of_the_same_cluster_and_has_no_queues(pair: Pair) -> None:
    found = read(rabbitmq.aggregated(pair.hosts[1].running))
    assert found["rabbitmq_queue_messages"][1][0].value == 0
    who = found["rabbitmq_identity_info"][1][0].labels
    assert (who["rabbitmq_node"], who["rabbitmq_cluster"]) == ("b", pair.hosts[0].running.core.cluster_id)


def test_each_queue_has_its_samples_whatever_its_name_is(pair: Pair) -> None:
    found = read(rabbitmq.per_object(pair.hosts[0].running))
    kind, samples = found["rabbitmq_queue_messages_ready"]
    named = {sample.labels["queue"]: sample.value for sample in samples}
    assert kind == "gauge" and named["orders"] == 1 and len(named) == 1 + len(NASTY)
    assert {NASTY[0], NASTY[-2], NASTY[-1]} <= set(named)
    text = "".join(rabbitmq.per_object(pair.hosts[0].running))
    assert all(line.isprintable() for line in text.splitlines()), "nothing that a terminal obeys"


def test_only_the_groups_and_virtual_hosts_that_were_asked_for(pair: Pair) -> None:
    node = pair.hosts[0].running
    identity = {"rabbitmq_identity_info", "rabbitmq_build_info"}
    assert set(read(rabbitmq.detailed(node, [], None))) == identity
    found = read(rabbitmq.detailed(node, ["queue_consumer_count", "ra_metrics", "vhost_status"], ["/"]))
    assert set(found) == identity | {"rabbitmq_detailed_queue_consumers", "rabbitmq_cluster_vhost_status"}
    assert len(found["rabbitmq_detailed_queue_consumers"][1]) == 1 + len(NASTY)
    nothing = read(rabbitmq.detailed(node, ["queue_coarse_metrics"], ["elsewhere"]))
    assert nothing["rabbitmq_detailed_queue_messages"] == ("gauge", [])
    both = read(rabbitmq.detailed(node, ["queue_consumer_count", "queue_metrics"], None))
    assert len(both["rabbitmq_detailed_queue_consumers"][1]) == 1 + len(NASTY)


def test_the_page_lists_what_there_is(pair: Pair) -> None:
    node = pair.hosts[0].running
    there = read(rabbitmq.aggregated(node)) | read(rabbitmq.detailed(node, VHOSTS | EXCHANGES, None))
    kinds = {name: kind for name, (kind, _) in there.items()}
    assert dict(ROWS) == kinds | dict.fromkeys(LIMITS, "gauge")
    kinds_of_groups = [
        kind for name, kind in vars(families).items() if name.isupper() and isinstance(kind, dict)
    ]
    groups = {name for kind in kinds_of_groups for name in kind}
    assert len(groups) > 10 and groups <= set(re.findall(r"`(\w+)`", PAGE))


def test_a_label_is_what_a_parser_gives_back() -> None:
    assert labels_of({}) == ""
    assert labels_of({"a": "x", "b": 'q"\\'}) == '{a="x",b="q\\"\\\\"}'
    assert labels_of({"a": "\x1b\n"}) == '{a="\\\\x1b\\\\n"}'


def test_others_have_their_turn_between_two_slices() -> None:
    """Of two scrapes at once, one writes a slice in each turn of the event loop."""

    async def run() -> tuple[int, int]:
        scrapes, slices, turns = Scrapes(10.0), 0, 0

        async def scrape() -> None:
            nonlocal slices
            async for _ in scrapes._slices(iter(["x" * 50] * 100_000)):
                slices += 1

        both = [asyncio.create_task(scrape()) for _ in range(2)]
        while not all(task.done() for task in both):
            await asyncio.sleep(0)
            turns += 1
        return slices, turns

    slices, turns = asyncio.run(run())
    assert 4 < slices <= turns
