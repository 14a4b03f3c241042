"""The hooks see a large AMQP 1.0 message while it arrives, except its beginning. For 0-9-1:
`tests/ha/replication/test_contents.py`."""

from __future__ import annotations

import pytest

pytest.importorskip("proton")

from broker.hooks import Hooks, LargeMessage, Sender
from tests.bad_inputs.test_amqp10 import BEGIN, attach, detach, opened, transfer
from tests.broker.amqp091.wire import World
from tests.broker.amqp10.wire import Octets, world10

SUBJECT = b"\0Ss\xc0\x09\4@@@\xa1\3abc"
"""Properties with a subject."""


class Shown(Hooks):
    """The pieces of the last large message that were shown, and how it ended."""

    def __init__(self) -> None:
        self.pieces = b""
        self.said: list[tuple[bytes, int] | str] = []

    def large_message(self, connection: Sender) -> LargeMessage | None:
        self.pieces, self.said = b"", []
        return self

    def piece(self, octets: bytes | bytearray) -> None:
        self.pieces += octets

    def whole(self, raw: bytes, at: int) -> None:
        self.said.append((raw, at))

    def dropped(self) -> None:
        self.said.append("dropped")


def _sending(hooks: Shown) -> tuple[World, Octets]:
    world = world10(hooks, large_message=20)
    world.open().call(1, "queue.declare", queue="q")
    return world, opened(world, BEGIN, attach())


def test_its_pieces_are_in_the_published_message() -> None:
    hooks = Shown()
    world, client = _sending(hooks)
    client.raw(transfer(SUBJECT + b"\0Su\xb0\0\0\0\x14" + b"0123", more=True))
    assert not hooks.pieces, "that much may be what is stored in another form"
    client.raw(transfer(b"456789", more=True))
    client.raw(transfer(b"abcdefghij"))
    assert hooks.pieces == b"456789abcdefghij"
    (raw, at), _ = hooks.said
    assert raw[at : at + len(hooks.pieces)] == hooks.pieces
    (entry,) = world.vhost.queues["q"].held_entries()
    assert entry[2] is raw


@pytest.mark.parametrize("how", ["aborted", "detached", "lost", "no message", "all head"])
def test_an_unpublished_or_changed_message_is_dropped(how: str) -> None:
    hooks = Shown()
    world, client = _sending(hooks)
    head = b"\0Ss\xc0\x41\4@@@\xa1\x3b" + bytes(20)
    client.raw(transfer(head if how == "all head" else b"\0Su\xb0\0\0\0\x40" + bytes(20), more=True))
    client.raw(transfer(b"ab", more=True))
    match how:
        case "aborted":
            client.raw(transfer(b"", aborted=True))
        case "detached":
            client.raw(detach())
        case "lost":
            client.connection.lost(world.now)
        case "no message":
            client.raw(transfer(b"too short"))
        case "all head":
            client.raw(transfer(bytes(37) + b"\0Su\xa0\1a"))
            assert world.vhost.queues["q"].message_count == 1
    assert hooks.pieces.startswith(b"ab")
    assert hooks.said == ["dropped"]
