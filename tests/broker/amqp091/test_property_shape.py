"""Lists that a shape accepts are those that `check` accepts with the same result; and messages of one shape
are taken in any pieces."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.amqp091.codec.fields import write_shortstr, write_table
from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.codec.properties import Checked, check
from broker.amqp091.codec.property_shape import KEPT, Shapes
from broker.errors import AmqpError
from broker.model.queue.direct_reply import REPLY_TO
from tests.broker.amqp091.test_codec import short_text, tables
from tests.broker.amqp091.wire import World, content

octet = st.integers(0, 255).map(lambda n: bytes((n,)))
replies = short_text | st.sampled_from((REPLY_TO, REPLY_TO.upper()))
VALUES = (
    short_text.map(write_shortstr), short_text.map(write_shortstr), tables.map(write_table), octet, octet,
    short_text.map(write_shortstr), replies.map(write_shortstr),
    st.integers(0, 2000).map(lambda n: write_shortstr(str(n))), short_text.map(write_shortstr),
    st.binary(min_size=8, max_size=8), *(short_text.map(write_shortstr),) * 4,
)  # fmt: skip
"""Of each property, in the order of the flags."""


@st.composite
def property_lists(draw: st.DrawFn) -> bytes:
    there = [draw(st.booleans()) for _ in VALUES]
    flags = sum(1 << 15 - n for n, one in enumerate(there) if one)
    values = [draw(value) for value, one in zip(VALUES, there, strict=True) if one]
    return flags.to_bytes(2, "big") + b"".join(values)


@st.composite
def changed(draw: st.DrawFn) -> list[bytes]:
    """A list, and others that differ from it in a few octets, most of them invalid."""
    data = draw(property_lists())
    lists = [data]
    for _ in range(draw(st.integers(1, 6))):
        other = bytearray(draw(st.sampled_from(lists)))
        at = draw(st.integers(2, max(2, len(other) - 1)))
        how = draw(st.sampled_from(("set", "insert", "remove", "cut")))
        if how == "set" and at < len(other):
            other[at] = draw(st.integers(0, 255))
        elif how == "insert":
            other[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif how == "remove":
            del other[at : at + draw(st.integers(1, 4))]
        else:
            del other[at:]
        lists.append(bytes(other))
    return lists


def result(data: bytes) -> Checked | None:
    try:
        return check(data)
    except AmqpError:
        return None


def found(shapes: Shapes, data: bytes) -> Checked | None:
    """The same from the shapes, which learn it. `data` stands among other octets, as in a frame."""
    known = shapes.find(b"\0" * 7 + data + b"\xff" * 9, 7, 7 + len(data))
    if known is None and (known := result(data)) is not None:
        shapes.learn(data, known)
    return known


def valued(priority: int, expiration: str, user_id: str = "guest") -> bytes:
    """A list of the properties whose values the broker itself needs."""
    return b"\x09\x10" + bytes((priority,)) + write_shortstr(expiration) + write_shortstr(user_id)


def replying(name: str, correlation_id: str = "1") -> bytes:
    return b"\x06\0" + write_shortstr(correlation_id) + write_shortstr(name)


@given(changed() | st.lists(property_lists(), max_size=8))
@example(
    [*(b"\x20\0" + write_table({"a": text}) for text in ("x", "yz")), b"\x20\0\0\0\0\x08\x01aS\0\0\0\x01xy"]
)
@example([*(b"\xa0\0" + write_shortstr(t) + write_table({}) for t in ("x", "yz")), b"\xa0\0\x05\0\0\0\0"])
@example([b"\x20\0" + write_table({"a": [1, {"b": ""}]}), b"\x20\0" + write_table({"a": [1, {"b": "abc"}]})])
@example([valued(5, "10"), valued(5, "20"), valued(6, "10"), valued(5, "10", "other")])
@example([replying("q"), replying("other"), replying("third"), replying(REPLY_TO), replying("q")])
@example([replying(REPLY_TO.upper()), replying(REPLY_TO), replying(REPLY_TO, "22"), replying("q", "22")])
def test_shapes_accept_what_a_check_accepts_and_nothing_else(lists: list[bytes]) -> None:
    shapes = Shapes()
    for data in (*lists, *lists):
        assert found(shapes, data) == result(data)


def celery(correlation_id: str = "c", **values: Any) -> bytes:
    headers = {"lang": "py", "id": "7", "eta": None, "retries": 0, "timelimit": [None, None], "stamps": {}}
    texts = write_shortstr("application/json"), write_shortstr(correlation_id)
    return b"\xa4\x00" + texts[0] + write_table(headers | values) + texts[1]


def test_a_list_with_other_values_and_lengths_is_known_without_a_check() -> None:
    shapes = Shapes()
    for text in ("a", "bcd", "ef"):
        assert found(shapes, celery(text, id=text)) == Checked(False)
    for text in ("", "a", "g" * 200):
        data = celery(text, id=5 * text, retries=7)
        assert shapes.find(data, 0, len(data)) == Checked(False)
    other = celery(name=1)
    assert shapes.find(other, 0, len(other)) is None


def test_a_connection_knows_several_shapes_and_forgets_the_oldest() -> None:
    shapes = Shapes()
    lists = [celery(**{f"x{n}": n}) for n in range(KEPT + 1)]
    for data in lists:
        for _ in range(4 * KEPT**2):  # it learns less often while nothing matches
            found(shapes, data)
    known = [shapes.find(data, 0, len(data)) is not None for data in lists]
    assert known == [False, *[True] * KEPT]


def test_lists_that_are_all_different_are_seldom_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[Shapes] = []
    shapes = Shapes()
    for n in range(1000):
        before = shapes.latest
        found(shapes, celery(**{f"x{n}": n}))
        if shapes.latest is not before:
            learned.append(shapes)
    assert len(learned) < 12


@pytest.mark.parametrize("seed", range(8))
def test_messages_of_one_shape_arrive_as_published_in_any_pieces(seed: int) -> None:
    randomly = random.Random(seed)
    world = World()
    publisher, consumer = world.open(), world.open()
    publisher.call(1, "queue.declare", queue="q")
    consumer.send(1, "basic.consume", queue="q", consumer_tag="c", no_ack=True)
    consumer.read()
    stream, bodies = b"", []
    for n in range(60):
        body = bytes(randomly.choices((0, 0xCE, 0x3C), k=randomly.choice((0, 1, 7, 300))))
        key = "q" if randomly.random() < 0.9 else "nowhere"
        if key == "q":
            bodies.append(body)
        properties = celery(id="i" * randomly.randrange(3), retries=n)
        stream += encode_frame(1, "basic.publish", routing_key=key) + content(1, body, properties=properties)
    while stream:
        size = randomly.choice((1, 20, 400, 4000))
        publisher.connection.receive(stream[:size], world.now)
        stream = stream[size:]
        if randomly.random() < 0.5:
            world.tick()
    world.tick()
    assert [seen.body for seen in consumer.read() if seen.name == "basic.deliver"] == bodies
