"""Permissions of stored users: each row of RabbitMQ's table, and when a change takes effect."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from broker.amqp091.codec.frames import PROTOCOL_HEADER
from broker.amqp091.codec.grammar import BY_NAME
from broker.hooks import ExtensionPeer, Hold, Hooks, Refusal
from broker.model.history.records import EntryDelete, EntryPut
from tests.broker.amqp091.wire import Raw, Seen, World, extension_frame, message
from tests.broker.stored import permission, user

PERMISSIONS = ("configure", "write", "read")
ALICE: dict[str, Any] = {"user": "alice", "password": "word"}
OPERATOR: dict[str, Any] = {"capabilities": {"understudy.management": True}}


class Told(Hooks):
    """Hooks that hold connections as told, and accept the extension class."""

    def __init__(self) -> None:
        self.answer: Refusal | Hold | None = None
        self.heard: list[int] = []

    def connection_opening(self, connection: ExtensionPeer, *, management: bool) -> Refusal | Hold | None:
        return self.answer

    def extension(self, connection: ExtensionPeer, channel: int, method_id: int, payload: bytes) -> None:
        self.heard.append(method_id)


def world_of(*entries: EntryPut, hooks: Hooks | None = None) -> World:
    """A world with the queue `q`, bound to the exchange `e`, and the exchange `f`."""
    world = World(hooks)
    store(world, *entries)
    guest = world.open()
    guest.call(1, "queue.declare", queue="q")
    for name in ("e", "f"):
        guest.call(1, "exchange.declare", exchange=name, type="direct")
    guest.call(1, "queue.bind", queue="q", exchange="e", routing_key="q")
    return world


def store(world: World, *changes: EntryPut | EntryDelete) -> None:
    world.vhost.shared.change_directory(changes)
    world.tick()


def only(*needed: tuple[str, str]) -> EntryPut:
    """A permission for exactly these (what, name)."""
    names = {what: [re.escape(name) for it, name in needed if it == what] for what in PERMISSIONS}
    return permission(**{what: f"^({'|'.join(some)})" if some else "" for what, some in names.items()})


def told(seen: list[Seen]) -> tuple[int, str]:
    """Code and text of the last channel.close."""
    assert seen and seen[-1].name == "channel.close", seen
    return seen[-1]["reply_code"], seen[-1]["reply_text"]


def refusal(what: str, kind: str, name: str) -> tuple[int, str]:
    return 403, f"ACCESS_REFUSED - {what} access to {kind} '{name}' in vhost '/' refused for user 'alice'"


# -- the table


class Row(NamedTuple):
    method: str
    arguments: dict[str, Any]
    needs: tuple[tuple[str, str, str], ...]
    """What, kind, name; checked in this order."""


E_TO_Q = {"queue": "q", "exchange": "e", "routing_key": "k"}
F_TO_E = {"destination": "e", "source": "f", "routing_key": "k"}
TABLE = {
    "queue.declare": Row("queue.declare", {"queue": "n"}, (("configure", "queue", "n"),)),
    "queue.declare, there": Row("queue.declare", {"queue": "q"}, (("configure", "queue", "q"),)),
    "queue.declare, server-named": Row(
        "queue.declare", {"queue": ""}, (("configure", "queue", "amq.gen-"),)
    ),
    "queue.declare, dead letters": Row(
        "queue.declare", {"queue": "n", "arguments": {"x-dead-letter-exchange": "e"}},
        (("configure", "queue", "n"), ("read", "queue", "n"), ("write", "exchange", "e")),
    ),
    "queue.declare, dead letters by default": Row(
        "queue.declare", {"queue": "n", "arguments": {"x-dead-letter-exchange": ""}},
        (("configure", "queue", "n"), ("read", "queue", "n"), ("write", "exchange", "amq.default")),
    ),
    "queue.delete": Row("queue.delete", {"queue": "q"}, (("configure", "queue", "q"),)),
    "queue.bind": Row("queue.bind", E_TO_Q, (("write", "queue", "q"), ("read", "exchange", "e"))),
    "queue.unbind": Row("queue.unbind", E_TO_Q, (("write", "queue", "q"), ("read", "exchange", "e"))),
    "queue.purge": Row("queue.purge", {"queue": "q"}, (("read", "queue", "q"),)),
    "exchange.declare": Row(
        "exchange.declare", {"exchange": "n", "type": "direct"}, (("configure", "exchange", "n"),)
    ),
    "exchange.declare, alternate": Row(
        "exchange.declare", {"exchange": "n", "type": "direct", "arguments": {"alternate-exchange": "e"}},
        (("configure", "exchange", "n"), ("read", "exchange", "n"), ("write", "exchange", "e")),
    ),
    "exchange.delete": Row("exchange.delete", {"exchange": "e"}, (("configure", "exchange", "e"),)),
    "exchange.bind": Row("exchange.bind", F_TO_E, (("write", "exchange", "e"), ("read", "exchange", "f"))),
    "exchange.unbind": Row(
        "exchange.unbind", F_TO_E, (("write", "exchange", "e"), ("read", "exchange", "f"))
    ),
    "basic.get": Row("basic.get", {"queue": "q"}, (("read", "queue", "q"),)),
    "basic.consume": Row("basic.consume", {"queue": "q"}, (("read", "queue", "q"),)),
    "basic.publish": Row(
        "basic.publish", {"exchange": "e", "routing_key": "q"}, (("write", "exchange", "e"),)
    ),
    "basic.publish, default": Row(
        "basic.publish", {"exchange": "", "routing_key": "q"}, (("write", "exchange", "amq.default"),)
    ),
    "queue.declare, passive": Row("queue.declare", {"queue": "q", "passive": True}, ()),
    "exchange.declare, passive": Row("exchange.declare", {"exchange": "e", "passive": True}, ()),
}  # fmt: skip
NEEDS = [(row, at) for row, it in TABLE.items() for at in range(len(it.needs))]


def play(client: Raw, row: Row) -> list[Seen]:
    if row.method == "basic.publish":
        client.raw(message(1, b"m", **row.arguments))
    else:
        client.send(1, row.method, **row.arguments)
    return client.read()


@pytest.mark.parametrize("row", TABLE)
def test_an_operation_succeeds_with_its_permissions(row: str) -> None:
    wanted = TABLE[row]
    world = world_of(user(), only(*((what, name) for what, _, name in wanted.needs)))
    client = world.open(**ALICE)
    seen = play(client, wanted)
    answers = {"basic.publish": [], "basic.get": ["basic.get-empty"]}
    assert [it.name for it in seen] == answers.get(wanted.method, [f"{wanted.method}-ok"])
    assert client.call(1, "basic.qos").name == "basic.qos-ok"


@pytest.mark.parametrize(("row", "lacking"), NEEDS, ids=[f"{row}: {at}" for row, at in NEEDS])
def test_an_operation_fails_without_one_of_its_permissions(row: str, lacking: int) -> None:
    wanted = TABLE[row]
    needs = [(what, name) for what, _, name in wanted.needs]
    del needs[lacking]
    world = world_of(user(), only(*needs))
    before = world.vhost.shared.fingerprint()
    client = world.open(**ALICE)
    (seen,) = play(client, wanted)
    code, text = told([seen])
    if "amq.gen-" in text:
        text = re.sub(r"amq\.gen-[\w-]+", "amq.gen-", text)
    assert (code, text) == refusal(*wanted.needs[lacking])
    method = BY_NAME[wanted.method]
    assert (seen["failed_class"], seen["failed_method"]) == (method.class_id, method.method_id)
    assert world.vhost.shared.fingerprint() == before
    client.send(1, "channel.close-ok")
    assert client.call(1, "channel.open").name == "channel.open-ok", "it has cost the channel only"


def test_a_refusal_does_not_reveal_whether_the_object_exists() -> None:
    world = world_of(user(), permission(configure="", write="", read=""))
    client = world.open(**ALICE)
    for channel, queue in enumerate(("q", "none"), 2):
        client.call(channel, "channel.open")
        seen = client.call(channel, "basic.get", queue=queue)
        assert told([seen]) == refusal("read", "queue", queue)


def test_a_redeclaration_needs_only_configure() -> None:
    """As in RabbitMQ: the declaring client had to have the permissions for dead letters."""
    world = world_of(user(), permission(write="", read=""))
    arguments = {"x-dead-letter-exchange": "e"}
    world.open(channel=2).call(2, "queue.declare", queue="n", arguments=arguments)
    client = world.open(**ALICE)
    assert client.call(1, "queue.declare", queue="n", arguments=arguments).name == "queue.declare-ok"


@pytest.mark.parametrize("row", TABLE)
def test_users_of_the_configuration_may_do_everything(row: str) -> None:
    world = world_of(user("guest"), permission("guest", configure="", write="", read=""))
    client = world.open()
    assert all(seen.name != "channel.close" for seen in play(client, TABLE[row]))
    assert client.connection.access is None, "publishers pay nothing"


# -- the door


def opening(world: World, **login: Any) -> Seen:
    """The reply to connection.open."""
    client = world.connect()
    client.raw(PROTOCOL_HEADER)
    client.send(
        0, "connection.start-ok", mechanism="PLAIN", response=b"\0alice\0word",
        client_properties={"capabilities": {"authentication_failure_close": True, **login}},
    )  # fmt: skip
    client.send(0, "connection.tune-ok", channel_max=10, frame_max=131072, heartbeat=0)
    client.send(0, "connection.open", virtual_host="/")
    return client.read()[-1]


def test_without_any_permission_there_is_no_access_to_the_virtual_host() -> None:
    world = world_of(user())
    seen = opening(world)
    assert seen.name == "connection.close"
    assert (seen["reply_code"], seen["reply_text"], seen["failed_class"], seen["failed_method"]) == (
        530, "NOT_ALLOWED - access to vhost '/' refused for user 'alice'", 10, 40,
    )  # fmt: skip
    store(world, permission(configure="", write="", read=""))
    assert opening(world).name == "connection.open-ok"


def test_an_administrator_manages_without_any_permission() -> None:
    hooks = Told()
    world = world_of(user("alice", "word", "administrator"), hooks=hooks)
    client = world.open(**ALICE, **OPERATOR)
    client.raw(extension_frame(1, 50, b"{}"))
    assert hooks.heard == [50]
    assert opening(world)["reply_code"] == 530, "that is no permission to publish"


def test_a_former_administrator_cannot_manage() -> None:
    hooks = Told()
    world = world_of(user("alice", "word", "administrator"), hooks=hooks)
    client = world.open(**ALICE, **OPERATOR)
    store(world, user("alice", "word"))
    client.raw(extension_frame(1, 50, b"{}"))
    assert hooks.heard == []
    assert client.read()[-1]["reply_code"] == 403


def test_no_stored_user_opens_the_link() -> None:
    world = world_of(user("alice", "word", "administrator"), permission())
    assert opening(world, **{"understudy.ha-peer": True})["reply_code"] == 403


def test_a_held_connection_needs_its_permission_when_it_is_accepted() -> None:
    """Before that, this node may not have known the permission."""
    hooks = Told()
    world = world_of(user(), hooks=hooks)
    hooks.answer = Hold.HOLD
    assert opening(world).name == "connection.tune"
    store(world, permission())
    hooks.answer = None
    world.pass_time(0.2)
    assert world.clients[-1].names() == ["connection.open-ok"]


def test_a_broker_that_does_not_serve_does_not_call_an_unknown_user_wrong() -> None:
    """The client tries the next address, which it does not after a 403."""
    world = World()
    world.vhost.shared.deactivate()
    assert opening(world)["reply_code"] == 320
    assert opening(world, **{"understudy.management": True})["reply_code"] == 403
    world.vhost.shared.activate(2)
    assert opening(world)["reply_code"] == 403


# -- publishing


def bodies(world: World) -> list[bytes]:
    client = world.open()
    found = []
    while (seen := client.call(1, "basic.get", queue="q", no_ack=True)).name == "basic.get-ok":
        found.append(seen.body)
    return found


def test_messages_before_a_refused_publish_are_kept_and_later_ones_not() -> None:
    world = world_of(user(), permission(write="^e$"))
    client = world.open(**ALICE)
    burst = message(1, b"1", "e", "q") + message(1, b"2", "e", "q")
    client.raw(burst + message(1, b"3", "", "q") + message(1, b"4", "e", "q"))
    assert told(client.read()) == refusal("write", "exchange", "amq.default")
    assert bodies(world) == [b"1", b"2"]


def test_a_refused_publish_in_pieces() -> None:
    world = world_of(user(), permission(write="^e$"))
    client = world.open(**ALICE)
    data = message(1, b"1" * 100, "", "q")
    for at in range(0, len(data), 7):
        client.raw(data[at : at + 7])
    assert told(client.read()) == refusal("write", "exchange", "amq.default")
    assert bodies(world) == []


def test_a_refused_publish_is_neither_confirmed_nor_committed() -> None:
    world = world_of(user(), permission(write="^e$"))
    client = world.open(**ALICE)
    client.call(1, "tx.select")
    client.raw(message(1, b"1", "e", "q") + message(1, b"2", "", "q"))
    assert told(client.read()) == refusal("write", "exchange", "amq.default")
    client.call(2, "channel.open")
    client.call(2, "confirm.select")
    client.raw(message(2, b"3", "e", "q") + message(2, b"4", "", "q"))
    assert [seen.name for seen in client.read()] == ["channel.close"]
    assert bodies(world) == [b"3"]


@pytest.mark.parametrize("change", [permission(write="^f$"), EntryDelete("permission", "/", "alice")])
def test_a_permission_change_stops_a_running_publisher(change: EntryPut | EntryDelete) -> None:
    world = world_of(user(), permission())
    client = world.open(**ALICE)
    data = message(1, b"1", "e", "q")
    client.raw(data * 3)
    store(world, change)
    client.raw(data * 3)
    assert told(client.read()) == refusal("write", "exchange", "e")
    assert len(bodies(world)) == 3
    store(world, permission())
    client.send(1, "channel.close-ok")
    client.call(1, "channel.open")
    client.raw(data)
    assert len(bodies(world)) == 1


# -- what becomes of open connections


def test_a_deleted_users_connections_are_closed() -> None:
    world = world_of(user(), permission(), user("bob"), permission("bob"))
    alice, bob = world.open(**ALICE), world.open(user="bob", password="word")
    managing = world.connect()
    managing.raw(PROTOCOL_HEADER)
    managing.send(0, "connection.start-ok", mechanism="PLAIN", response=b"\0alice\0word")
    alice.call(1, "queue.declare", queue="mine", exclusive=True)
    store(world, EntryDelete("user", "", "alice"))
    for client in (alice, managing):
        close = client.read()[-1]
        assert (close.name, close["reply_code"], close["reply_text"]) == (
            "connection.close", 320, "CONNECTION_FORCED - user 'alice' is deleted",
        )  # fmt: skip
    assert "mine" not in world.vhost.queues
    assert any("user 'alice' is deleted" in line for line in world.logged)
    assert bob.connection.running and bob.call(1, "basic.get", queue="q").name == "basic.get-empty"


def test_without_its_permission_a_connection_lives_on_and_a_consumer_too() -> None:
    """As in RabbitMQ: later requests are refused."""
    world = world_of(user(), permission())
    client = world.open(**ALICE)
    client.call(1, "basic.consume", queue="q", consumer_tag="c")
    store(world, EntryDelete("permission", "/", "alice"))
    guest = world.open()
    guest.publish(1, b"on", routing_key="q")
    assert [seen.body for seen in client.read()] == [b"on"]
    assert told([client.call(1, "basic.get", queue="q")]) == refusal("read", "queue", "q")


def test_a_configured_user_of_a_deleted_name_stays() -> None:
    world = world_of(user("guest"))
    client = world.open()
    store(world, EntryDelete("user", "", "guest"))
    assert client.connection.running
