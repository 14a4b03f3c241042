"""Bad inputs 24-26: patterns, forged headers and arguments. Numbers as in docs/reference/bad-inputs.md."""

from __future__ import annotations

import struct
import time

import pytest

from broker.amqp091.codec.fields import Timestamp, read_table, write_longstr, write_shortstr, write_table
from broker.amqp091.codec.frames import frame
from broker.amqp091.codec.grammar import encode
from broker.amqp091.codec.properties import HEADERS
from tests.bad_inputs.neighbour import neighbour_unharmed
from tests.broker.amqp091.wire import Raw, Seen, World, message

ENDLESS = [
    ".".join(["#"] * 127),
    ".".join(["#", "*"] * 63),
    ".".join(["#", "a"] * 63),
    ".".join(["*", "#"] * 63),
    ".".join(["a", "#", "*", "#"] * 31),
    ".".join(["#", "a", "#", "b"] * 31),
    "#." * 60 + "never",
    "." * 254,
]
KEYS = [".".join(["a"] * 127), ".".join(["a", "b"] * 63), "." * 255, "a" * 255, "#.#.#", "*"]


def test_24_patterns_and_keys_of_many_words() -> None:
    """Distinct keys, so that no memo helps; time of the process, with much room: backtracking would take
    until the end of the world."""
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        client.call(1, "queue.declare", queue="q")
        for pattern in ENDLESS:
            for end in ("", ".x", ".*"):
                key = (pattern + end)[:255]
                assert client.call(1, "queue.bind", queue="q", exchange="amq.topic", routing_key=key)
        client.call(1, "confirm.select")
        began = time.process_time()
        for number in range(20):
            for key in KEYS:
                distinct = f"{number}.{key}"[:255]
                client.raw(message(1, b"m", "amq.topic", distinct))
        assert set(client.names()) == {"basic.ack"}
        assert time.process_time() - began < 20
        # All of them at once: what each pattern takes, it takes once.
        assert world.vhost.queues["q"].message_count == 20 * len(KEYS)


def _closed(client: Raw) -> Seen:
    (close,) = client.read()
    assert (close.name, close["reply_code"]) == ("channel.close", 406)
    return close


FORGED_DEATHS = {
    "no list": "x",
    "of no tables": [1, None, "x"],
    "of wrong types": [{"queue": 1, "reason": [], "count": "many", "time": "now"}],
    "negative": [{"queue": "q", "reason": "expired", "count": -1, "time": Timestamp(0), "routing-keys": []}],
    "of a thousand": [{"queue": f"{n}", "reason": "rejected", "count": 2**62} for n in range(1000)],
}


@pytest.mark.parametrize("forged", FORGED_DEATHS.values(), ids=FORGED_DEATHS.keys())
def test_25_forged_headers_and_reply_to_are_carried_as_they_are(forged: object) -> None:
    world = World()
    table = write_table({"x-death": forged, "x-first-death-queue": 5, "x-delivery-count": -1})
    reply_to = write_shortstr("amq.rabbitmq.reply-to.forged")
    with neighbour_unharmed(world):
        client = world.open()
        client.call(1, "queue.declare", queue="q")
        flags = (HEADERS | 1 << 9).to_bytes(2, "big")
        client.raw(message(1, b"m", "", "q", properties=flags + table + reply_to))
        seen = client.call(1, "basic.get", queue="q", no_ack=True)
        assert (seen.name, seen.header[12:]) == ("basic.get-ok", flags + table + reply_to)


@pytest.mark.parametrize("forged", FORGED_DEATHS.values(), ids=FORGED_DEATHS.keys())
def test_25_a_forged_history_of_deaths_harms_no_dead_letter(forged: object) -> None:
    world = World()
    table = write_table({"x-death": forged, "x-first-death-queue": 5, "mine": 1})
    with neighbour_unharmed(world):
        client = world.open()
        client.call(1, "queue.declare", queue="dead")
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-max-length": 0}
        client.call(1, "queue.declare", queue="q", arguments=letters)
        client.raw(message(1, b"m", "", "q", properties=HEADERS.to_bytes(2, "big") + table))
        seen = client.call(1, "basic.get", queue="dead", no_ack=True)
        assert len(seen.header) < 40_000
        headers, end = read_table(seen.header, 14)
        assert end == len(seen.header)
        newest = headers["x-death"][0]
        assert (newest["queue"], newest["reason"], newest["count"]) == ("q", "maxlen", 1)
        assert (headers["mine"], headers["x-first-death-queue"]) == (1, "q")


