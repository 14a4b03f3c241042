"""What ledgers say of messages that come over a link: whence, as which, and what became of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.model.queue.link import is_link_session, link_session
from tests.ha.federation.net_ledgers import NetWithLedgers
from tests.ha.pair import raw


def joined(folder: Path, **sizes: int) -> NetWithLedgers:
    """`leaf` takes what `q`, which refuses what is beyond ten messages, is bound for."""
    net = NetWithLedgers(folder, **sizes)
    net.up()
    net.exchange("hub", "leaf")
    full: dict[str, Any] = {"x-max-length": 10, "x-overflow": "reject-publish"}
    net.queue("leaf", "q", "a.*", **full)
    net.federate("leaf", "hub")
    net.runs("leaf", "hub")
    net.run(0.3)
    return net


def came(lines: list[dict[str, Any]], *kinds: str) -> list[tuple[Any, ...]]:
    """Kind, reason, ids upstream, of what came over a link."""
    return [
        (
            line["kind"],
            line.get("reason", ""),
            at := line.get("pfirst", line["first"]),
            at + line["last"] - line["first"],
        )
        for line in lines
        if line["kind"] in kinds and is_link_session(line.get("prod", ""))
    ]


def test_each_message_of_a_link_is_in_the_books_with_its_id_upstream(tmp_path: Path) -> None:
    net = joined(tmp_path, hub=1, leaf=1)
    net.publish_confirmed("hub", "a.b", "123")
    net.publish_confirmed("hub", "a.b", [raw("4"), raw("5")[:22], raw("6")])
    net.publish_confirmed("hub", "a.b", "7", path=("leaf",))
    net.publish_confirmed("hub", "a.b", "89ABCDE")
    vhost = net.serving("leaf").running.vhost
    net.separate(*net.hosts, reset=True)
    net.publish_confirmed("hub", "a.b", "FG")
    vhost.unbind_queue("q", "x", "a.*", owner=net)
    net.heal()
    net.runs("leaf", "hub")
    net.until(lambda: net.waiting("hub", "leaf") == 0)
    lines = net.ledger("leaf")
    assert came(lines, "enqueue", "unrouted") == [
        ("enqueue", "", 1, 3),
        ("enqueue", "", 4, 4),
        ("unrouted", "unreadable", 5, 5),
        ("enqueue", "", 6, 6),
        ("unrouted", "looped", 7, 7),
        ("enqueue", "", 8, 12),
        ("unrouted", "refused", 13, 14),
        ("unrouted", "", 15, 16),
    ]
    link = net.serving("hub").running.vhost.queues["amq.link.x@leaf"]
    assert {line["prod"] for line in lines if "prod" in line} == {link_session(link.uuid, link.ids.epoch)}
    gone = [line for line in net.ledger("hub") if line["kind"] == "dequeue"]
    assert {(line["queue"], line["reason"]) for line in gone} == {(link.uuid.hex(), "transferred")}
    assert sum(line["last"] - line["first"] + 1 for line in gone) == 16


def test_a_backup_knows_by_which_link_messages_came(tmp_path: Path) -> None:
    net = joined(tmp_path, hub=1, leaf=2)
    net.publish_confirmed("hub", "a.b", "123")
    net.gets("leaf", "q", "123")
    first, second = net.nodes["leaf"]
    net.kill(first)
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.runs("leaf", "hub")
    net.publish_confirmed("hub", "a.b", "4")
    net.gets("leaf", "q", "1234")
    lines = net.ledger("leaf")
    assert came(lines, "enqueue") == [("enqueue", "", 1, 3), ("enqueue", "", 4, 4)]
    assert came(lines, "backup_enqueue") == [("backup_enqueue", "", 1, 3)]
    opened = [(line["writer"], line["peer"]) for line in lines if line["kind"] == "link"]
    assert set(opened) == {(first.name, "leaf"), (second.name, "leaf")}


def test_what_came_through_the_node_to_which_it_is_given_is_not_transferred(tmp_path: Path) -> None:
    net = NetWithLedgers(tmp_path, hub=1, leaf=1)
    net.up()
    net.exchange("hub", "leaf")
    net.federate("leaf", "hub", forward_mode="all", consume_mode="none")
    net.runs("leaf", "hub")
    net.separate(*net.hosts, reset=True)
    net.run(0.3)
    net.publish_confirmed("leaf", "k", "1", path=("hub",))
    net.publish_confirmed("leaf", "k", "2")
    net.heal()
    net.runs("leaf", "hub")
    net.run(0.5)
    gone = [line for line in net.ledger("leaf") if line["kind"] == "dequeue"]
    assert [(line["reason"], line["first"], line["last"]) for line in gone] == [
        ("looped", 1, 1),
        ("transferred", 2, 2),
    ]
    assert came(net.ledger("hub"), "unrouted") == [("unrouted", "", 2, 2)]
