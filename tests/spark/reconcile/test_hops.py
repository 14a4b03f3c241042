"""Federation in the ledgers: real nodes write them, and the job proves each hop, or names the fault in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from ha.adapter.federation.exchange_model import ExchangeModel
from spark.reconcile.input.read import find_ledgers
from spark.reconcile.job import reconcile
from tests.ha.federation.net_ledgers import Line, NetWithLedgers, rewrite
from tests.spark.records import remainder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Messages of a pair `hub` go to `mid`, and on to `leaf`; `mid` gives others to `hub`, whose primary is
    killed."""
    folder = tmp_path_factory.mktemp("net")
    net = NetWithLedgers(folder, hub=2, mid=1, leaf=1)
    net.up()
    net.exchange("hub", "mid", "leaf")
    net.exchange("hub", "mid", name="up")
    net.queue("leaf", "q", "a.*")
    net.queue("mid", "m", "a.b")
    net.queue("hub", "h", "#", exchange="up")
    for node, upstream in (("mid", "hub"), ("leaf", "mid")):
        net.federate(node, upstream)
        net.runs(node, upstream)
    net.federate("mid", "hub", "up", forward_mode="all", consume_mode="none")
    net.runs("mid", "hub", "up")
    net.run(0.5)
    net.publish_confirmed("mid", "k", "xyz", exchange="up")
    net.publish_confirmed("hub", "a.b", "123456")
    net.publish_confirmed("hub", "a.c", "78")
    net.gets("leaf", "q", "12345678")
    first, second = net.nodes["hub"]
    net.kill(first)
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.runs("mid", "hub")
    net.publish_confirmed("hub", "a.b", "9AB")
    net.gets("leaf", "q", "123456789AB")
    net.run(0.5)
    net.end()
    return folder


def judge(session: SparkSession, *folders: Path) -> dict[str, Any]:
    return reconcile(session, find_ledgers(folders))


def links(answer: dict[str, Any], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(hop[name] for name in ("name", *names)) for hop in answer["hops"]]


def faults(answer: dict[str, Any]) -> set[tuple[Any, ...]]:
    return {
        (f["kind"], f["sentence"].split(": ", 1)[1], f["severity"])
        for f in answer["findings"]
        if f["severity"] != "allowed"
    }


def test_a_chain_of_nodes_is_proven_through_a_failover(session: SparkSession, net: Path) -> None:
    answer = judge(session, net)
    assert (answer["verdict"], answer["missing"], answer["findings"]) == ("proven", [], [])
    assert links(answer, "from", "to", "verdict", "transferred", "arrived", "unplaced") == [
        ("amq.link.x@mid", "hub", "mid", "proven", 11, 11, 0),
        ("amq.link.up@>hub", "mid", "hub", "proven", 3, 3, 0),
        ("amq.link.x@leaf", "mid", "leaf", "proven", 11, 11, 0),
    ]
    totals = answer["totals"]
    assert totals["published"] == totals["confirmed"] == 14
    assert "3 links carried 25 messages" in answer["sentence"]


def came(line: Line, kind: str) -> bool:
    return bool(line["kind"] == kind and line.get("prod", "").startswith("link:"))


