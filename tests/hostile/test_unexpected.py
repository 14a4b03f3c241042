"""A fault of the broker's own, which a peer may cause again and again: one line, and a count."""

from __future__ import annotations

import pytest

from tests.broker.amqp091.wire import World
from tests.builds import PURE_ONLY


@PURE_ONLY
def test_an_unexpected_error_is_one_line_that_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a\nb")

    world = World()
    clients = [world.open() for _ in range(3)]
    monkeypatch.setattr("broker.amqp091.server.connection.ServerConnection._serve_method", broken)
    for client in clients:
        client.send(1, "queue.declare", queue="q")
        assert b"INTERNAL_ERROR" in client.inbox
    told = [line for line in world.logged if "unexpected error" in line]
    assert len(told) == 1 and "\n" not in told[0]
    assert "KeyError('a\\nb')" in told[0] and told[0].split(" > ")[-1].startswith("test_unexpected.py:")
    world.pass_time(1.1)
    assert "(2 of the kind in the last second)" in world.logged[-1]