NUMBERS = ("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority")
NO_NUMBERS = {
    "bool": b"t\x01", "negative b": b"b\xff", "negative s": b"s\xff\xff", "negative I": b"I\xff\xff\xff\xff",
    "negative l": b"l" + b"\xff" * 8, "L above 63 bits": b"L" + b"\xff" * 8, "f": b"f\x3f\x80\0\0",
    "d": b"d" + struct.pack(">d", 1), "D": b"D\0\0\0\0\x01", "S": b"S\0\0\0\x011", "x": b"x\0\0\0\x011",
    "S of no text": b"S\0\0\0\x01\xff", "A": b"A\0\0\0\x02b\1", "F": b"F\0\0\0\0", "V": b"V",
    "T": b"T" + bytes(7) + b"\1",
}  # fmt: skip
NUMBERS_OF_ANY_WIDTH = [
    b"b\1", b"B\1", b"s\0\1", b"u\0\1", b"I\0\0\0\1", b"i\0\0\0\1", b"l" + bytes(7) + b"\1",
    b"L" + bytes(7) + b"\1",
]  # fmt: skip
NO_TEXTS = {tag: value for tag, value in NO_NUMBERS.items() if tag != "S"}


def declare(client: Raw, method: str, name: str, value: bytes) -> None:
    """With one argument whose value is these octets."""
    if method == "queue.declare":
        head = encode(method, queue="new")[:-4]
    else:
        head = encode(method, exchange="new", type="direct")[:-4]
    client.raw(frame(1, 1, head + write_longstr(write_shortstr(name) + value)))


@pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS.keys())
@pytest.mark.parametrize("name", NUMBERS)
def test_26_a_number_of_another_type(name: str, value: bytes) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        declare(client, "queue.declare", name, value)
        close = _closed(client)
        assert f"invalid arg '{name}' for queue 'new' in vhost '/': " in close["reply_text"]
        assert (close["failed_class"], close["failed_method"]) == (50, 10)
        assert "new" not in world.vhost.queues


@pytest.mark.parametrize("value", NUMBERS_OF_ANY_WIDTH, ids=lambda v: chr(v[0]))
@pytest.mark.parametrize("name", NUMBERS)
def test_26_integers_of_any_width_are_numbers(name: str, value: bytes) -> None:
    world = World()
    client = world.open()
    declare(client, "queue.declare", name, value)
    assert client.names() == ["queue.declare-ok"]


TEXTS = (
    ("queue.declare", "x-dead-letter-exchange"),
    ("queue.declare", "x-overflow"),
    ("queue.declare", "x-queue-type"),
    ("queue.declare", "x-queue-mode"),
    ("queue.declare", "x-replicate"),
    ("exchange.declare", "alternate-exchange"),
    ("exchange.declare", "x-replicate"),
)


@pytest.mark.parametrize("value", NO_TEXTS.values(), ids=NO_TEXTS.keys())
@pytest.mark.parametrize(("method", "name"), TEXTS)
def test_26_a_text_of_another_type(method: str, name: str, value: bytes) -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        declare(client, method, name, value)
        assert f"'{name}'" in _closed(client)["reply_text"]
        assert "new" not in world.vhost.queues and "new" not in world.vhost.exchanges


def test_26_a_text_without_end_does_not_fill_the_answer() -> None:
    world = World()
    with neighbour_unharmed(world):
        client = world.open()
        declare(client, "queue.declare", "x-queue-type", b"S" + write_longstr("y" * 100_000))
        assert len(_closed(client)["reply_text"]) < 255
