"""A primary that wakes after its lease and hears first, outside of a tick, that it is to step down."""

from __future__ import annotations

import pytest

from tests.ha.election.test_lease import AUTHORITIES, LEASE, busy, everything_at_once, up
from tests.ha.election.test_register import manage


@pytest.mark.parametrize("authority", AUTHORITIES)
def test_one_demoted_over_http_as_it_wakes_drops_what_it_may_not_say(authority: str) -> None:
    pair = up(authority=authority)
    a = pair[0]
    client = busy(pair, a)
    a.frozen = True
    pair.run(LEASE + 1.0)
    everything_at_once(client)
    manage(pair, a, "demote")
    a.running.end_tick(pair.now, pair.wall)
    last = client.output()
    assert last[7:11] == b"\0\x0a\0\x32" and last.count(b"\xce") == 1, "connection.close, and nothing else"


@pytest.mark.parametrize("promoted", [True, False])
def test_a_woken_primary_without_clients_keeps_their_queues(
    promoted: bool,
) -> None:
    """Their connections ended while it was stopped: perhaps they are another primary's clients by now."""
    pair = up(authority="register")
    a, b = pair.hosts
    client = busy(pair, a)
    client.call("queue.declare", queue="temporary", exclusive=True, arguments={})
    pair.run(0.1)
    a.frozen = True
    pair.run(LEASE + 1.0)
    if promoted:
        assert pair.ask(b, "promote")["ok"]
    client.conn.lost(pair.now)
    assert "temporary" in a.running.vhost.queues
    a.frozen = False
    if promoted:
        ended = False
        while a.status == "active":
            pair.step()
            pair.now += 0.005
            ended = ended or "temporary" not in a.running.vhost.queues
        assert not ended
        pair.until(lambda: a.status == "ready")
    else:
        pair.until(lambda: "temporary" not in a.running.vhost.queues)
        assert a.status == "active"
