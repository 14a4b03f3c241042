"""RabbitMQ's own federation plugin takes from exchanges of ours."""

from __future__ import annotations

import json

import pytest

from tests.interop.rabbitmq.brokers import CLUSTER, Client, Ours, Rabbit, bound, pulls, until

pytestmark = pytest.mark.system


def test_it_takes_what_its_bindings_ask_for(theirs: Rabbit, leaf: Ours, there: Client, here: Client) -> None:
    here.exchange("pulled")
    there.exchange("pulled")
    there.queue("pulled.q", "pulled", "a.*")
    pulls(theirs, leaf, "pulled")
    until(lambda: bound(leaf, "pulled") == ["a.*"])
    here.publish("pulled", "a.b", "1")
    here.publish("pulled", "b", "2")
    [(body, properties)] = there.gets("pulled.q", 1)
    [hop] = properties.headers["x-received-from"]
    assert body == "1" and hop["cluster-name"] == "leaf"
    there.channel.queue_unbind("pulled.q", "pulled", "a.*")
    until(lambda: bound(leaf, "pulled") == [])
    types = {
        line["name"]: line["type"] for line in json.loads(leaf.run("definitions", "export", "-"))["exchanges"]
    }
    assert "x-federation-upstream" in types.values()


def test_what_has_been_there_is_withheld(theirs: Rabbit, leaf: Ours, there: Client, here: Client) -> None:
    """By what a message says of the brokers that it came through."""
    here.exchange("withheld")
    there.exchange("withheld")
    there.queue("withheld.q", "withheld", "#")
    pulls(theirs, leaf, "withheld", max_hops=2)
    until(lambda: bound(leaf, "withheld") == ["#"])
    been = {"x-received-from": [{"cluster-name": CLUSTER, "vhost": "/", "exchange": "withheld"}]}
    other = {"x-received-from": [{"cluster-name": "other", "vhost": "/", "exchange": "withheld"}]}
    for body, headers in (("1", been), ("2", other), ("3", {})):
        here.publish("withheld", "k", body, headers=headers)
    assert there.bodies("withheld.q", 2) == ["2", "3"]


def test_both_ways_each_message_comes_once_and_no_interest_stays(
    theirs: Rabbit, leaf: Ours, there: Client, here: Client
) -> None:
    """Its plugin takes from ours, and an agent of ours from it."""
    for side in (here, there):
        side.exchange("mutual")
        side.queue("mutual.q", "mutual", "k")
    pulls(theirs, leaf, "mutual")
    leaf.upstream(theirs)
    leaf.agent("mutual")
    leaf.runs("mutual")
    until(lambda: (theirs.bindings("mutual"), bound(leaf, "mutual")) == (["k"], ["k"]))
    here.publish("mutual", "k", "1")
    there.publish("mutual", "k", "2")
    for side in (here, there):
        assert sorted(side.bodies("mutual.q", 2)) == ["1", "2"]
    here.publish("mutual", "k", "3")
    there.publish("mutual", "k", "4")
    for side in (here, there):
        assert sorted(side.bodies("mutual.q", 2)) == ["3", "4"]
        side.channel.queue_delete("mutual.q")
    until(lambda: (theirs.bindings("mutual"), bound(leaf, "mutual")) == ([], []))
