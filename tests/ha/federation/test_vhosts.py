"""Federation in several virtual hosts, and what a deleted one or a removed agent leaves behind: nothing."""

from __future__ import annotations

import pytest

from broker.model.history.records import EntryDelete, EntryPut
from tests.ha.federation.nets import LOGIN, Net, agent, entry
from tests.ha.federation.test_push import made
from tests.ha.pair import raw

OTHER = EntryPut("vhost", "", "other", {"description": "", "tags": []})


def with_another(there: str = "other", **modes: object) -> Net:
    """`leaf` has an agent for `hub` in `/` and in the virtual host `other`, which both have. The latter has
    `there` for the virtual host at the hub."""
    net = made(**modes)
    for node in ("hub", "leaf"):
        vhosts = net.serving(node).running.vhosts
        vhosts.change_directory([OTHER])
        vhosts["other"].declare_exchange("x", "topic", durable=True)
        vhosts["other"].declare_queue("q", owner=net)
        vhosts["other"].bind_queue("q", "x", "k", owner=net)
    upstream = entry(
        "federation-upstream", "hub", addresses=[f"127.0.0.1:{net.hosts[0].port}"], login=LOGIN
    ) | {"vhost": "other"}
    upstream["value"] = {**upstream["value"], "vhost": there}
    assert net.define(net.serving("leaf"), upstream, agent("x", "hub", **modes) | {"vhost": "other"})["ok"]
    return net


def publish(net: Net, node: str, vhost: str, text: str) -> None:
    there = net.serving(node).running.vhosts[vhost]
    there.publish(there.route("x", "k"), [raw(text)], persistent=True, channel=1, largest_frame=22)


def count(net: Net, node: str, vhost: str) -> int:
    return net.serving(node).running.vhosts[vhost].queues["q"].total_count


def states(net: Net) -> list[str]:
    return [line["state"] for line in net.serving("leaf").running.status()["federation"]["agents"]]


def test_agents_of_two_virtual_hosts_do_not_take_the_link_from_each_other() -> None:
    net = with_another(forward_mode="all", consume_mode="all")
    net.until(lambda: states(net) == ["running"] * 2)
    for _ in range(50):
        net.run(0.1)
        assert states(net) == ["running"] * 2
    for vhost, times in (("/", 1), ("other", 2)):
        for _ in range(times):
            publish(net, "leaf", vhost, "1")
            publish(net, "hub", vhost, "2")
    net.run(0.5)
    for node in ("leaf", "hub"):
        assert (count(net, node, "/"), count(net, node, "other")) == (2, 4)


@pytest.mark.parametrize("modes", [("all", "none"), ("none", "all")], ids=["take", "give"])
def test_two_virtual_hosts_do_not_take_from_one_or_give_to_one(modes: tuple[str, str]) -> None:
    net = with_another("/", consume_mode=modes[0], forward_mode=modes[1])
    net.until(lambda: sorted(states(net)) == ["refused", "running"])
    before = states(net)
    for _ in range(50):
        net.run(0.1)
        assert states(net) == before
    [why] = [
        line["reason"] for line in net.serving("leaf").running.status()["federation"]["agents"]
        if line["state"] == "refused"
    ]  # fmt: skip
    assert "has it already: remove one of the two" in why


@pytest.mark.parametrize("deletes", ["hub", "leaf"])
@pytest.mark.parametrize("after", range(0, 24, 4))
def test_a_virtual_host_that_is_deleted_under_messages_leaves_no_entry(deletes: str, after: int) -> None:
    net = with_another(forward_mode="all", consume_mode="all")
    net.until(lambda: states(net) == ["running"] * 2)
    publish(net, "leaf", "other", "1")
    publish(net, "hub", "other", "2")
    for _ in range(after):
        net.step()
        net.now += 0.001
    vhosts = net.serving(deletes).running.vhosts
    vhosts.change_directory([EntryDelete("vhost", "", "other")])
    net.run(2.0)
    assert [key for key in vhosts.directory.cursors if key[0] == "other"] == []


@pytest.mark.parametrize("what", ["federation-agent", "federation-upstream"])
@pytest.mark.parametrize("after", range(0, 24, 3))
def test_an_agent_that_is_removed_under_messages_leaves_no_entry(what: str, after: int) -> None:
    net = made(forward_mode="all", consume_mode="all")
    for _ in range(3):
        net.send("leaf", "k", "1")
        net.send("hub", "k", "2")
        net.step()
    for _ in range(after // 2):
        net.step()
        net.now += 0.001
    leaf = net.serving("leaf")
    name = "x@hub" if what == "federation-agent" else "hub"
    if after % 2:
        leaf.running.vhosts.change_directory([EntryDelete(what, "/", name)])
    else:
        assert net.define(leaf, entry(what, name, action="delete"))["ok"]
    net.run(1.0)
    assert net.cursors("hub") == net.cursors("leaf") == []
