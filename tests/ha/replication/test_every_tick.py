"""Each fault in each tick of a join, with a publisher at work; then the primary is lost, too.

What counts is what the publisher was told: whatever it saw confirmed is with whoever serves afterwards, and
the two nodes end up whole and equal (1, 3, 11, 14, 19). These are two faults, so that under `manual` a
backup may be promoted that could not learn of its exclusion: there, a cut link is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_letters, digits

import pytest

from tests.ha.client import Client
from tests.ha.pair import STEP, Host, Pair
from tests.tiers import sweep

TICKS = 26
"""From the start of the joiner until it is in sync, and a little more."""
LETTERS = ascii_letters + digits


def frozen(host: Host) -> None:
    host.frozen = True


FAULTS: dict[str, Callable[[Pair, Host, Host], None]] = {
    "the joiner dies": lambda pair, a, b: pair.kill(b),
    "the joiner freezes": lambda pair, a, b: frozen(b),
    "the primary freezes": lambda pair, a, b: frozen(a),
    "nothing reaches the joiner": lambda pair, a, b: pair.hold(a, b),
    "nothing is heard of the joiner": lambda pair, a, b: pair.hold(b, a),
    "the link is cut": lambda pair, a, b: pair.separate(a, b, reset=True),
    "the register's answers are lost": lambda pair, a, b: pair.register.mute.add("a"),
    "the register is out of reach": lambda pair, a, b: pair.register.cut.add("a"),
}
ONLY_REGISTER = {"the link is cut", "the register's answers are lost", "the register is out of reach"}
CASES = [
    (authority, fault)
    for authority in ("manual", "register")
    for fault in FAULTS
    if authority == "register" or fault not in ONLY_REGISTER
]


class Publisher:
    """One client that publishes a message of its own in every other tick."""

    def __init__(self, pair: Pair, host: Host) -> None:
        self.pair = pair
        self.client = Client("x", host, pair.now)
        self.tick()
        self.client.begin(pair.now)
        self.tick()
        self.sent = ""
        self.confirmed: set[str] = set()

    def publish(self) -> None:
        if not self.client.gone and len(self.sent) < len(LETTERS):
            self.sent += LETTERS[len(self.sent)]
            self.client.publish("q", self.sent[-1], self.pair.now)

    def tick(self) -> None:
        self.pair.run(STEP)
        for line in self.client.pump(self.pair.now):
            words = line.split()
            if words[1] == "confirmed":
                tag = int(words[-1])
                self.confirmed |= set(self.sent[:tag] if "up" in words else self.sent[tag - 1])

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.tick()


def joining(authority: str) -> tuple[Pair, Publisher]:
    """b is on its way back, in small pieces; a client is at work."""
    pair = Pair(authority=authority)
    pair.up()
    a, b = pair.hosts
    pair.declare(a, "q")
    pair.run(0.1)
    pair.kill(b)
    pair.run(2.5)
    pair.snapshots(a, 40)
    for _ in range(3):
        pair.publish(a, "q", "~")
    pair.start(b)
    return pair, Publisher(pair, a)


def held(host: Host) -> set[str]:
    return set(Pair.contents(Pair(), host, "q"))


def serve_again(pair: Pair, x: Publisher) -> Host:
    """The primary is lost, or still frozen; everything else works again. Whoever may, is promoted."""
    a, b = pair.hosts
    if not a.frozen:
        pair.kill(a)
    if b.node is None:
        pair.start(b)
    b.frozen = False
    pair.register.mute.clear()
    pair.register.cut.clear()
    x.run(0.1)
    granted = bool(pair.ask(b, "promote", 10.0)["ok"])
    a.frozen = False
    pair.heal()
    if a.node is None:
        pair.start(a)
    x.run(1.0)
    if not granted and not a.running.vhost.serving:
        assert any(pair.ask(host, "promote", 10.0)["ok"] for host in (a, b)), "nobody can be promoted"
    [serving] = [host for host in pair.hosts if host.running.vhost.serving]
    return serving


@sweep("every", sample=7, more=2)
@pytest.mark.parametrize(("authority", "fault"), CASES)
def test_a_fault_in_any_tick_of_a_join_and_then_the_loss_of_the_primary(
    authority: str, fault: str, every: int
) -> None:
    for tick in range(0, TICKS, every):
        for pause in (0.0, 2.6):
            pair, x = joining(authority)
            for number in range(tick):
                if number % 2:
                    x.publish()
                x.tick()
            FAULTS[fault](pair, *pair.hosts)
            x.publish()
            x.run(pause + 2 * STEP)
            serving = serve_again(pair, x)
            assert x.confirmed <= held(serving), (tick, pause, x.confirmed - held(serving))
            pair.until(lambda pair=pair: sorted(h.status for h in pair.hosts) == ["active", "ready"])
            pair.run(0.1)
            assert len({pair.fingerprint(host) for host in pair.hosts}) == 1, (tick, pause)