def test_faults_of_a_hop_are_found_by_name(session: SparkSession, net: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(net, tmp_path / "net"))

    def lose(line: Line) -> list[Line]:
        """The third and the fourth never came to `leaf`."""
        return remainder(line, 3, 4) if line["kind"] in ("enqueue", "present") else [line]

    def double(line: Line) -> list[Line]:
        """5 came to the queue m of `mid` once more."""
        again = {**line, "first": 99, "last": 99}
        if (
            came(line, "enqueue")
            and line["epoch"] == line["view"]
            and line["queue"] == m
            and line["first"] == 7
        ):
            return [line, again | {"prod": line["prod"].replace(":131074", ":65537"), "pfirst": 5}]
        return [line, again] if line["kind"] == "present" and line["queue"] == m else [line]

    def invent(line: Line) -> list[Line]:
        """The link queue of `hub` never had 7 and 8."""
        return [] if line["kind"].endswith("enqueue") and line["first"] == 7 else [line]

    texts = "\n".join(path.read_text() for path in sorted((folder / "mid").glob("*.jsonl")))
    m = next(line["queue"] for line in map(json.loads, texts.splitlines()) if line.get("name") == "m")
    for node, change in (("leaf", lose), ("mid", double), ("hub", invent)):
        rewrite(folder / node, change)
    answer = judge(session, folder)
    found = faults(answer)
    assert answer["verdict"] == "violated"
    assert {each for each in found if each[0].startswith("hop")} == {
        ("hop-lost", "link queue amq.link.x@leaf, ids 6..7", "violation"),
        ("hop-doubled", "m, link queue amq.link.x@mid, epoch 65539, ids 99", "violation"),
        ("hop-unsent", "link queue amq.link.x@mid, ids 7..8", "violation"),
    }
    assert {each[0] for each in found if not each[0].startswith("hop")} == {"unplaced"}, "shop's 7 and 8"
    assert links(answer, "verdict") == [
        ("amq.link.x@mid", "violated"),
        ("amq.link.up@>hub", "proven"),
        ("amq.link.x@leaf", "violated"),
    ]
    lost = next(f for f in answer["findings"] if f["kind"] == "hop-lost")
    assert {(e["writer"], e["kind"]) for e in lost["evidence"]} >= {("c", "enqueue"), ("c", "dequeue")}


def test_without_the_ledgers_of_one_side_only_the_hop_is_not_provable(
    session: SparkSession, net: Path
) -> None:
    answer = judge(session, net / "hub", net / "mid", net / "clients")
    assert (answer["verdict"], answer["missing"]) == ("proven", [])
    assert links(answer, "verdict", "transferred", "reason") == [
        ("amq.link.x@mid", "proven", 11, None),
        ("amq.link.up@>hub", "proven", 3, None),
        ("amq.link.x@leaf", "not provable", 11, "the ledgers of leaf are not here"),
    ]
    assert "Not provable: the link amq.link.x@leaf, because the ledgers of leaf" in answer["sentence"]
    below = judge(session, net / "leaf")
    assert [hop["verdict"] for hop in below["hops"]] == ["not provable"]
    assert {f["kind"]: f["severity"] for f in below["findings"]} == {"hop-unknown": "allowed"}
    assert below["missing"] == ["there is no ledger of a producer, so the confirmed messages are unknown"]


def fail_over_unseen(folder: Path) -> str:
    """The primary of `leaf` takes messages that its backup does not get, and dies. Returns what is left."""
    net = NetWithLedgers(folder, hub=1, leaf=2)
    net.up()
    net.exchange("hub", "leaf")
    net.queue("leaf", "q", "#")
    net.federate("leaf", "hub")
    net.runs("leaf", "hub")
    net.publish_confirmed("hub", "k", "12")
    net.gets("leaf", "q", "12")
    first, second = net.nodes["leaf"]
    net.hold(first, second)
    net.publish_confirmed("hub", "k", "345")
    assert net.content("leaf", "q") == "12345"
    net.kill(first)
    net.held.clear()
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.runs("leaf", "hub")
    net.publish_confirmed("hub", "k", "6")
    net.run(1.0)
    content = net.content("leaf", "q")
    net.end()
    return content


def test_messages_that_are_taken_again_after_a_failover_are_neither_lost_nor_doubled(
    session: SparkSession, tmp_path: Path
) -> None:
    """The link queue upstream still has them. The ids that the dead primary gave are nobody's."""
    assert fail_over_unseen(tmp_path) == "123456"
    answer = judge(session, tmp_path)
    assert (answer["verdict"], faults(answer)) == ("proven", set())
    assert links(answer, "verdict", "arrived") == [("amq.link.x@leaf", "proven", 6)]


def test_a_node_that_says_too_early_what_it_has_is_found(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was transferred counts as confirmed to the node upstream."""
    monkeypatch.setattr(ExchangeModel, "settled", lambda self, uuid: self.taken(uuid)[0])
    assert fail_over_unseen(tmp_path) == "126"
    answer = judge(session, tmp_path)
    assert {(kind, weight) for kind, _, weight in faults(answer)} == {
        ("lost", "violation"),
        ("early", "violation"),
    }
    assert answer["totals"]["lost"] == 3 and answer["sentence"].startswith("Violated: 3 messages lost")
