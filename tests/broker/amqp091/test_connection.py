"""The life of a connection: handshake, heartbeats, close, the hooks, the extension class, memory alarm."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.codec.frames import PROTOCOL_HEADER
from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.server.login import parse_amqplain, parse_plain
from broker.errors import SyntaxError_
from broker.hooks import ExtensionPeer, Hold, Hooks, Refusal
from broker.peer import Peer
from broker.security.authenticator import Authenticator, hash_password
from broker.security.identity import User, default_users
from tests.broker.amqp091.wire import LOOPBACK, OUTSIDE, World, extension_frame, message
from tests.simulation.harness.machines.virtual_overflow import VirtualOverflow


def test_start_offers_the_same_as_rabbitmq() -> None:
    world = World(name="node-a")
    client = world.connect()
    client.raw(PROTOCOL_HEADER)
    (start,) = client.read()
    assert (start["version_major"], start["version_minor"], start["mechanisms"]) == (0, 9, b"PLAIN AMQPLAIN")
    capabilities = start["server_properties"]["capabilities"]
    assert {name for name, on in capabilities.items() if on} == {
        "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
        "connection.blocked", "authentication_failure_close", "per_consumer_qos",
            "consumer_priorities", "direct_reply_to",
    }  # fmt: skip
    assert start["server_properties"]["cluster_name"] == "node-a"


def test_tune_and_open() -> None:
    world = World()
    client = world.connect()
    client.raw(PROTOCOL_HEADER)
    client.send(0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0guest")
    tune = client.read()[1]
    assert (tune["channel_max"], tune["frame_max"], tune["heartbeat"]) == (2047, 131072, 60)


@pytest.mark.parametrize("capable", [True, False])
def test_a_wrong_password_is_refused(capable: bool) -> None:
    world = World()
    client = world.connect()
    client.raw(PROTOCOL_HEADER)
    client.send(
        0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0secret!",
        client_properties={"capabilities": {"authentication_failure_close": capable}},
    )  # fmt: skip
    seen = client.read()[1:]
    if capable:
        assert (seen[0]["reply_code"], seen[0]["reply_text"]) == (
            403,
            "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the "
            "broker logfile.",
        )
        assert [line.partition("login refused ")[2] for line in world.logged] == [
            "for user 'guest': no such user, or a wrong password"
        ]
    else:
        assert seen == []
        assert client.closed
    assert any("'guest'" in line for line in world.logged)
    assert not any("secret!" in line for line in world.logged)


@pytest.mark.parametrize("user", ["guest", "ha"])
def test_the_default_words_are_good_from_loopback_only(user: str) -> None:
    world = World(allow_plain_without_tls=True)
    client = world.connect(OUTSIDE)
    client.raw(PROTOCOL_HEADER)
    client.send(
        0, "connection.start-ok", mechanism="PLAIN", response=b"\0%b\0%b" % (user.encode(), user.encode())
    )
    assert client.closed
    assert f"user {user!r}: this user may log in from loopback only" in world.logged[0]


def test_plain_from_outside_needs_tls_or_the_setting() -> None:
    user = User("app", password_hash=hash_password("word"))
    for allowed in (False, True):
        authenticator = Authenticator([user], allow_plain_without_tls=allowed)
        for _ in range(2):
            try:
                assert authenticator.authenticate("app", "word", loopback=False).name == "app"
                accepted = True
            except Exception:
                accepted = False
            assert accepted is allowed


@pytest.mark.parametrize("login", [
    b"\xff\xfe\0guest\0guest", b"\0\xff\0guest", b"\0guest\0\xff", b"guest\0guest", b"\0\0guest", b"",
])  # fmt: skip
def test_a_plain_response_that_is_not_one_is_a_syntax_error(login: bytes) -> None:
    with pytest.raises(SyntaxError_, match=r"^malformed PLAIN response$"):
        parse_plain(login)
    assert parse_plain(b"\0guest\0word") == parse_plain(b"guest\0guest\0word") == ("guest", "word")


def _entry(key: bytes, value: bytes, kind: bytes = b"S") -> bytes:
    return bytes((len(key),)) + key + kind + len(value).to_bytes(4, "big") + value


@pytest.mark.parametrize("login", [
    b"", b"\0guest\0guest", _entry(b"LOGIN", b"guest"), _entry(b"PASSWORD", b"guest"),
    _entry(b"LOGIN", b"guest") + _entry(b"PASSWORD", b"secret!")[:-1],
    _entry(b"LOGIN", b"guest") + _entry(b"PASSWORD", b"secret!", b"F"),
    _entry(b"LOGIN", b"guest") + _entry(b"PASSWORD", b"\xff"),
    _entry(b"LOGIN", b"") + _entry(b"PASSWORD", b""),
    _entry(b"LOGIN", b"guest") * 2 + _entry(b"PASSWORD", b"secret!"),
])  # fmt: skip
def test_an_amqplain_response_that_is_not_one_is_a_syntax_error(login: bytes) -> None:
    with pytest.raises(SyntaxError_, match=r"^malformed AMQPLAIN response") as raised:
        parse_amqplain(login)
    assert "secret" not in str(raised.value)
    assert parse_amqplain(_entry(b"PASSWORD", b"word") + _entry(b"LOGIN", b"guest")) == ("guest", "word")


def test_remote_amqplain_has_the_rules_of_plain() -> None:
    world = World(users=(User("app", password_hash=hash_password("word")),))
    login = _entry(b"LOGIN", b"app") + _entry(b"PASSWORD", b"word")
    for peer, answer in ((OUTSIDE, "connection.close"), (LOOPBACK, "connection.tune")):
        client = world.connect(peer)
        client.raw(PROTOCOL_HEADER)
        client.send(
            0, "connection.start-ok", mechanism="AMQPLAIN", response=login,
            client_properties={"capabilities": {"authentication_failure_close": True}},
        )  # fmt: skip
        seen = client.read()[-1]
        assert seen.name == answer
        if answer == "connection.close":
            assert "mechanism AMQPLAIN" in seen["reply_text"]


def test_a_new_secret_is_answered_and_an_access_request_gets_ticket_1() -> None:
    """RabbitMQ answers both, so OAuth clients and clients ported from 0-8 can continue."""
    client = World().open()
    answer = client.call(0, "connection.update-secret", new_secret=b"token", reason="expired")
    assert answer.name == "connection.update-secret-ok"
    granted = client.call(1, "access.request", realm="/data", active=True, write=True)
    assert (granted.name, granted["ticket"]) == ("access.request-ok", 1)
    assert client.call(1, "queue.declare", queue="q").name == "queue.declare-ok"


def test_remote_plain_over_tls() -> None:
    """The password has the same rights as without TLS; only the transport is better."""
    over_tls = Peer("192.0.2.7", 40000, loopback=False, tls=True)
    users = (*default_users(), User("app", password_hash=hash_password("word")))
    world = World(users=users)
    assert world.open(user="app", password="word", peer=over_tls).connection.running
    for user in ("guest", "ha"):
        client = world.connect(over_tls)
        client.raw(PROTOCOL_HEADER)
        login = f"\0{user}\0{user}".encode()
        client.send(0, "connection.start-ok", mechanism="PLAIN", response=login)
        assert client.closed


def test_a_client_is_logged_once_on_open_and_once_on_close(caplog: pytest.LogCaptureFixture) -> None:
    """Operators and peers have other kinds of lines. A refused client is logged as refused."""
    caplog.set_level("INFO", "understudy.clients")
    world = World()
    where = "connection 127.0.0.1:40000"
    named = world.open(properties={"connection_name": "n" * 100, "product": "pika"})
    who = f"{where}: open: user 'guest', virtual host '/', client"
    assert caplog.messages == [f"{who} '{'n' * 80}', AMQP 0-9-1"]
    named.send(0, "connection.close", reply_code=200)
    named.connection.lost(world.now)
    assert caplog.messages[1:] == [f"{where}: closed by the client"]
    caplog.clear()
    world.open(properties={"product": "pika"}).connection.lost(world.now)
    assert caplog.messages == [f"{who} 'pika', AMQP 0-9-1", f"{where}: closed by a reset"]
    caplog.clear()
    world.open(capabilities={"understudy.management": True}).connection.lost(world.now)
    world.connect().connection.lost(world.now)
    assert not caplog.messages


def test_repeated_refusals_are_logged_once_a_second() -> None:
    world = World()
    for _ in range(50):
        world.connect().raw(b"GET / HTTP/1.1\r\n")
    lines = [line for line in world.logged if "no AMQP 0-9-1 protocol header" in line]
    assert len(lines) == 1
    world.pass_time(1.5)
    lines = [line for line in world.logged if "no AMQP 0-9-1 protocol header" in line]
    assert len(lines) == 2 and lines[1].endswith("(49 of the kind in the last second)")


def test_heartbeats_both_ways() -> None:
    world = World()
    client = world.open(heartbeat=10)
    for _ in range(10):
        world.pass_time(5)
        assert client.names() == ["heartbeat"]
        client.raw(b"\x08\0\0\0\0\0\0\xce")
    world.pass_time(19.9)
    assert not client.closed
    world.pass_time(0.2)
    assert client.closed
    assert any("no sign of life" in line for line in world.logged)


def test_heartbeats_go_on_after_a_partial_write() -> None:
    """The transport does not report that output below its limit has been sent."""
    world = World()
    client = world.open(heartbeat=10)
    client.connection.written(500_000)
    for _ in range(3):
        world.pass_time(5)
        assert client.names() == ["heartbeat"]
        client.raw(b"\x08\0\0\0\0\0\0\xce")
    client.connection.written(2_000_000)
    client.connection.writable(False)
    world.pass_time(10)
    assert client.names() == []  # to one who does not read they would only pile up
    client.connection.writable(True)
    world.pass_time(5)
    assert client.names() == ["heartbeat"]


def test_a_client_that_stands_still_on_much_unread_output_is_given_up() -> None:
    """A client that does not read is not served, but its input is noticed: its silence counts."""
    world = World(unsent_max=10_000)
    client, living = world.open(heartbeat=10), world.open(heartbeat=10)
    client.call(1, "queue.declare", queue="q")
    client.raw(message(1, b"m" * 60_000, "", "q") * 4)
    for one in (client, living):
        one.reading = False
        one.connection.writable(False)
        one.raw(encode_frame(1, "basic.get", queue="q") * 2)
    for _ in range(4):
        world.pass_time(9)
        living.raw(b"\x08\0\0\0\0\0\0\xce")
    assert client.closed and not living.closed
    assert world.vhost.queues["q"].unacked_count == 1
    living.raw(encode_frame(1, "basic.ack", delivery_tag=1) + message(1, b"x" * 70_000, "", "q") * 4)
    assert living.connection.paused_reading
    living.reading = True
    living.connection.writable(True)
    living.inbox += b"".join(living.connection.take_output())
    world.tick()
    assert not living.connection.paused_reading
    assert [seen.name for seen in living.read()] == ["basic.get-ok"] * 2
    assert world.vhost.queues["q"].message_count == 2 + 4


def test_connections_that_are_gone_are_not_kept_until_their_next_heartbeat() -> None:
    world = World()
    stays = world.open(heartbeat=10)
    for _ in range(500):
        client = world.open(heartbeat=65535)
        client.connection.lost(world.now)
        world.clients.remove(client)
    assert len(world.broker._timers) < 100
    world.pass_time(5)
    assert stays.names() == ["heartbeat"]


def test_no_heartbeats_where_the_client_wants_none() -> None:
    world = World()
    client = world.open(heartbeat=0)
    world.pass_time(10_000)
    assert client.read() == []
    assert not client.closed


def test_a_close_waits_for_its_answer_whatever_the_heartbeat() -> None:
    world = World(close_timeout=3.0)
    client = world.open(heartbeat=2)
    world.broker.close_connections(320, "CONNECTION_FORCED - maintenance", world.now)
    world.pass_time(2.9)
    assert client.names() == ["connection.close"]
    assert not client.closed
    world.pass_time(0.2)
    assert client.closed


def test_close_by_the_client_and_by_the_broker() -> None:
    world = World()
    client = world.open()
    assert client.call(0, "connection.close", reply_code=200).name == "connection.close-ok"
    assert client.closed
    other = world.open()
    world.broker.close_connections(320, "CONNECTION_FORCED - going down", world.now)
    world.tick()
    (close,) = other.read()
    assert (close["reply_code"], close["reply_text"]) == (320, "CONNECTION_FORCED - going down")
    assert not other.closed
    other.send(0, "connection.close-ok")
    assert other.closed


def test_an_unanswered_close_is_bounded() -> None:
    world = World()
    client = world.open()
    client.connection.close(320, "bye")
    world.pass_time(3.1)
    assert client.closed


def test_exclusive_queues_end_with_their_connection() -> None:
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="mine", exclusive=True)
    other = world.open()
    assert other.call(1, "basic.get", queue="mine")["reply_code"] == 405
    client.connection.eof(world.now)
    client.connection.lost(world.now)
    assert "mine" not in world.vhost.queues


class Doorkeeper(Hooks):
    """Hooks that answer as told, and record extension methods."""

    def __init__(self, answer: Refusal | Hold | None) -> None:
        self.answer = answer
        self.heard: list[tuple[str, int, int, bytes]] = []
        self.left: list[bool] = []

    def connection_opening(self, connection: ExtensionPeer, *, management: bool) -> Refusal | Hold | None:
        return None if management else self.answer

    def extension(self, connection: ExtensionPeer, channel: int, method_id: int, payload: bytes) -> None:
        self.heard.append((connection.user, channel, method_id, payload))
        connection.send_extension(channel, method_id + 1, payload[::-1])

    def connection_lost(self, connection: ExtensionPeer, *, clean: bool) -> None:
        self.left.append(clean)


def test_the_hooks_refuse_a_connection_in_their_own_words() -> None:
    world = World(Doorkeeper(Refusal(320, "CONNECTION_FORCED - the primary is 10.0.0.1:5672")))
    client = world.connect()
    client.raw(PROTOCOL_HEADER)
    client.send(0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0guest")
    client.send(0, "connection.tune-ok", channel_max=2047, frame_max=131072)
    client.send(0, "connection.open", virtual_host="/")
    close = client.read()[-1]
    assert (close["reply_code"], close["reply_text"]) == (
        320,
        "CONNECTION_FORCED - the primary is 10.0.0.1:5672",
    )
    assert (close["failed_class"], close["failed_method"]) == (10, 40)


@pytest.mark.parametrize("let_in", [True, False])
def test_the_hooks_hold_a_connection_up_to_the_limit(let_in: bool) -> None:
    doorkeeper = Doorkeeper(Hold.HOLD)
    world = World(doorkeeper)
    client = world.connect()
    client.raw(PROTOCOL_HEADER)
    client.send(0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0guest")
    client.send(0, "connection.tune-ok", channel_max=2047, frame_max=131072)
    client.send(0, "connection.open", virtual_host="/")
    world.pass_time(5)
    assert client.names() == ["connection.start", "connection.tune"]
    if let_in:
        doorkeeper.answer = None
        world.pass_time(0.2)
        assert client.names() == ["connection.open-ok"]
    world.pass_time(6)
    assert client.connection.running is let_in


def test_extension_methods_of_permitted_users_reach_the_hooks() -> None:
    doorkeeper = Doorkeeper(Refusal(320, "no"))
    world = World(doorkeeper)
    peer = world.open(user="ha", password="ha", capabilities={"understudy.ha-peer": True})
    peer.raw(extension_frame(1, 10, b"hello"))
    assert doorkeeper.heard == [("ha", 1, 10, b"hello")]
    assert peer.read()[0]["payload"] == b"olleh"
    operator = world.open(capabilities={"understudy.management": True})
    operator.raw(extension_frame(1, 50, b"{}"))
    assert doorkeeper.heard[-1][:3] == ("guest", 1, 50)
    peer.connection.lost(world.now)
    operator.connection.eof(world.now)
    operator.connection.lost(world.now)
    assert doorkeeper.left == [False, True]


def test_a_management_connection_does_nothing_else() -> None:
    world = World(Doorkeeper(Refusal(320, "no")))
    operator = world.open(capabilities={"understudy.management": True})
    assert operator.call(1, "queue.declare", queue="q")["reply_code"] == 530
    operator = world.open(capabilities={"understudy.management": True})
    operator.raw(message(1, b"m", "", "q"))
    assert operator.read()[0]["reply_code"] == 530


def test_publishers_are_paused_and_notified_above_the_memory_limit() -> None:
    world = World(memory_limit=100_000)
    told = world.open(capabilities={"connection.blocked": True})
    told.call(1, "queue.declare", queue="q")
    consumer = world.open()
    consumer.call(1, "basic.qos", prefetch_count=200)
    told.raw(message(1, b"m" * 1000, "", "q") * 100)
    assert told.names() == ["connection.blocked"]
    assert told.connection.paused_reading
    assert not consumer.connection.paused_reading
    assert consumer.read() == []
    consumer.send(1, "basic.consume", queue="q")
    consumer.send(1, "basic.ack", delivery_tag=0, multiple=True)
    world.pass_time(1.1)
    assert told.names() == ["connection.unblocked"]
    assert not told.connection.paused_reading


def test_the_memory_alarm_clears_when_a_slow_reader_has_read() -> None:
    world = World(memory_limit=100_000)
    publisher, slow = world.open(), world.open(heartbeat=0)
    publisher.call(1, "queue.declare", queue="q")
    slow.connection.written(200_000)
    publisher.raw(message(1, b"m" * 1000, "", "q") * 10)
    assert world.broker.alarms == ["memory"]
    world.pass_time(2.1)
    assert world.broker.alarms == []


def test_publishers_are_paused_and_notified_before_the_disk_is_full() -> None:
    world = World(disk_free_limit=1000)
    free = [5000]
    world.broker.disk.free = lambda: free[0]
    told = world.open(capabilities={"connection.blocked": True})
    consumer = world.open()
    told.call(1, "queue.declare", queue="q")
    told.raw(message(1, b"m" * 500, "", "q"))
    world.pass_time(1.1)
    assert told.names() == [] and not told.connection.paused_reading
    free[0] = 999
    told.raw(message(1, b"m" * 500, "", "q"))  # an eighth of what was left: that is a reason to look at once
    (blocked,) = told.read()
    assert blocked["reason"] == "low on disk"
    assert told.connection.paused_reading and not consumer.connection.paused_reading
    assert any("999 octets free, below the limit of 1000" in line for line in world.logged)
    free[0] = 1050
    world.pass_time(1.1)
    assert told.names() == []
    free[0] = 1101
    world.pass_time(1.1)
    assert told.names() == ["connection.unblocked"]
    assert not told.connection.paused_reading


def test_a_connection_is_unblocked_when_the_last_alarm_ends() -> None:
    world = World(disk_free_limit=1000, memory_limit=100_000)
    free = [10_000]
    world.broker.disk.free = lambda: free[0]
    told = world.open(capabilities={"connection.blocked": True})
    told.call(1, "queue.declare", queue="q")
    free[0] = 1
    told.raw(message(1, b"m" * 1000, "", "q") * 100)
    assert world.broker.block_reason in ("low on disk", "low on memory & disk")
    world.pass_time(1.1)
    assert world.broker.block_reason == "low on memory & disk"
    told.read()
    free[0] = 10_000
    world.pass_time(1.1)
    assert told.names() == [] and told.connection.paused_reading
    assert world.broker.block_reason == "low on memory"


def test_publishers_wait_for_a_slow_overflow_without_connection_blocked() -> None:
    overflow = VirtualOverflow()
    world = World(overflow=overflow)
    publisher = world.open(capabilities={"connection.blocked": True})
    consumer = world.open()
    publisher.call(1, "queue.declare", queue="q")
    publisher.raw(message(1, b"m", "", "q"))
    overflow.behind = True
    world.pass_time(0.2)
    assert publisher.connection.paused_reading and not consumer.connection.paused_reading
    late = world.open()
    late.raw(message(1, b"m", "", "q"))
    assert late.connection.paused_reading
    overflow.behind = False
    world.pass_time(0.2)
    assert not publisher.connection.paused_reading and not late.connection.paused_reading
    assert publisher.names() == []


def test_a_disk_that_does_not_tell_how_full_it_is_raises_no_alarm() -> None:
    def broken() -> int:
        raise OSError(5, "Input/output error")

    world = World(disk_free_limit=1000)
    world.broker.disk.free = broken
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    world.pass_time(1.1)
    assert not world.broker.blocked


def test_a_producers_name_and_tags_go_into_history() -> None:
    world = World()
    world.vhost.history.ledger_wanted = True
    runs: list[Any] = []

    class Sink:
        def batch(self, batch: object) -> None:
            runs.extend(getattr(batch, "records", []))

    world.broker.sinks.append(Sink())
    client = world.open(properties={"producer": "p1.0"})
    client.call(1, "queue.declare", queue="q")
    client.call(1, "confirm.select")
    client.raw(message(1, b"a", "", "q") * 3 + message(1, b"b", "", "none"))
    noted = [(r.producer, getattr(r, "producer_first", 4)) for r in runs if hasattr(r, "producer")]
    assert noted == [("p1.0/1", 1), ("p1.0/1", 4)]


def test_more_is_read_at_once_from_a_client_that_sends_large_messages() -> None:
    client = World().open()
    client.call(1, "queue.declare", queue="q")
    for size, much in ((100, False), (9_000, True), (9_000, True)):
        client.publish(1, b"x" * size, routing_key="q")
        assert client.connection.sends_much is much, size
    client, large = World().open(), message(1, b"x" * 300_000, "", "q")
    client.raw(large[:40_000])
    assert client.connection.sends_much, "most of a frame has come"
    client.raw(large[40_000:150_000])
    assert client.connection.sends_much, "a frame of three has come"
