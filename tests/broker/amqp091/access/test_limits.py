"""Limits of virtual hosts and users: connections, channels, queues."""

from __future__ import annotations

import pytest

from broker.model.history.records import EntryDelete, EntryPut
from broker.model.vhost.directory import EntryFault
from tests.broker.amqp091.access.test_access import ALICE, opening, store, told
from tests.broker.amqp091.wire import World
from tests.broker.stored import permission, user


def of_vhost(name: str = "/", **limits: object) -> EntryPut:
    return EntryPut("vhost-limits", name, "limits", {key.replace("_", "-"): n for key, n in limits.items()})


def of_user(name: str = "alice", **limits: object) -> EntryPut:
    return EntryPut("user-limits", "", name, {key.replace("_", "-"): n for key, n in limits.items()})


def world_of(*entries: EntryPut) -> World:
    world = World()
    store(world, user(), permission(), *entries)
    return world


OF_VHOST = (
    530,
    "NOT_ALLOWED - access to vhost '/' refused for user 'alice': connection limit (1) is reached",
)
OF_USER = (530, "NOT_ALLOWED - connection refused for user 'alice': user connection limit (1) is reached")


@pytest.mark.parametrize(
    ("limits", "why"), [(of_vhost(max_connections=1), OF_VHOST), (of_user(max_connections=1), OF_USER)]
)
def test_connections(limits: EntryPut, why: tuple[int, str]) -> None:
    world = world_of(limits)
    first = world.open(**ALICE)
    seen = opening(world)
    assert (seen.name, (seen["reply_code"], seen["reply_text"])) == ("connection.close", why)
    first.call(0, "connection.close", reply_code=200, reply_text="", failed_class=0, failed_method=0)
    first.connection.lost(world.now)
    assert opening(world).name == "connection.open-ok"


def test_a_smaller_limit_closes_nothing_and_no_limit_is_negative() -> None:
    world = world_of()
    first = world.open(**ALICE)
    store(world, of_vhost(max_connections=0))
    assert opening(world)["reply_code"] == 530
    assert not first.closed
    store(world, of_vhost(max_connections=-1))
    assert opening(world).name == "connection.open-ok"
    store(world, EntryDelete("vhost-limits", "/", "limits"))
    assert opening(world).name == "connection.open-ok"


def test_operators_do_not_count() -> None:
    world = world_of(of_vhost(max_connections=0), user("alice", "word", "administrator"))
    assert opening(world)["reply_code"] == 530
    assert opening(world, **{"understudy.management": True}).name == "connection.open-ok"


def test_channels_of_all_connections_of_a_user() -> None:
    world = world_of(of_user(max_channels=2))
    first, second = world.open(**ALICE), world.open(**ALICE)
    seen = second.call(2, "channel.open")
    assert (seen.name, seen["reply_code"], seen["reply_text"]) == (
        "connection.close", 530,
        "NOT_ALLOWED - number of channels opened for user 'alice' has reached the maximum allowed user limit "
        "of (2)",
    )  # fmt: skip
    assert first.call(2, "channel.open").name == "channel.open-ok", (
        "those of a closed connection do not count"
    )


def test_queues_of_a_virtual_host() -> None:
    world = world_of(of_vhost(max_queues=1))
    client = world.open()
    assert client.call(1, "queue.declare", queue="q").name == "queue.declare-ok"
    assert client.call(1, "queue.declare", queue="q").name == "queue.declare-ok"
    assert told([client.call(1, "queue.declare", queue="r")]) == (
        406, "PRECONDITION_FAILED - cannot declare queue 'r': queue limit in vhost '/' (1) is reached"
    )  # fmt: skip
    client.send(1, "channel.close-ok")
    client.call(1, "channel.open")
    client.call(1, "queue.delete", queue="q")
    assert client.call(1, "queue.declare", queue="").name == "queue.declare-ok"


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (of_vhost(), "at least one of max-connections, max-queues"),
        (of_vhost(max_channels=1), "'max-channels' is not known"),
        (of_user(max_channels=True), "max-channels is a whole number"),
        (of_user(max_connections="1"), "max-connections is a whole number"),
        (of_user("bob", max_channels=1), "there is no such user"),
        (of_vhost("none", max_queues=1), "there is no virtual host 'none'"),
        (EntryPut("vhost-limits", "/", "others", {"max-queues": 1}), "have the name 'limits'"),
    ],
)
def test_a_wrong_one_is_refused(entry: EntryPut, why: str) -> None:
    with pytest.raises(EntryFault, match=why):
        store(world_of(), entry)
