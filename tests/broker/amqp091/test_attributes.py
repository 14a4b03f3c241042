"""The message properties that belong to a run: persistence, expiration, priority."""

from __future__ import annotations

import pytest

from broker.model.history.batch import Batch
from broker.model.history.records import EnqueueRun, Envelope
from tests.broker.amqp091.wire import World, encode_frame, message

Attributes = tuple[bool, int | None, int]


def properties(mode: int = 0, priority: int = 0, expiration: str = "") -> bytes:
    flags = (mode > 0) << 12 | (priority > 0) << 11 | bool(expiration) << 8
    data = flags.to_bytes(2, "big")
    data += bytes([mode]) * (mode > 0) + bytes([priority]) * (priority > 0)
    return data + (bytes([len(expiration)]) + expiration.encode() if expiration else b"")


class Runs:
    """A sink that keeps the runs."""

    def __init__(self, world: World) -> None:
        self.runs: list[EnqueueRun] = []
        world.vhost.history.sinks.append(self)
        world.vhost.history.ledger_wanted = True

    def batch(self, batch: Batch) -> None:
        self.runs += [record for record in batch.records if isinstance(record, EnqueueRun)]

    def attributes(self) -> list[tuple[Attributes, int]]:
        def of(envelope: Envelope) -> Attributes:
            return envelope.persistent, envelope.expiration, envelope.priority

        return [(of(run.envelope), run.count) for run in self.runs]


def test_a_run_ends_where_expiration_or_priority_change() -> None:
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    kept = Runs(world)
    kinds = [
        properties(),
        properties(expiration="100"),
        properties(expiration="100"),
        properties(expiration="200"),
        properties(2, 3, "200"),
        properties(2, 3, "200"),
        properties(2, 4, "200"),
        properties(),
    ]
    client.raw(b"".join(message(1, b"m", routing_key="q", properties=kind) for kind in kinds))
    assert kept.attributes() == [
        ((False, None, 0), 1),
        ((False, 100, 0), 2),
        ((False, 200, 0), 1),
        ((True, 200, 3), 2),
        ((True, 200, 4), 1),
        ((False, None, 0), 1),
    ]


@pytest.mark.parametrize("size", [1, 200_000])
def test_input_after_a_run_that_closes_its_channel_is_ignored(size: int) -> None:
    """Messages gathered from the same read are not published to another queue, nor at all."""
    world = World()
    client = world.open()
    client.call(2, "channel.open")
    client.call(1, "queue.declare", queue="q")
    client.call(1, "confirm.select")
    nowhere = [message(1, b"lost", "none", "k", properties=properties(mode=mode)) for mode in (2, 1, 1)]
    client.raw(b"".join(nowhere) + message(1, b"z" * size, "", "q"))
    assert client.names() == ["channel.close"]
    client.raw(message(2, b"good", "", "q") + encode_frame(2, "basic.get", queue="q", no_ack=True))
    (got,) = client.read()
    assert (got.body, got["message_count"]) == (b"good", 0)


def test_priority_zero_is_no_priority() -> None:
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    kept = Runs(world)
    zero = b"\x08\x00\x00"
    for kind in (properties(), zero, properties()):
        client.raw(message(1, b"m", routing_key="q", properties=kind))
    assert [attributes for attributes, _ in kept.attributes()] == [(False, None, 0)] * 3


@pytest.mark.parametrize("text", ["-1", "1.5", "soon", "315360000001", "0x10", " 5", "9" * 200, "\u0663"])
def test_an_expiration_that_is_no_number_closes_the_channel_only(text: str) -> None:
    """Bad input 26."""
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    long = bytes([len(text.encode())]) + text.encode()
    client.publish(1, b"m", routing_key="q", properties=b"\x01\0" + long)
    (closed,) = client.read()
    assert (closed.name, closed["reply_code"]) == ("channel.close", 406)
    assert "invalid expiration" in closed["reply_text"]
    assert world.vhost.queues["q"].message_count == 0
    assert client.call(2, "channel.open").name == "channel.open-ok"


def test_an_invalid_expiration_after_a_valid_one_closes_only_the_channel() -> None:
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="q")
    client.raw(
        b"".join(
            message(1, b"m", routing_key="q", properties=properties(expiration=text))
            for text in ("1000", "1000", "soon", "1000")
        )
    )
    assert client.names() == ["channel.close"]
    assert world.vhost.queues["q"].message_count == 2
    assert client.call(2, "channel.open").name == "channel.open-ok"
