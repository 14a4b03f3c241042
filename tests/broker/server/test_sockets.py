"""How much a socket reads at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.security.access import Door
from broker.server.sockets import LARGE_READ_SIZE, READ_SIZE, Inbound


def test_a_full_read_is_followed_by_a_larger_one() -> None:
    heard: list[int] = []
    buffer = memoryview(bytearray(LARGE_READ_SIZE))
    owner: Any = SimpleNamespace(
        buffer=buffer, small_buffer=buffer[:READ_SIZE], tick_soon=lambda: None, inbound={}, outbound={}
    )
    client: Any = SimpleNamespace(
        let_in=True,
        sends_much=False,
        only_acked=False,
        successor=None,
        receive=lambda data, now: heard.append(len(data)),
    )
    socket = Inbound(owner, Door.ANY, None)
    socket.connection = client
    sizes = []
    for octets in (READ_SIZE - 1, READ_SIZE, LARGE_READ_SIZE, 1, 1):
        sizes.append(len(socket.get_buffer(-1)))
        socket.buffer_updated(octets)
    assert heard == [READ_SIZE - 1, READ_SIZE, LARGE_READ_SIZE, 1, 1]
    assert sizes == [READ_SIZE, READ_SIZE, LARGE_READ_SIZE, LARGE_READ_SIZE, READ_SIZE]
