"""The checker of numbers: what it must object to, and what it must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.clients.numberer import Attempt, Numberer
from tests.simulation.clients.numberer_plan import NumbererPlan
from tests.simulation.harness.inspection import content_of, held

PLAN = NumbererPlan(
    "numberer", durable=True, persistent=1.0, both=0.0, window=10, burst=5, interval=0.01, sends=40, limit=0,
    transactions=0.0, gets=0.0, voids=0.0, leaves=0.0, strangers=0.0,
)  # fmt: skip


@pytest.fixture
def pair() -> Pair:
    """A producer has confirmed numbers in both queues."""
    found = Pair(numberers=(PLAN,))
    for numberer in found.world.numberers:
        numberer.start()
    found.run(2.0)
    return found


def numberer_of(pair: Pair) -> Numberer:
    return pair.world.numberers[0]


def test_what_is_there_once_is_right(pair: Pair) -> None:
    pair.checkers.numbers.look(pair.world.machines[0])
    assert pair.checkers.numbers.checked >= 40


def test_1_a_number_is_confirmed_and_missing(pair: Pair) -> None:
    numberer = numberer_of(pair)
    numberer.left.must[999] = pair.clock.now
    numberer.messages[999] = replace(numberer.messages[1], number=999)
    with violates(1, "lacks the confirmed number 999"):
        pair.checkers.numbers.look(pair.world.machines[0])


def test_24_a_number_is_had_twice_and_once_is_of_a_fenced_session(pair: Pair) -> None:
    numberer, machine = numberer_of(pair), pair.world.machines[0]
    pair.checkers.numbers.look(machine)
    body = content_of(held(machine, numberer.left.name)[0][2])[2]
    number = body.partition(b">")[0]
    numberer.attempts.append(Attempt(1, pair.clock.now, None))
    again = number + b">%d" % (len(numberer.attempts) - 1)
    with violates(24, "twice"):
        numberer.on_got(machine.address[1], numberer.left.name, again)
    numberer.attempts[-1] = Attempt(1, pair.clock.now, pair.clock.now)
    with violates(24, "whose place was taken"):
        numberer.on_got(machine.address[1], numberer.left.name, again)


def test_24_a_producer_is_forgotten_in_silence(pair: Pair) -> None:
    checker, machine = pair.checkers.numbers, pair.world.machines[0]
    machine.running.vhosts.producers.forgotten += 1
    with violates(24, "has not told"):
        checker.tick(machine)
