"""Promotions that are asked for twice: given up in the middle, cut short by a restart, overtaken by a newer
record. Whoever serves in the end has waited for whoever served before.
"""

from __future__ import annotations

from typing import Any

import pytest

from ha.core import codes
from tests.ha.election.test_lease import AUTHORITIES, LEASE, up
from tests.ha.election.test_register import in_sync, manage, owner, registered, serving
from tests.ha.pair import Host, Pair


def waiting(authority: str = "register") -> tuple[Pair, float]:
    """a is frozen with a good lease, b has the record and waits; when b acknowledged last."""
    pair = up(authority=authority)
    a, b = pair.hosts
    backup = b.running.core.backup
    assert backup is not None
    a.frozen = True
    b.running.manage("promote", {"force_lossy": authority == "manual"}, lambda answer: None, pair.now)
    pair.until(lambda: b.running.core.promotion.committed is not None)
    assert backup.said is not None
    return pair, backup.said.at


def lease_of(host: Host) -> float:
    return host.running.core.lease_until


@pytest.mark.parametrize("authority", AUTHORITIES)
def test_after_a_promotion_given_up_the_next_still_waits_for_the_lease(authority: str) -> None:
    pair, _ = waiting(authority)
    a, b = pair.hosts
    until = lease_of(a)
    assert pair.ask(b, "demote")["ok"]
    answers: list[dict[str, Any]] = []
    b.running.manage("promote", {"force_lossy": authority == "manual"}, answers.append, pair.now)
    pair.until(lambda: b.running.vhost.serving)
    assert pair.now >= until, "a may wake, and serve until then"


def test_a_swap_that_lands_after_a_promotion_given_up_spares_no_wait() -> None:
    pair = up(authority="register")
    a, b = pair.hosts
    a.frozen = True
    pair.register.delay = 0.2
    manage(pair, b, "promote")
    pair.until(lambda: b.running.core.keeper.busy)
    assert pair.ask(b, "demote")["ok"]
    pair.until(lambda: owner(pair) == "b")
    pair.register.delay = 0.0
    until = lease_of(a)
    manage(pair, b, "promote")
    pair.until(lambda: b.running.vhost.serving)
    assert pair.now >= until


def test_a_restart_while_it_waits_does_not_spare_it_the_wait() -> None:
    pair, _ = waiting()
    a, b = pair.hosts
    until = lease_of(a)
    pair.kill(b)
    pair.start(b)
    pair.run(0.05)
    manage(pair, b, "promote")
    pair.until(lambda: b.running.vhost.serving)
    assert pair.now >= until


def test_a_restarted_last_primary_is_promoted_without_a_wait() -> None:
    pair = up(authority="register")
    a, b = pair.hosts
    pair.kill(b)
    pair.until(lambda: in_sync(pair) == set())
    pair.kill(a)
    pair.start(a)
    pair.run(0.05)
    since = pair.now
    assert pair.ask(a, "promote")["ok"] and pair.now - since < 0.7
    pair.start(b)
    pair.until(lambda: b.status == "ready")


def test_a_refused_dial_of_before_the_last_link_ends_no_wait() -> None:
    """A firewall rejected for a moment; then the two linked again."""
    pair = registered()
    a, b = pair.hosts
    pair.separate(a, b, reset=True)
    pair.run(0.01)
    b.running.core.dial_failed("127.0.0.1:5000", pair.now, nobody=True)
    pair.heal()
    pair.until(lambda: b.status == "ready" and b.running.core.backup is not None
               and b.running.core.backup.linked)  # fmt: skip
    pair.run(1.0)
    backup = b.running.core.backup
    a.frozen = True
    manage(pair, b, "promote")
    pair.until(lambda: b.running.vhost.serving)
    assert backup is not None and backup.said is not None and pair.now >= backup.said.at + LEASE


def test_a_hopeless_promotion_ends_while_the_authority_is_silent() -> None:
    """b asks while a is slow, is cut off from the register, and hears that a has changed the record since."""
    pair = registered(3)
    a, b, c = pair.hosts
    a.frozen = True
    pair.run(0.1)
    pair.register.delay = 0.05
    answers = manage(pair, b, "promote")
    pair.until(lambda: b.running.core.keeper.busy)
    pair.register.cut = {"b"}
    pair.register.delay = 0.0
    pair.run(0.1)
    a.frozen = False
    pair.kill(c)
    pair.until(lambda: in_sync(pair) == {"b"}, 4.0)
    pair.until(lambda: not b.running.core.promotion.active, 2.0)
    assert answers and not answers[0]["ok"]
    pair.separate(a, b, reset=True)
    pair.heal()
    pair.until(lambda: b.status == "ready" and b.running.status()["link"] == "up", 8.0)
    assert serving(pair) == ["a"]


def test_an_ack_that_comes_late_is_no_sign_that_the_link_was_fresh() -> None:
    """Found by the simulation (120023654): a has excluded b, and died before b could hear of it."""
    pair = Pair()
    pair.up()
    pair.declare(pair[0], "q")
    pair.run(1.0)
    a, b = pair.hosts
    pair.hold(a, b)
    for _ in range(4):
        pair.publish(a, "q", "abcdefgh")
        pair.run(2.3 / 4)
    assert any(line.startswith("b ") for line in a.told(codes.BACKUP_EXCLUDED))
    for wire in pair.wires:
        wire.out.clear()  # so is what they say of themselves on other connections
    pair.hold(a, b, 1000)
    pair.run(0.1)
    assert b.status == "ready" and b.running.vhost.queues["q"].snapshot()
    pair.kill(a)
    pair.run(0.1)
    answer = pair.ask(b, "promote")
    assert not answer["ok"] and "the last acknowledgement in time to a was 2.8 s old" in answer["reason"]


def test_a_late_ack_counts_once_the_link_has_stood_long_enough() -> None:
    """Both stood still, as on one host: b is a member as before, and soon promotable again."""
    pair = Pair()
    pair.up()
    pair.run(1.0)
    a, b = pair.hosts
    pair.now += 2.3
    pair.run(2.5)
    assert not a.told(codes.BACKUP_EXCLUDED)
    pair.kill(a)
    pair.run(0.1)
    assert pair.ask(b, "promote")["ok"]
