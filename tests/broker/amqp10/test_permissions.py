"""Permissions of stored users over AMQP 1.0, and when a change takes effect."""

from __future__ import annotations

import pytest

pytest.importorskip("proton")

from proton import Delivery, Endpoint, Message

from broker.model.history.records import EntryPut
from tests.broker.amqp091.wire import World
from tests.broker.amqp10.wire import Talker, detached, world10
from tests.broker.stored import permission, user


def world_of(**permissions: str) -> World:
    world = world10()
    world.vhost.shared.change_directory([user(), permission(**permissions)])
    world.open().call(1, "queue.declare", queue="q")
    return world


def test_a_user_without_a_permission_is_refused() -> None:
    world = world10()
    world.vhost.shared.change_directory([user()])
    talker = Talker(world, user="alice", password="word")
    assert talker.refused is not None and talker.refused[0] == "amqp:not-allowed"


def test_sending_needs_write_and_receiving_read() -> None:
    for allowed in ("write", "read"):
        needs = {"configure": "", "write": "", "read": "", allowed: ".*"}
        talker = Talker(world_of(**needs), user="alice", password="word")
        told = {"write": detached(talker.sender("q")), "read": detached(talker.receiver("q"))}
        refused = told.pop("read" if allowed == "write" else "write")
        assert refused is not None and refused[0] == "amqp:unauthorized-access"
        assert told == {allowed: None}
        dynamic = detached(talker.receiver(None, name="dynamic"))
        assert dynamic is not None and dynamic[0] == "amqp:unauthorized-access"


def test_a_permission_change_stops_a_running_publisher() -> None:
    world = world_of()
    talker = Talker(world, user="alice", password="word")
    link = talker.sender("q")
    (delivery,) = talker.send(link, Message(body=b"1"))
    assert delivery.remote_state == Delivery.ACCEPTED
    world.vhost.shared.change_directory([permission(write="")])
    talker.send(link, Message(body=b"2"))
    told = detached(link)
    assert told is not None and told[0] == "amqp:unauthorized-access"
    assert world.vhost.queues["q"].message_count == 1


def test_sessions_count_for_the_limit_of_channels() -> None:
    """Of all connections of a user, of both protocols. A session beyond it ends, and its connection does
    not."""
    world = world_of()
    world.vhost.shared.change_directory([EntryPut("user-limits", "", "alice", {"max-channels": 3})])
    plain = world.open(user="alice", password="word")
    talker = Talker(world, user="alice", password="word")
    second, third = talker.engine.session(), talker.engine.session()
    for session in (second, third):
        session.open()
        talker.turn()
    link = third.sender("late")
    link.target.address = "/queues/q"
    link.open()
    talker.turn()
    assert not second.state & Endpoint.REMOTE_CLOSED and third.state & Endpoint.REMOTE_CLOSED
    assert "resource-limit-exceeded" in str(third.remote_condition)
    assert "has reached the maximum allowed user limit of (3)" in str(third.remote_condition)
    assert not talker.closed and talker.connection.open_channels == 2
    second.close()
    talker.turn()
    plain.call(2, "channel.open")
    plain.send(3, "channel.open")
    assert [seen["reply_code"] for seen in plain.read()] == [530]
