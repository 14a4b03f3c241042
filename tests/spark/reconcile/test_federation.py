"""Which brokers are one node, which links join nodes, and which clients belong where."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from spark.reconcile.ledgers.federation import Net, net_of, origin
from spark.reconcile.verdict.net import add_hops

Rows = list[dict[str, Any]]
FIELDS = ("writer", "incarnation", "kind", "queue", "name", "peer", "reason", "prod")
L1, L2, Q1, Q2 = (digit * 32 for digit in "abcd")


def row(writer: str, kind: str, incarnation: int = 1, **fields: Any) -> dict[str, Any]:
    return dict.fromkeys(FIELDS) | {"writer": writer, "incarnation": incarnation, "kind": kind} | fields


def pair(first: str, second: str, cluster: str, *queues: str) -> Rows:
    """The second one did not know the id of the cluster when it opened."""
    return [
        row(first, "open", name="broker", reason=cluster), row(second, "open", name="broker", reason=""),
        row(first, "insync", name=f"{first}, {second}", peer=second, reason="included"),
        *(row(first, "definition", queue=queue, name=f"queue {queue[0]}") for queue in queues),
    ]  # fmt: skip


def gives(writer: str, node: str, queue: str, other: str) -> dict[str, Any]:
    return row(writer, "link", queue=queue, peer=node, name=other, reason="gives")


def takes(writer: str, node: str, other: str) -> dict[str, Any]:
    return row(writer, "link", peer=node, name=other, reason="takes")


def two_pairs(*more: dict[str, Any]) -> Rows:
    return [
        *pair("a", "b", "one", L1, Q1), *pair("c", "d", "two", L2, Q2), gives("a", "hub", L1, "leaf"),
        takes("c", "leaf", "hub"), *more,
    ]  # fmt: skip


def came(queue: str, link: str, writer: str = "c") -> dict[str, Any]:
    return row(writer, "hull", queue=queue, prod=f"link:{link}:7")


def found(rows: Rows, seen: Rows | None = None) -> Net:
    net = net_of(rows, seen or [])
    assert net is not None
    return net


def names(net: Net) -> list[str]:
    return ["".join(sorted(name for name, _ in each.brokers)) for each in net.clusters]


def ends(net: Net) -> list[tuple[Any, ...]]:
    return [(link.queue, link.source, link.target) for link in net.links]


def test_without_a_link_there_is_no_net() -> None:
    assert net_of([*pair("a", "b", "one", Q1), *pair("c", "d", "two", Q2)], []) is None


def test_brokers_belong_together_by_id_queue_or_the_one_cluster_that_mentions_them() -> None:
    again = [row("b", "open", 2, name="broker", reason="one"), row("b", "open", 3, name="broker", reason="")]
    mirror = [row("m", "open", name="broker", reason=""), row("m", "definition", queue=Q2, name="followed")]
    alone = [row("z", "open", name="broker", reason="")]
    assert names(found(two_pairs(*again, *mirror, *alone))) == ["abbb", "cdm", "z"]


def test_a_broker_that_two_clusters_mention_is_nobodys() -> None:
    rows = two_pairs(
        row("e", "open", name="broker", reason=""), row("a", "insync", name="a,e", peer="e"),
        row("c", "insync", name="c,e", peer="e"),
    )  # fmt: skip
    assert names(found(rows)) == ["ab", "cd", "e"]


def test_a_link_ends_where_messages_came_or_else_at_the_node_of_its_name() -> None:
    assert ends(found(two_pairs())) == [(L1, 0, 1)]
    assert ends(found(two_pairs(came(Q2, L1)))) == [(L1, 0, 1)]
    elsewhere = [*pair("e", "f", "three", "e" * 32), came("e" * 32, L1, "e")]
    assert ends(found(two_pairs(*elsewhere))) == [(L1, 0, 2)], "whatever its name says"
    nowhere = [row("c", "unrouted", prod=f"link:{L1}:7")]
    assert ends(found(two_pairs()[:-1], nowhere)) == [(L1, 0, 1)]


def test_a_link_with_one_end_here_or_with_two_is_open() -> None:
    rows = [*pair("c", "d", "two", Q2), takes("c", "leaf", "hub"), came(Q2, L1)]
    assert ends(found(rows)) == [(L1, None, 0)]
    rows = [*pair("a", "b", "one", L1), gives("a", "hub", L1, "leaf")]
    assert ends(found(rows)) == [(L1, 0, None)]
    twins = [*pair("e", "f", "three", "e" * 32), takes("e", "leaf", "hub")]
    assert ends(found(two_pairs(*twins))) == [(L1, 0, None)], "two clusters have been that node"


def test_what_a_client_did_at_another_node_is_left_out() -> None:
    seen = [row("p", "sent", prod="p.0/1"), row("p", "sent", prod="p.1/1"), row("q", "sent", prod="q.0/1")]
    rows = two_pairs(
        row("a", "hull", queue=Q1, prod="p.0/1"), row("c", "hull", queue=Q2, prod="p.1/1"),
        row("a", "hull", queue=Q1, prod="q.0/1"), row("k", "receipts", queue=Q2),
    )  # fmt: skip
    net = found(rows, seen)
    assert net.clients == {("p", 1): {0, 1}, ("q", 1): {0}, ("k", 1): {1}}
    assert net.strange(0) == (["p.1/1"], [L2, Q2]) and net.strange(1) == (["p.0/1"], [L1, Q1])


@pytest.mark.parametrize(
    "forged", [f"link:{L1}:7/1", f"link:{L1[:-1]}:7", f"link:{L1}:", f"xlink:{L1}:7", f"link:{L1.upper()}:7"]
)
def test_no_session_of_a_client_looks_like_a_link(forged: str) -> None:
    assert origin(f"link:{L1}:7") == (L1, 7) and origin(forged) is None


@pytest.mark.parametrize(
    ("kinds", "lacking", "verdict"),
    [
        ({}, {}, "proven"), ({"hop-lost": "violation"}, {0: True}, "violated"),
        ({"hop-lost": "unknown"}, {1: True}, "not provable"), ({}, {0: True}, "not provable"),
        ({"lost": "violation"}, {}, "proven"),
    ],
)  # fmt: skip
def test_the_verdict_of_a_link(kinds: dict[str, str], lacking: dict[int, bool], verdict: str) -> None:
    findings = [
        {"kind": kind, "severity": weight, "prod": f"link:{L1}:7", "sentence": "so"}
        for kind, weight in kinds.items()
    ]
    answer: dict[str, Any] = {"findings": findings, "sentence": "Said."}
    add_hops(answer, found(two_pairs()), {L1: {"transferred": 3}}, {}, lacking)
    assert [hop["verdict"] for hop in answer["hops"]] == [verdict]
    assert ("Not provable: the link queue a" in answer["sentence"]) == (verdict == "not provable")
