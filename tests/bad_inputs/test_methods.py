"""Bad inputs 19-25 and 41: what is inside frames (24-26 also in `definitions/test_parse.py`).

Numbers as in docs/reference/bad-inputs.md.
"""

from __future__ import annotations

import pytest

from broker.amqp091.codec.fields import write_longstr, write_shortstr, write_table
from broker.amqp091.codec.frames import PROTOCOL_HEADER, frame
from broker.amqp091.codec.grammar import encode, encode_frame
from broker.peer import Peer
from broker.security.access import Door
from tests.bad_inputs.neighbour import neighbour_unharmed
from tests.broker.amqp091.wire import Raw, Seen, World, extension_frame, message

DECLARE = encode("queue.declare", queue="q")[:-4]


def _nested(depth: int) -> bytes:
    data = write_table({})
    for _ in range(depth):
        body = b"\x01kF" + data
        data = len(body).to_bytes(4, "big") + body
        if len(data) > 15_000:
            break
    return data


TABLES = {
    "longer than its frame": b"\0\0\xff\xff",
    "past its own end": b"\0\0\0\x05\x01aI\0\0\0\1",
    "nested deep": _nested(12_000),
    "nested a little too deep": _nested(65),
    "arrays nested deep": b"\0\0\x3a\x9a\x01a" + b"A\0\0\x3a\0" * 3000,
    "unknown tag": b"\0\0\0\x03\x01a!",
    "no value": b"\0\0\0\x02\x01a",
    "the same key twice": b"\0\0\0\x08" + b"\x01at\x01" * 2,
}


def _connection_closed(client: Raw, code: int) -> Seen:
    close = client.read()[-1]
    assert (close.name, close["reply_code"]) == ("connection.close", code)
    client.world.pass_time(3.1)
    assert client.closed
    return close


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_19_field_tables(table: bytes) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.raw(frame(1, 1, DECLARE + table))
        close = _connection_closed(client, 502)
        assert (close["failed_class"], close["failed_method"]) == (50, 10)
    with neighbour_unharmed(world):
        client = world.open()
        client.call(1, "queue.declare", queue="q")
        client.raw(message(1, b"m", "", "q", properties=b"\x20\0" + table))
        _connection_closed(client, 502)
        assert world.vhost.queues["q"].message_count == 0


def _table(octets: int) -> bytes:
    return write_table({"k": "x" * (octets - 7)})


DECLARES = {
    "queue.declare": (50, 10, b"\0\0\x01q\0"),
    "queue.bind": (50, 20, b"\0\0\x01q\x0aamq.fanout\0\0"),
    "queue.unbind": (50, 50, b"\0\0\x01q\x0aamq.fanout\0"),
    "exchange.declare": (40, 10, b"\0\0\x01x\x06fanout\0"),
    "exchange.bind": (40, 30, b"\0\0\x0aamq.direct\x0aamq.fanout\0\0"),
    "exchange.unbind": (40, 40, b"\0\0\x0aamq.direct\x0aamq.fanout\0\0"),
    "basic.consume": (60, 20, b"\0\0\x01q\x01c\0"),
}


@pytest.mark.parametrize("name", DECLARES)
def test_19_argument_tables_are_limited_and_the_connection_goes_on(name: str) -> None:
    class_id, method_id, words = DECLARES[name]
    method = class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + words
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.call(1, "queue.declare", queue="q")
        client.raw(frame(1, 1, method + _table(16385)))
        (close,) = client.read()
        assert (close.name, close["reply_code"]) == ("channel.close", 406)
        assert close["reply_text"] == (
            "PRECONDITION_FAILED - arguments of 16385 octets are above the maximum of 16384"
        )
        assert (close["failed_class"], close["failed_method"]) == (class_id, method_id)
        client.raw(frame(1, 1, method + _table(16385)))  # while it is being closed, nothing is said of it
        client.send(1, "channel.close-ok")
        assert client.read() == []
        assert client.call(1, "channel.open").name == "channel.open-ok"
        if name != "queue.declare":  # which knows the queue without arguments
            client.raw(frame(1, 1, method + _table(16384)))
            assert client.names() == [name + "-ok"]


