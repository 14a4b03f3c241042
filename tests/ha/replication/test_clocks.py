"""Wall clocks that differ: messages live as long as they should, whoever serves, and people are told."""

from __future__ import annotations

import pytest

from ha.core import codes
from tests.ha.pair import Host, Pair

HOURS = 3_600_000
TTL = 60_000


def serving(error: int) -> tuple[Pair, Host, Host]:
    """A primary with messages of a minute; its backup's clock is wrong by `error` milliseconds."""
    pair = Pair()
    pair.hosts[1].wall_error = error
    pair.up()
    a, b = pair.hosts
    publish_three(pair, a)
    return pair, a, b


def publish_three(pair: Pair, primary: Host) -> None:
    pair.declare(primary, "q", arguments={"x-message-ttl": TTL})
    position = pair.publish(primary, "q", "abc")
    pair.until(lambda: pair.confirmed(primary, position))


def fail_over(pair: Pair, dying: Host, new_primary: Host, **how: bool) -> None:
    pair.kill(dying)
    answer = pair.ask(new_primary, "promote", **how)
    assert answer["ok"], answer
    pair.until(lambda: new_primary.running.vhosts.serving)


def failed_over(error: int) -> tuple[Pair, Host, Host]:
    """The same, five seconds after; the primary has died, and the backup is promoted."""
    pair, a, b = serving(error)
    pair.run(5)
    fail_over(pair, a, b)
    return pair, a, b


def live_for(pair: Pair, primary: Host, seconds: float) -> None:
    """The three messages are there until then, within five seconds."""
    queue = primary.running.vhost.queues["q"]
    pair.run(seconds - 5)
    assert queue.message_count == 3
    pair.run(10)
    assert not queue.message_count


@pytest.mark.parametrize("error", [3 * HOURS, -3 * HOURS, 5000, 0])
def test_a_new_primary_with_another_clock_keeps_the_ttl(error: int) -> None:
    pair, _, b = failed_over(error)
    live_for(pair, b, TTL / 1000 - 5)


def test_so_does_the_next_one_whose_clock_is_right() -> None:
    """What the second primary dates by is what the first one did, made good by a hundredth."""
    pair, a, b = failed_over(3 * HOURS)
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    pair.run(15)
    pair.publish(b, "q", "d")
    pair.run(5)
    pair.kill(b)
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: a.running.vhosts.serving)
    pair.run(40)
    assert a.running.vhost.queues["q"].message_count == 1
    pair.run(25)
    assert not a.running.vhost.queues["q"].message_count


@pytest.mark.parametrize("error", [3 * HOURS, -3 * HOURS])
def test_so_does_a_new_primary_that_has_just_joined(error: int) -> None:
    """It is ready before the first heartbeat that is due."""
    pair = Pair()
    a, b = pair.hosts
    b.wall_error = error
    pair.start()
    pair.run(0.3)
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: b.status == "ready")
    publish_three(pair, a)
    fail_over(pair, a, b)
    live_for(pair, b, TTL / 1000)


@pytest.mark.parametrize("error", [3 * HOURS, -3 * HOURS])
def test_so_does_a_new_primary_whose_primary_dies_while_it_links_again(error: int) -> None:
    """An authority may allow that; without one, an operator has to force it."""
    pair, a, b = serving(error)
    pair.run(5)
    pair.reset(a, b)
    pair.until(lambda: not b.running.core.backup.linked)
    pair.until(lambda: b.running.core.backup.peer is not None)
    fail_over(pair, a, b, force_lossy=True)
    live_for(pair, b, TTL / 1000 - 5)


@pytest.mark.parametrize("error", [3 * HOURS, -3 * HOURS])
def test_so_does_a_new_primary_that_steps_down_and_is_promoted_again(error: int) -> None:
    pair, _, b = failed_over(error)
    assert pair.ask(b, "demote")["ok"]
    assert pair.ask(b, "promote")["ok"]
    pair.until(lambda: b.running.vhosts.serving)
    live_for(pair, b, TTL / 1000 - 5)


def test_people_are_told_on_both_nodes_until_the_clocks_agree() -> None:
    pair = Pair()
    a, b = pair.hosts
    b.wall_error = 2500
    pair.up()
    pair.run(5)
    assert "the clock of b is 2.5 s ahead of this node's: set both by NTP" in a.running.status()["reason"]
    assert "the clock of a is 2.5 s behind this node's: set both by NTP" in b.running.status()["reason"]
    (member,) = [m for m in a.running.status()["members"] if m["name"] == "b"]
    assert member["clock_ahead_ms"] == pytest.approx(2500, abs=50) and "ahead" in member["trouble"]
    b.wall_error = 0
    pair.run(10)
    for host, other in ((a, b), (b, a)):
        assert "clock" not in host.running.status()["reason"]
        assert len(host.told(codes.CLOCKS_DIFFER)) == 1
        assert host.told(codes.CLOCKS_AGREE) == [codes.CLOCKS_AGREE.say(node=other.name, seconds=1).sentence]
