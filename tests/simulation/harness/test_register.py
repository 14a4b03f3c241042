"""The simulated register: one swap at a time, whatever the network does to questions and answers."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ha.adapter.authority_port import AuthorityRequest
from tests.simulation.harness.asking import Asking
from tests.simulation.harness.clock import Clock
from tests.simulation.harness.network import Cut, Network
from tests.simulation.harness.plan import NetworkPlan, RegisterPlan
from tests.simulation.harness.register import HOST, Register


def record(epoch: int, revision: int, owner: str = "a") -> dict[str, Any]:
    names = {owner: owner.upper()}
    return {"epoch": epoch, "revision": revision, "owner": [owner, 1], "in_sync": [], "names": names}


class Playing(Asking):
    """A register and its clients."""

    def __init__(self, seed: int = 1, takes: float = 0.001) -> None:
        clock = Clock()
        network = NetworkPlan(latency=0.0003, spread=0.003, cut=0.0, slow=0.0)
        self.network = Network(clock, network, lambda purpose: Random(f"{seed}/{purpose}"))
        plan = RegisterPlan(takes=takes, patience=0.5)
        self.register = Register(clock, self.network, plan, lambda purpose: Random(f"{seed}/{purpose}"))
        super().__init__(clock, self.register)


def test_a_swap_needs_the_version_that_is_held() -> None:
    asking = Playing()
    asking.ask("A")
    assert asking.run() == [("A", "done", None)]
    asking.ask("A", record(5, 1), None)
    assert asking.run() == [("A", "done", (5, 1))]
    asking.ask("B", record(6, 1), None)
    asking.ask("B", record(6, 1), (5, 2))
    assert asking.run() == [("B", "conflict", (5, 1))] * 2
    asking.ask("B", record(6, 1), (5, 1))
    asking.run()
    assert [r["epoch"] for _, r in asking.register.history] == [5, 6]


@pytest.mark.parametrize("seed", range(20))
def test_of_two_who_swap_at_once_one_is_refused(seed: int) -> None:
    asking = Playing(seed)
    asking.ask("A", record(1, 1, "a"), None)
    asking.ask("B", record(2, 1, "b"), None)
    outcomes = {host: outcome for host, outcome, _ in asking.run()}
    assert sorted(outcomes.values()) == ["conflict", "done"]
    winner = next(host for host, outcome in outcomes.items() if outcome == "done")
    assert asking.register.record == (record(1, 1, "a") if winner == "A" else record(2, 1, "b"))


def test_a_lost_answer_is_an_unknown_outcome_of_a_swap_that_was_made() -> None:
    asking = Playing()
    asking.register.lossy_until, asking.register.lost_answers = 10.0, 1.0
    asking.ask("A", record(1, 1), None)
    assert asking.run() == [("A", "unknown", None)]
    assert asking.register.record == record(1, 1)


def test_a_lost_question_is_an_unknown_outcome_of_a_swap_that_was_not_made() -> None:
    asking = Playing()
    asking.network.apply(Cut(frozenset({"A"}), frozenset({HOST})))
    asking.ask("A", record(1, 1), None)
    asking.ask("B")
    assert asking.run() == [("B", "done", None), ("A", "unknown", None)]
    assert asking.register.record is None


def test_a_slow_register_may_do_what_was_given_up() -> None:
    asking = Playing()
    asking.register.slow_until, asking.register.slow_time = 10.0, 30.0
    asking.ask("A", record(1, 1), None)
    assert asking.run(0.6) == [("A", "unknown", None)]
    assert asking.register.record is None
    assert asking.run(40.0) == [], "it is answered once"
    assert asking.register.record == record(1, 1)


def test_what_is_held_is_a_copy() -> None:
    asking = Playing()
    mine = record(1, 1)
    asking.ask("A", mine, None)
    asking.run()
    mine["epoch"] = 99
    assert asking.register.record == record(1, 1)


def test_the_owners_lease_begins_with_its_swap_and_lasts_while_it_renews() -> None:
    playing = Playing()
    lease = playing.register.plan.lease
    gone: list[bool] = []

    def ask(host: str, request: AuthorityRequest) -> None:
        def answered(outcome: str, held: object, reason: str, owner_gone: bool = False) -> None:
            gone.append(owner_gone)

        playing.register.ask(host, request, answered)
        playing.clock.run(playing.clock.now + 0.6 * lease)

    ask("A", AuthorityRequest(1, "swap", None, record(5, 1)))
    for number in range(2, 6):
        ask("A", AuthorityRequest(number, "read", renews=True))
    ask("B", AuthorityRequest(6, "read", renews=True))
    assert not any(gone), "it renews, and nobody else can"
    ask("B", AuthorityRequest(7, "read"))
    assert gone[-1]
