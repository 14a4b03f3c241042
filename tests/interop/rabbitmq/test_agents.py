"""Agents of ours at a RabbitMQ."""

from __future__ import annotations

import pytest

from tests.interop.rabbitmq.brokers import CLUSTER, Client, Ours, Rabbit, until

pytestmark = pytest.mark.system


def test_what_matches_comes_and_interest_follows(
    theirs: Rabbit, leaf: Ours, there: Client, here: Client
) -> None:
    there.exchange("take")
    here.exchange("take")
    here.queue("take.q", "take", "a.*")
    leaf.upstream(theirs)
    leaf.agent("take")
    line = leaf.runs("take")
    assert line["promise"] == "at least once" and line["source"].startswith("RabbitMQ 3.")
    there.publish("take", "a.b", "1", user_id="guest", headers={"own": 1})
    there.publish("take", "b", "2")
    [(body, properties)] = here.gets("take.q", 1)
    assert body == "1" and properties.user_id is None and properties.headers["own"] == 1
    [hop] = properties.headers["x-received-from"]
    assert hop["cluster-name"] == CLUSTER and hop["vhost"] == "/"
    assert "guest" not in hop["uri"]
    here.queue("take.q", "take", "b")
    until(lambda: theirs.bindings("take") == ["a.*", "b"])
    here.channel.queue_unbind("take.q", "take", "a.*")
    until(lambda: theirs.bindings("take") == ["b"])
    there.publish("take", "a.b", "3")
    there.publish("take", "b", "4")
    assert here.bodies("take.q", 1) == ["4"]
    until(lambda: there.depth("federation: take -> leaf") == 0)
    leaf.run("federate", "remove", "agent", "take", "rabbit")
    until(lambda: theirs.bindings("take") == [])
    assert "federation: take" not in theirs.control("list_queues", "name")


def test_what_is_given_and_what_comes_back(theirs: Rabbit, leaf: Ours, there: Client, here: Client) -> None:
    for side in (there, here):
        side.exchange("both")
        side.queue("both.q", "both", "#")
    leaf.upstream(theirs)
    leaf.agent("both", "--forward-mode", "all")
    leaf.runs("both")
    here.publish("both", "k", "1", expiration="600000")
    there.publish("both", "k", "2")
    assert sorted(here.bodies("both.q", 2)) == ["1", "2"]
    found = dict(there.gets("both.q", 2))
    assert sorted(found) == ["1", "2"]
    [hop] = found["1"].headers["x-received-from"]
    assert (hop["cluster-name"], hop["vhost"]) == ("leaf", "/") and 0 < int(found["1"].expiration) <= 600000
    large = "x" * 400_000
    here.publish("both", "k", large)
    there.publish("both", "k", large.upper())
    for side in (here, there):
        assert sorted(side.bodies("both.q", 2)) == [large.upper(), large]
    until(lambda: leaf.line("both")["looped"] == 2)
    line = leaf.line("both")
    assert (line["given"], line["waiting"], here.depth("both.q")) == (2, 0, 0)


def test_what_rabbitmq_refuses_is_let_go_of(theirs: Rabbit, leaf: Ours, there: Client, here: Client) -> None:
    """A full queue there; and a message that costs the channel, here one that is too large for RabbitMQ."""
    there.exchange("give")
    here.exchange("give")
    there.channel.queue_declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    there.channel.queue_bind("full", "give", "full")
    there.queue("give.q", "give", "fine")
    leaf.upstream(theirs)
    theirs.eval("application:set_env(rabbit, max_message_size, 1000).")
    try:
        leaf.agent("give", "--consume-mode", "none", "--forward-mode", "all")
        leaf.runs("give")
        for body in "123":
            here.publish("give", "full", body)
        until(lambda: leaf.line("give")["waiting"] == 0)
        line = leaf.line("give")
        assert line["given"] + line["refused"] == 3 and line["refused"] >= 1
        for body in ("4", "x" * 5000, "5"):
            here.publish("give", "fine", body)
        found = there.bodies("give.q", 1)
        while found[-1] != "5":  # what was not confirmed when the channel closed comes again
            found += there.bodies("give.q", 1)
        assert set(found) == {"4", "5"}
        until(lambda: leaf.line("give")["waiting"] == 0)
        assert leaf.line("give")["spoilt"] == 1
    finally:
        theirs.eval("application:set_env(rabbit, max_message_size, 134217728).")


def test_connections_that_break_lose_nothing(theirs: Rabbit, leaf: Ours, there: Client, here: Client) -> None:
    """RabbitMQ closes that of the agent, in the middle of messages both ways."""
    for side in (there, here):
        side.exchange("broken")
    here.queue("broken.q", "broken", "down")
    there.queue("broken.q", "broken", "up")
    leaf.upstream(theirs)
    leaf.agent("broken", "--forward-mode", "all")
    leaf.runs("broken")
    sent = [str(number) for number in range(240)]
    for number, body in enumerate(sent):
        there.publish("broken", "down", body)
        here.publish("broken", "up", body)
        if number % 80 == 40:
            closed = theirs.eval(
                '[rabbit_networking:close_connection(P, "a test") || [{pid, P}, {client_properties, C}] <- '
                "rabbit_networking:connection_info_all([pid, client_properties]), "
                '{<<"connection_name">>, longstr, <<"federation of node">>} <- C].'
            )
            assert closed.startswith("[ok")
    for side in (there, here):
        found: set[str] = set()
        while found != set(sent):
            found |= set(side.bodies("broken.q", 1))
    until(lambda: leaf.line("broken")["waiting"] == 0 and there.depth("federation: broken -> leaf") == 0)


def test_over_tls(theirs: Rabbit, leaf: Ours, there: Client, here: Client) -> None:
    there.exchange("secure")
    here.exchange("secure")
    here.queue("secure.q", "secure", "k")
    leaf.upstream(theirs, "secure", tls=True)
    leaf.agent("secure", upstream="secure")
    leaf.runs("secure")
    there.publish("secure", "k", "1")
    assert here.bodies("secure.q", 1) == ["1"]
