"""Setting the wall clock neither shortens nor prolongs the life of a message."""

from __future__ import annotations

import pytest

from broker.wall_clock import CORRECTION, WallClock
from tests.broker.amqp091.wire import World

DAY_MS = 86_400_000


def test_small_corrections_are_followed_at_once() -> None:
    clock = WallClock()
    assert clock.follow(10.0, 5_000_000) == 5_000_000
    assert clock.follow(11.0, 5_001_040) == 5_001_040
    assert clock.at(11.5) == 5_001_540


@pytest.mark.parametrize("jump", [DAY_MS, -DAY_MS])
def test_a_jump_is_made_up_for_slowly(jump: int) -> None:
    clock = WallClock()
    clock.follow(10.0, 5_000_000)
    after = clock.follow(20.0, 5_010_000 + jump)
    assert abs(after - 5_010_000) == pytest.approx(10_000 * CORRECTION, abs=1)
    assert clock.follow(20.0, 5_010_000 + jump) == after


def test_it_arrives() -> None:
    clock = WallClock()
    clock.follow(0.0, 0)
    for second in range(1, 200):
        clock.follow(float(second), second * 1000 + 1000)
    assert clock.at(199.0) == 200_000


@pytest.mark.parametrize("jump", [1000, -1000])
def test_a_jump_is_made_up_for_slowly_to_its_end(jump: int) -> None:
    """Otherwise messages from shortly before the end would expire up to 50 ms early or late."""
    clock = WallClock()
    last = clock.follow(0.0, 10_000)
    for tick in range(1, 11_000):
        at = clock.follow(tick / 100, 10_000 + tick * 10 + jump)
        assert 8 <= at - last <= 12
        last = at
    assert last == 10_000 + 109_990 + jump


def test_it_never_goes_back_while_it_makes_up_for_a_jump() -> None:
    clock = WallClock()
    last = clock.follow(0.0, 10_000_000)
    for tick in range(1, 1000):
        at = clock.follow(tick / 100, 10_000_000 + tick * 10 - DAY_MS)
        assert at >= last
        last = at


def test_messages_expire_when_they_would_have_though_the_clock_is_set_back() -> None:
    world = World()
    client = world.open()
    client.call(1, "queue.declare", queue="q", arguments={"x-message-ttl": 1000})
    client.publish(1, b"m", routing_key="q")
    queue = world.vhost.queues["q"]
    for _ in range(9):
        world.now += 0.1
        world.broker.end_tick(world.now, int(world.now * 1000) - DAY_MS)
    assert queue.message_count == 1
    for _ in range(3):
        world.now += 0.1
        world.broker.end_tick(world.now, int(world.now * 1000) - DAY_MS)
    assert queue.message_count == 0
