"""Connections in several virtual hosts, and their fate when their virtual host is deleted."""

from __future__ import annotations

from broker.hooks import ExtensionPeer, Hold, Hooks, Refusal
from broker.model.history.records import EntryDelete, EntryPut
from tests.broker.amqp091.wire import Raw, World
from tests.broker.stored import permission, user

X = EntryPut("vhost", "", "x", {"description": "", "tags": []})
NO_X = EntryDelete("vhost", "", "x")
GONE = "CONNECTION_FORCED - vhost 'x' is deleted"


def world_of(*changes: EntryPut | EntryDelete, hooks: Hooks | None = None) -> World:
    world = World(hooks)
    change(world, X, *changes)
    return world


def change(world: World, *changes: EntryPut | EntryDelete) -> None:
    world.broker.vhosts.change_directory(changes)
    world.tick()


def get(client: Raw, queue: str = "q") -> bytes:
    return client.call(1, "basic.get", queue=queue, no_ack=True).body


def test_two_connections_in_two_virtual_hosts_see_their_own_queues() -> None:
    world = world_of()
    here, there = world.open(), world.open(vhost="x")
    for client in (here, there):
        client.call(1, "queue.declare", queue="q")
        client.call(1, "exchange.declare", exchange="e", type="fanout")
        client.call(1, "queue.bind", queue="q", exchange="e", routing_key="")
    there.publish(1, b"there", routing_key="q")
    here.publish(1, b"here", exchange="e")
    # The same frames again and again, so that what was decoded of them is remembered, on both.
    for body in (b"1", b"2"):
        here.publish(1, body, routing_key="q")
        there.publish(1, body, routing_key="q")
    assert [get(here) for _ in range(3)] == [b"here", b"1", b"2"]
    assert [get(there) for _ in range(3)] == [b"there", b"1", b"2"]
    here.call(1, "queue.delete", queue="q")
    assert there.call(1, "queue.declare", queue="q", passive=True).name == "queue.declare-ok"
    close = here.call(1, "queue.declare", queue="q", passive=True)
    assert close["reply_text"] == "NOT_FOUND - no queue 'q' in vhost '/'"


def test_an_exclusive_queue_is_its_connections_in_its_own_virtual_host() -> None:
    world = world_of()
    here, there = world.open(), world.open(vhost="x")
    for client in (here, there):
        assert client.call(1, "queue.declare", queue="mine", exclusive=True).name == "queue.declare-ok"
    there.connection.lost(world.now)
    world.tick()
    assert "mine" in world.vhost.queues and not world.broker.vhosts["x"].queues


def test_connections_of_a_deleted_one_are_closed_and_others_go_on() -> None:
    world = world_of()
    here, there, again = world.open(), world.open(vhost="x"), world.open(vhost="x")
    for client in (here, there):
        client.call(1, "queue.declare", queue="q")
        client.publish(1, b"m", routing_key="q")
    there.send(1, "basic.consume", queue="q", consumer_tag="c")
    again.call(1, "queue.declare", queue="mine", exclusive=True)
    there.read()
    change(world, NO_X)
    for client in (there, again):
        (close,) = client.read()
        assert (close.name, close["reply_code"], close["reply_text"]) == ("connection.close", 320, GONE)
        client.publish(1, b"too late", routing_key="q")
        client.send(0, "connection.close-ok")
        assert client.closed
    assert here.read() == [] and get(here) == b"m"
    assert any("closed: vhost 'x' is deleted" in line for line in world.logged)
    change(world, X)
    assert not world.broker.vhosts["x"].queues
    world.open(vhost="x").call(1, "queue.declare", queue="q")


def opening(world: World, vhost: str, name: str = "guest", password: str = "guest") -> Raw:
    """A client that has requested the virtual host, and has read up to connection.tune."""
    client = world.connect()
    client.begin_login(name, password)
    client.send(0, "connection.open", virtual_host=vhost)
    return client


def test_one_that_is_not_there_is_refused() -> None:
    world = world_of()
    (close,) = opening(world, "y").read()[-1:]
    assert (close["reply_code"], close["reply_text"]) == (530, "NOT_ALLOWED - vhost 'y' not found")


def test_a_stored_user_opens_only_permitted_virtual_hosts() -> None:
    world = world_of(user(), permission(vhost="x", configure="^a"))
    alice = world.open(user="alice", password="word", vhost="x")
    assert alice.call(1, "queue.declare", queue="a").name == "queue.declare-ok"
    assert alice.call(1, "queue.declare", queue="b")["reply_code"] == 403
    (close,) = opening(world, "/", "alice", "word").read()[-1:]
    assert close["reply_code"] == 530 and "vhost '/'" in close["reply_text"]


class Waits(Hooks):
    answer: Refusal | Hold | None = Hold.HOLD

    def connection_opening(self, connection: ExtensionPeer, *, management: bool) -> Refusal | Hold | None:
        return self.answer


def test_a_node_that_does_not_serve_denies_no_virtual_host() -> None:
    """The node may not know the virtual host yet. A waiting client is accepted once it exists."""
    hooks = Waits()
    world = World(hooks)
    client = opening(world, "x")
    client.read()
    change(world, X)
    hooks.answer = None
    world.pass_time(1)
    assert client.names() == ["connection.open-ok"] and client.connection.vhost.name == "x"
    hooks.answer = Refusal(320, "CONNECTION_FORCED - not here")
    assert opening(world, "none").read()[-1]["reply_code"] == 320
