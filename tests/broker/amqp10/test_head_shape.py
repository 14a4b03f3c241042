"""Messages that are converted by the shape of earlier ones: the result is that of decoding them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.amqp10.conversion import Incoming, incoming
from broker.amqp10.head_shape import KEPT, HeadShapes
from tests.broker.amqp10.messages import payload
from understudy.shared.amqp10.types import (
    Byte,
    DecodeError,
    Int,
    Long,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
)

_VALUES: tuple[tuple[Any, ...], ...] = (
    ("", "a", "é", "long" * 60, "s" * 300), (Long(0), Long(-1), Long(1 << 40)), (Int(5), Int(-70_000)),
    (UInt(0), UInt(7), UInt(70_000)), (ULong(0), ULong(9), ULong((1 << 63) + 1)), (True, False),
    (Timestamp(1_700_000_000_999), Timestamp(-1)), (1.5, -2.25), (b"", b"\xff" * 9),
    (Uuid(b"u" * 16), Uuid(b"v" * 16)), (UByte(1), UByte(200)), (Byte(-1),), (UShort(9),), (None,),
)  # fmt: skip
_IDS: tuple[tuple[Any, ...], ...] = ((None,), *_VALUES[:1], _VALUES[4], _VALUES[9], (b"octets", b""))
_KEYS = ("order", "CC", "x-death", "x-mine", "x-message-id", "z\0", "", "schlüssel", "k" * 250)


def _kinds(chance: random.Random) -> list[bytes]:
    """Messages with the same fields and keys, of the same types in most cases."""
    keys = chance.sample(_KEYS, chance.randrange(6))
    values = [chance.choice(_VALUES) for _ in keys]
    message, correlation = chance.choice(_IDS), chance.choice(_IDS)
    rest = [chance.random() < 0.5 for _ in range(7)]
    made = []
    for n in range(8):
        fields: list[Any] = [
            chance.choice(message), b"me" if rest[0] else None, f"q{n}" if rest[1] else None,
            f"s{n}" if rest[2] else None, "é" * n if rest[3] else None, chance.choice(correlation),
            Symbol("a/b") if rest[4] else None, None, Timestamp(n) if rest[5] else None,
            chance.choice(_VALUES[6]) if rest[6] else None, f"g{n}", UInt(n), "r",
        ]  # fmt: skip
        made.append(
            payload(
                header=[rest[0], UByte(3), UInt(9) if rest[1] else None] if rest[2] else None,
                annotations={Symbol("x-mine"): 1} if rest[4] else None,
                properties=fields[: 13 if rest[3] else 7],
                application={key: chance.choice(of) for key, of in zip(keys, values, strict=True)},
                body=b"\0\x53\x75\xa0%b" % bytes((n,)) + b"b" * n
                if rest[5]
                else b"\0\x53\x77\xa1\x02\xc3\xa9",
            )
        )
    return made


def _changed(chance: random.Random, data: bytes) -> bytes:
    """The same with an octet changed, removed or added."""
    at, octet = chance.randrange(len(data)), bytes((chance.choice((0x40, 0x44, 0x53, 0xA1, 0x80, 255, 1)),))
    return data[:at] + chance.choice((octet, b"", octet + data[at : at + 1])) + data[at + 1 :]


def _result(data: bytes, shapes: HeadShapes | None) -> Incoming | str:
    try:
        return incoming(data, shapes)
    except DecodeError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(60))
def test_a_shape_gives_what_decoding_gives_also_for_damaged_messages(seed: int) -> None:
    chance, shapes = random.Random(seed), HeadShapes()
    for data in _kinds(chance):
        for tried in (data, *(_changed(chance, data) for _ in range(6))):
            assert _result(tried, shapes) == _result(tried, None)


def test_a_message_of_the_same_shape_is_not_decoded() -> None:
    shapes = HeadShapes()
    for n in (5, 1000):
        data = payload(properties=[f"id-{n}"], application={"order": n, "of": "x" * (n % 9), "paid": n > 5})
        found = shapes.find(data)
        assert (found is None) == (n == 5)
        assert incoming(data, shapes) == incoming(data)


def test_a_connection_keeps_few_shapes_and_learns_ever_less_from_messages_that_are_all_different() -> None:
    shapes, most = HeadShapes(), 0
    for n in range(200):
        incoming(payload(application={f"key-{n}": "x"}), shapes)
        most = max(most, shapes.octets)
    assert 0 < shapes.octets <= most < KEPT * 4000
    known = payload(application={"key-150": "y"})
    assert shapes.find(known) is None