def test_19_a_table_that_says_more_than_its_frame_has_is_still_a_fault_of_syntax() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.raw(frame(1, 1, DECLARE + _table(16385)[:-1]))
        _connection_closed(client, 502)


@pytest.mark.parametrize(
    "text", [b"\xffq", b"\x02\xc3\x28", b"\x01\0"], ids=["past the end", "bad UTF-8", "NUL"]
)
def test_20_short_strings(text: bytes) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.raw(frame(1, 1, b"\0\x32\0\x0a\0\0" + text))
        _connection_closed(client, 502)
    with neighbour_unharmed(world):
        client = world.open()
        client.raw(frame(1, 1, b"\0\x3c\0\x28\0\0" + text))
        _connection_closed(client, 502)


def test_20_routing_keys_and_properties_that_are_no_text_are_carried() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.call(1, "queue.declare", queue="q")
        client.call(1, "queue.bind", queue="q", exchange="amq.direct", routing_key="\udcff\0")
        properties = b"\4\0\2\xff\0"
        client.raw(message(1, b"m", "amq.direct", "\udcff\0", properties=properties))
        got = client.call(1, "basic.get", queue="q")
        assert (got["routing_key"], got.header[12:]) == ("\udcff\0", properties)
        for past_the_end in (b"\4\0\2\xff", b"\4\0", b"\4\x80\xff\0\1a"):
            client = world.open()
            client.raw(message(1, b"m", "", "q", properties=past_the_end))
            _connection_closed(client, 502)


@pytest.mark.parametrize("flags", [b"\0\1", b"\0\1" * 4000, b"\0\2", b"\xff\xff"])
def test_21_property_flags_that_never_end(flags: bytes) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.raw(message(1, b"m", "", "q", properties=flags))
        _connection_closed(client, 502)


def _consumer(world: World) -> Raw:
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    client.raw(message(1, b"m", "", "q") * 3)
    client.send(1, "basic.consume", queue="q")
    assert len(client.read()) == 4
    return client


@pytest.mark.parametrize(
    "tags",
    [[(0, False)], [(4, False)], [(4, True)], [(2, False), (2, False)],
     [(2, True), (1, True)], [(2**64 - 1, True)]],
)  # fmt: skip
def test_22_acks_of_what_is_not_outstanding_close_the_channel(tags: list[tuple[int, bool]]) -> None:
    for together in (True, False):
        world = World()
        with neighbour_unharmed(world):
            client = _consumer(world)
            frames = [encode_frame(1, "basic.ack", delivery_tag=t, multiple=m) for t, m in tags]
            for data in [b"".join(frames)] if together else frames:
                client.raw(data)
            (close,) = client.read()
            assert (close.name, close["reply_code"]) == ("channel.close", 406)
            assert close["reply_text"] == f"PRECONDITION_FAILED - unknown delivery tag {tags[-1][0]}"
            assert (close["failed_class"], close["failed_method"]) == (60, 80)
            good = {2: 1 if tags[0] == (2, False) else 2}.get(tags[0][0], 0)
            assert world.vhost.queues["q"].message_count == 3 - good


@pytest.mark.parametrize("name", ["basic.nack", "basic.reject"])
def test_22_nack_and_reject_alike(name: str) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = _consumer(world)
        assert client.call(1, name, delivery_tag=9)["reply_code"] == 406


def test_22_multiple_on_nothing_is_nothing() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.send(1, "basic.ack", delivery_tag=0, multiple=True)
        client.send(1, "basic.nack", delivery_tag=0, multiple=True)
        assert client.read() == []
        client.send(1, "basic.ack", delivery_tag=1, multiple=True)
        assert client.read()[0]["reply_code"] == 406


@pytest.mark.parametrize(
    "response", [b"", b"guest\0guest", b"\0guest", b"\0guest\0guest\0", b"\0\0guest", b"\0\xff\0guest"]
)
def test_23_malformed_plain(response: bytes) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.connect()
        client.raw(PROTOCOL_HEADER)
        client.send(0, "connection.start-ok", mechanism="PLAIN", response=response)
        _connection_closed(client, 502)
        assert not any("guest" in line for line in world.logged if "neighbour" not in line)


