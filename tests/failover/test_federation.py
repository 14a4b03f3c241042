"""Two federated pairs as real processes: each is killed at one end while messages go to the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.security.authenticator import hash_password
from tests.failover.nodes.pair import Pair, channel_of
from tests.failover.test_etcd import Load, roles
from understudy.client import Publisher

PATIENCE = 60.0
MESSAGES = 2_000


def pair(folder: Path, node: str, *more: str) -> Pair:
    """Not started yet."""
    made = Pair(folder, "ha.authority=pair", "ha.failover_timeout=1s", f"federation.node={node}", *more)
    made.own = {"left": ("ha.role=primary",), "right": ("ha.role=backup",)}
    return made


def put(kind: str, name: str, value: dict[str, object], vhost: str = "/") -> dict[str, object]:
    return {"action": "put", "kind": kind, "vhost": vhost, "name": name, "value": value}


def federated(hub: Pair, leaf: Pair) -> None:
    """`leaf` takes from `hub`, whose user it is."""
    user = {"password_hash": hash_password("a word"), "tags": ["federation"]}
    rights = {"configure": r"^amq\.link\.", "write": "^$", "read": "^prices$"}
    there = [put("user", "leaf", user, vhost=""), put("permission", "leaf", rights)]
    assert hub.ask("left", "define", changes=there)["ok"]
    upstream = {"addresses": hub.list.split(","), "login": "net", "vhost": "/"}
    agent = {"exchange": "prices", "upstream": "hub", "consume-mode": "all"}
    here = [put("federation-upstream", "hub", upstream), put("federation-agent", "prices@hub", agent)]
    assert leaf.ask("left", "define", changes=here)["ok"]


def state(leaf: Pair, name: str) -> str:
    [line] = leaf.answer(name)["federation"]["agents"]
    return str(line["state"])


def content(node: Pair, name: str, queue: str) -> list[int]:
    """The messages of a queue, in order. They stay."""
    found: list[int] = []
    with channel_of(node, name) as channel:
        while (got := channel.basic_get(queue))[0] is not None:
            found.append(int(got[2]))
    return found


@pytest.mark.system
def test_each_message_of_a_pair_comes_once_to_the_other_though_both_fail_over(tmp_path: Path) -> None:
    login = ("federation.logins.net.username=leaf", "federation.logins.net.password=a word")
    with pair(tmp_path / "hub", "hub") as hub, pair(tmp_path / "leaf", "leaf", *login) as leaf:
        for node in (hub, leaf):
            node.start("left", "right")
            assert roles(node) == ("left", "right")
        votes = Load(leaf)  # a client that comes over
        votes.more(1)
        for node, queue in ((hub, "local"), (leaf, "taken")):
            with channel_of(node, "left") as channel:
                channel.exchange_declare("prices", "topic", durable=True)
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, "prices", "k.#")
        publisher = Publisher(hub.list, "shop", tmp_path / "ledgers", exactly_once=True)
        federated(hub, leaf)
        leaf.until(lambda: state(leaf, "left") == "running", "the link to run")
        for number in range(MESSAGES):
            publisher.publish(b"%d" % number, exchange="prices", routing_key="k.a")
            if number == MESSAGES // 3:
                hub.kill("left")
            if number == 2 * MESSAGES // 3:
                publisher.flush(PATIENCE)
                leaf.kill("left")
                votes.more(1)
        publisher.close()
        leaf.until(lambda: state(leaf, "right") == "running", "the link to run again", PATIENCE)

        def link() -> int:
            found = hub.ask("right", "query")["status"]["queue_list"]
            return next(int(q["ready"] + q["unacked"]) for q in found if q["name"].startswith("amq.link."))

        leaf.until(lambda: link() == 0, "everything to be taken", PATIENCE)
        assert content(hub, "right", "local") == list(range(MESSAGES))
        assert content(leaf, "right", "taken") == list(range(MESSAGES))
