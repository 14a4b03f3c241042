"""What an agent may not do, and what each end says of it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.errors import ResourceLocked
from broker.model.history.records import EntryDelete, EntryPut
from broker.model.vhost.federation_entries import upstream_fault
from broker.security.authenticator import hash_password
from broker.security.identity import FEDERATION, User, default_users
from broker.security.topic_permissions import topic_name
from tests.ha.federation.nets import LOGIN, Net, agent, entry
from tests.ha.federation.test_hop import joined


def reason(net: Net, state: str = "refused") -> str:
    net.until(lambda: net.line("leaf", "hub")["state"] == state)
    found = net.line("leaf", "hub")["reason"]
    assert isinstance(found, str)
    return found


def two(**settings: Any) -> Net:
    net = Net(settings, hub=1, leaf=1)
    net.up()
    return net


def test_an_exchange_that_is_not_there_is_waited_for_at_either_end() -> None:
    net = two()
    net.federate("leaf", "hub")
    assert "there is no exchange 'x' here" in reason(net, "no exchange")
    net.exchange("leaf")
    assert "it has no exchange 'x' to federate; declare it there" in reason(net)
    net.exchange("hub")
    net.runs("leaf", "hub")


def test_another_type_of_exchange_is_refused() -> None:
    net = two()
    net.exchange("hub", kind="direct")
    net.exchange("leaf")
    net.federate("leaf", "hub")
    assert "its exchange 'x' is of type direct, not topic" in reason(net)


def test_a_deleted_exchange_stops_the_link_and_a_new_one_starts_it_again() -> None:
    net = joined()
    for node in ("hub", "leaf"):
        vhost = net.serving(node).running.vhost
        vhost.delete_exchange("x")
        net.run(1.0)
        assert net.line("leaf", "hub")["state"] in ("refused", "no exchange")
        net.exchange(node)
        if node == "leaf":
            net.serving(node).running.vhost.bind_queue("q", "x", "a.*", owner=net)
        net.runs("leaf", "hub")
        net.run(0.1)
        net.send("hub", "a.b", node[0])
        net.gets("leaf", "q", "h" if node == "hub" else "hl")


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (User("fed", frozenset({FEDERATION}), password="other"), "403 "),
        (User("fed", frozenset(), password="secret"), "may not be a peer"),
    ],
    ids=["password", "tag"],
)
def test_a_login_that_is_refused_is_named_with_what_to_correct(user: User, said: str) -> None:
    net = two()
    net.kill(net[0])
    net[0].users = (*default_users(), user)
    net.start(net[0])
    net.exchange("leaf")
    net.federate("leaf", "hub")
    why = reason(net)
    assert said in why and f"federation.logins.{LOGIN}" in why
    lines = [line for line in net[0].log if "login refused" in line]
    assert len(lines) == (said == "403 ")
    assert all("'fed': a federated broker: no such user, or a wrong password" in line for line in lines)


def test_what_both_brokers_of_a_node_say_is_shown_once() -> None:
    net = Net(hub=2, leaf=1)
    for host in net.nodes["hub"]:
        host.users = default_users()
    net.up()
    net.exchange("leaf")
    net.federate("leaf", "hub")
    first, second = (f"127.0.0.1:{host.port}" for host in net.nodes["hub"])
    net.until(lambda: net.line("leaf", "hub")["reason"].startswith(f"{first}, {second}: 403 "))


def test_two_brokers_that_call_themselves_one_node_do_not_take_from_one_queue() -> None:
    net = Net(hub=1, leaf=1, twin=1)
    twin = net.nodes["twin"][0]
    twin.settings = net.nodes["leaf"][0].settings
    net.up()
    net.exchange("hub", "leaf", "twin")
    net.federate("leaf", "hub")
    net.runs("leaf", "hub")
    net.federate("twin", "hub")
    net.until(lambda: net.line("twin", "hub")["state"] == "refused")
    assert "another broker has been the node 'leaf' there before" in net.line("twin", "hub")["reason"]
    assert net.line("leaf", "hub")["state"] == "running"


def test_a_broker_that_gets_a_backup_keeps_its_link() -> None:
    net = Net(hub=1, leaf=2)
    alone, other = net.nodes["leaf"]
    alone.settings = {**alone.settings, "brokers": []}
    net.start(net[0], alone)
    net.run(0.3)
    net.exchange("hub", "leaf")
    net.queue("leaf", "q", "a.*")
    net.federate("leaf", "hub")
    net.runs("leaf", "hub")
    net.kill(alone)
    net.send("hub", "a.b", "1")
    del alone.settings["brokers"]
    net.start(alone, other)
    net.run(0.3)
    assert net.ask(alone, "promote")["ok"]
    net.until(lambda: other.status == "ready")
    net.gets("leaf", "q", "1")
    net.kill(alone)
    net.run(0.1)
    assert net.ask(other, "promote")["ok"]
    net.send("hub", "a.b", "2")
    net.gets("leaf", "q", "12")


def test_a_second_agent_for_the_same_node_is_refused() -> None:
    """Under another name of the upstream; the two would take the link from each other for ever."""
    net = joined()
    host = net.serving("leaf")
    again = entry("federation-upstream", "again", addresses=[f"127.0.0.1:{net[0].port}"], login=LOGIN)
    for mode in ({}, {"consume_mode": "none", "forward_mode": "all"}):
        net.define(host, agent("x", "hub", **mode))
        net.runs("leaf", "hub")
        net.define(host, again, agent("x", "again", **mode))
        net.until(lambda: net.line("leaf", "again")["state"] == "refused")
        assert "agent 'x@hub' of b has it already" in net.line("leaf", "again")["reason"]
        assert net.line("leaf", "hub")["state"] == "running"
        net.define(host, entry("federation-upstream", "again", action="delete"))


@pytest.mark.parametrize("same", [True, False])
def test_a_node_does_not_take_from_itself_or_from_one_of_its_name(same: bool) -> None:
    net = two()
    net.exchange("hub", "leaf")
    host = net.serving("leaf")
    if not same:
        net.kill(net[0])
        net[0].settings = host.settings
        net.start(net[0])
    at = host.port if same else net[0].port
    net.define(host, entry("federation-upstream", "hub", addresses=[f"127.0.0.1:{at}"], login=LOGIN))
    net.define(host, agent("x", "hub"))
    assert ("it is this very node" if same else "its own federation.node is 'leaf', too") in reason(net)


def test_removing_an_agent_removes_its_queue_upstream_and_pausing_keeps_it() -> None:
    net = joined()
    host = net.serving("leaf")
    net.define(host, agent("x", "hub", paused=True))
    net.send("hub", "a.b", "12")
    net.run(0.5)
    assert "understudy federate resume" in reason(net, "paused")
    assert net.waiting("hub", "leaf") == 2
    net.define(host, agent("x", "hub"))
    net.gets("leaf", "q", "12")
    assert net.define(host, entry("federation-agent", "x@hub", action="delete"))["ok"]
    net.until(lambda: "amq.link.x@leaf" not in net.serving("hub").running.vhost.queues)
    assert net.cursors("leaf") == []


def test_clients_leave_link_queues_alone() -> None:
    net = joined()
    vhost = net.serving("hub").running.vhost
    name = "amq.link.x@leaf"
    for what in (vhost.queue, vhost.purge_queue, vhost.delete_queue):
        with pytest.raises(ResourceLocked, match="no client uses it"):
            what(name, owner=net)
    assert not vhost.route("", name).queues
    net.kill(net[1])
    net.run(0.1)
    vhost.delete_queue(name, owner=net)  # nobody takes from it: an administrator may


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"forward_mode": "none", "copy": 0}, "copy 0 sends messages upstream only"),
        ({"consume_mode": "some"}, "consume-mode is one of all, none"),
        ({"max_hops": 0}, "max-hops is a whole number from 1 to 32"),
        ({"colour": 1}, "'colour' is not known"),
    ],
)
def test_an_agent_that_makes_no_sense_is_refused_in_one_line(value: dict[str, Any], said: str) -> None:
    net = two()
    host = net.serving("leaf")
    net.define(host, entry("federation-upstream", "hub", addresses=["127.0.0.1:5000"], login=LOGIN))
    answer = net.define(host, agent("x", "hub", **value))
    assert not answer["ok"] and said in answer["reason"] and "\n" not in answer["reason"]
    assert not net.define(host, agent("x", "nowhere"))["ok"]
    assert not net.define(host, entry("federation-cursor", "x@hub", uuid="0" * 32, epoch=1, sequence=1))["ok"]


@pytest.mark.parametrize(
    "address", ["amqp://u:a-secret@h:5672", "u:a-secret@h:5672", "amqp://h:5672", "h:5672/shop", "a:b:5672"]
)
def test_a_uri_is_no_address_and_no_password_is_kept_or_shown(address: str) -> None:
    net = two()
    host = net.serving("leaf")
    answer = net.define(host, entry("federation-upstream", "hub", addresses=[address], login=LOGIN))
    assert not answer["ok"] and "is no address HOST:PORT" in answer["reason"]
    assert "a-secret" not in str(answer) and "a-secret" not in str(host.log)
    for fine in ("[::1]:5672", "hub-1.example:5672"):
        assert upstream_fault("hub", {"addresses": [fine], "login": LOGIN}) == ""


def test_deleting_an_upstream_deletes_its_agents() -> None:
    net = joined()
    host = net.serving("leaf")
    assert net.define(host, entry("federation-upstream", "hub", action="delete"))["ok"]
    directory = host.running.vhosts.directory
    assert (directory.agents, directory.upstreams, directory.cursors) == ({}, {}, {})


def test_a_trace_shows_where_a_message_would_go_and_by_which_binding() -> None:
    net = Net(top=1, mid=1, leaf=1)
    net.up()
    net.exchange("top", "mid", "leaf")
    net.exchange("top", name="inner")
    net.queue("leaf", "q", "a.*")
    net.queue("top", "own", "a.b", exchange="inner")
    top = net.serving("top")
    top.running.vhost.bind_exchange("inner", "x", "a.#")
    net.federate("mid", "top")
    net.federate("leaf", "mid")
    net.federate("top", "mid", consume_mode="none", forward_mode="unmatched")
    for node, upstream in (("mid", "top"), ("leaf", "mid"), ("top", "mid")):
        net.runs(node, upstream)
    net.run(0.5)

    def steps(key: str) -> list[tuple[str, ...]]:
        answer = net.ask(top, "federation-trace", vhost="/", exchange="x", key=key)
        return sorted((s["from"], s["to"], s["name"], s["binding"], s["path"]) for s in answer["steps"])

    assert steps("a.b") == [
        ("inner", "queue", "own", "a.b", ""), ("x", "exchange", "inner", "a.#", ""),
        ("x", "node", "mid", "a.*", "leaf mid"),
    ]  # fmt: skip
    assert steps("other") == [("x", "upstream", "mid", "unmatched", "")]
    assert not net.ask(top, "federation-trace", vhost="/", exchange="none", key="k")["ok"]


def test_a_policy_makes_agents_for_exchanges_as_they_come_and_go() -> None:
    net = two()
    host = net.serving("leaf")
    addresses = [f"127.0.0.1:{net.serving('hub').port}"]
    policy = {"pattern": "^p", "apply-to": "exchanges", "definition": {"federation-upstream": "hub"}}
    put = (
        entry("federation-upstream", "hub", addresses=addresses, login=LOGIN),
        entry("policy", "up", **policy),
    )
    assert net.define(host, *put)["ok"]

    def states() -> dict[str, str]:
        lines = host.running.status()["federation"]["agents"]
        assert all(line["by"] == "policy" for line in lines)
        return {line["exchange"]: line["state"] for line in lines}

    assert states() == {}
    for name in ("p1", "p2", "other"):
        net.exchange("hub", "leaf", name=name)
    net.until(lambda: states() == {"p1": "running", "p2": "running"})
    net.queue("leaf", "q", "k", exchange="p1")
    net.run(0.3)
    net.send("hub", "k", "1", exchange="p1")
    net.gets("leaf", "q", "1")
    host.running.vhost.delete_exchange("p2")
    net.run(0.5)
    assert states() == {"p1": "running"}
    assert "amq.link.p2@leaf" not in net.serving("hub").running.vhost.queues
    assert net.define(host, entry("policy", "up", action="delete"))["ok"]
    net.run(0.5)
    assert states() == {}
    assert "amq.link.p1@leaf" not in net.serving("hub").running.vhost.queues
    assert not [name for _, name in host.running.vhosts.directory.cursors if not name.startswith("amq.")]


@pytest.mark.parametrize("gives", [False, True], ids=["take", "give"])
def test_topic_permissions_hold_for_a_link_as_for_a_client(gives: bool) -> None:
    """The hub has the login as a stored user, who may use keys that begin with `a.`."""
    net = Net(hub=1, leaf=1)
    hub = net.hosts[0]
    hub.users = default_users()
    net.up()
    net.exchange("hub", "leaf")
    name, everything = topic_name("fed", "x"), {"configure": ".*", "write": ".*", "read": ".*"}
    secret = {"password_hash": hash_password("secret"), "tags": ["federation"]}
    limits = EntryPut("topic-permission", "/", name, {"write": "^a[.]", "read": "^a[.]"})
    hub.running.vhosts.change_directory(
        [EntryPut("user", "", "fed", secret), EntryPut("permission", "/", "fed", everything), limits]
    )
    source, target = ("leaf", "hub") if gives else ("hub", "leaf")
    net.queue(target, "q", "a.b")
    mode: dict[str, Any] = {"forward_mode": "all", "consume_mode": "none"} if gives else {}
    net.federate("leaf", "hub", **mode)
    net.runs("leaf", "hub")
    net.run(0.2)
    net.send(source, "a.b", "1")
    net.gets(target, "q", "1")

    net.queue(target, "other", "z")
    net.send(source, "a.b", "2")
    net.send(source, "z", "3")
    what = "write" if gives else "read"
    assert f"{what} access to topic 'z' in exchange 'x' in vhost '/' refused for user 'fed'" in reason(net)
    assert net.content(target, "q").startswith("12"[: 2 if gives else 1])
    hub.running.vhosts.change_directory([EntryDelete("topic-permission", "/", name)])
    net.runs("leaf", "hub")
    if not gives:
        net.run(0.5)
        net.send(source, "z", "3")
    net.gets(target, "other", "3")
    net.gets(target, "q", "12")