def test_23_a_mebibyte_of_sasl_and_an_unknown_mechanism() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.connect()
        client.raw(PROTOCOL_HEADER)
        payload = b"\0\x0a\0\x0b" + write_table({}) + write_shortstr("PLAIN") + write_longstr(b"x" * 2**20)
        client.raw(frame(1, 0, payload))
        _connection_closed(client, 501)
        client = world.connect()
        client.raw(PROTOCOL_HEADER)
        client.send(0, "connection.start-ok", mechanism="GSSAPI", response=b"")
        _connection_closed(client, 503)


def test_25_a_forged_user_id() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.call(1, "queue.declare", queue="q")
        client.raw(message(1, b"m", "", "q", properties=b"\0\x10\x05guest"))
        assert client.read() == []
        client.raw(message(1, b"m", "", "q", properties=b"\0\x10\x04root"))
        (close,) = client.read()
        assert (close.name, close["reply_code"]) == ("channel.close", 406)
        assert world.vhost.queues["q"].message_count == 1


def test_41_an_application_that_claims_to_be_a_peer_or_speaks_the_links_methods() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.connect()
        client.raw(PROTOCOL_HEADER)
        client.send(
            0, "connection.start-ok", mechanism="PLAIN", response=b"\0guest\0guest",
            client_properties={"capabilities": {"understudy.ha-peer": True}},
        )  # fmt: skip
        client.send(0, "connection.tune-ok", channel_max=9, frame_max=4096)
        client.send(0, "connection.open", virtual_host="/")
        _connection_closed(client, 403)
        client = world.open()
        client.raw(extension_frame(1, 10, b"hello"))
        close = _connection_closed(client, 403)
        assert (close["failed_class"], close["failed_method"]) == (250, 10)


PEER = {"capabilities": {"understudy.ha-peer": True}}
OPERATOR = {"capabilities": {"understudy.management": True}}


@pytest.mark.parametrize(
    ("user", "claim", "door", "code", "words"),
    [
        ("guest", PEER, Door.ANY, 403, "'guest' may not be a peer"),
        ("guest", PEER, Door.PEERS, 403, "'guest' may not be a peer"),
        ("ha", {}, Door.ANY, 403, "'ha' is the pair's own"),
        ("ha", {}, Door.PEERS, 403, "'ha' is the pair's own"),
        ("ha", PEER, Door.CLIENTS, 530, "takes no link"),
        ("guest", {}, Door.PEERS, 530, "takes the link of a pair only, and not an application"),
        ("guest", OPERATOR, Door.PEERS, 530, "takes the link of a pair only, and not an operator"),
    ],
)
def test_41_who_is_at_the_wrong_door(
    user: str, claim: dict[str, object], door: Door, code: int, words: str
) -> None:
    """Said to the peer and in the log, by its address and user; never by what it logged in with."""
    world = World()
    with neighbour_unharmed(world):
        client = world.connect(Peer("127.0.0.1", 40999, loopback=True, door=door))
        client.raw(PROTOCOL_HEADER)
        login = b"\0%b\0%b" % (user.encode(), user.encode())
        client.send(0, "connection.start-ok", mechanism="PLAIN", response=login, client_properties=claim)
        client.send(0, "connection.tune-ok", channel_max=9, frame_max=4096)
        client.send(0, "connection.open", virtual_host="/")
        assert words in _connection_closed(client, code)["reply_text"]
        (line,) = [line for line in world.logged if words in line]
        assert line.startswith(f"connection 127.0.0.1:40999: closed with {code}")


def test_41_the_pairs_own_user_manages_and_speaks_no_link_without_saying_so() -> None:
    world = World()
    with neighbour_unharmed(world):
        manager = world.open(user="ha", password="ha", capabilities={"understudy.management": True})
        manager.raw(extension_frame(1, 10, b"hello"))
        close = _connection_closed(manager, 403)
        assert (close["failed_class"], close["failed_method"]) == (250, 10)
