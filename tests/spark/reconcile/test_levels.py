"""Levels of confirms in the ledgers: what a confirm did not wait for, and what the verdict says."""

from __future__ import annotations

from typing import Any

import pytest

from spark.reconcile.checks.replication import FOREVER, unacknowledged
from spark.reconcile.ledgers.assemble import assemble
from spark.reconcile.ledgers.state import LedgerState
from spark.reconcile.verdict.result import Numbers, result
from tests.spark.reconcile.test_ledgers import event, life

VIEW = 1


def told(*levels: tuple[str, int]) -> LedgerState:
    """A primary a and its backup b, both sealed; `levels`: name, and the first position."""
    lives = [*life("a", "broker", view=VIEW), *life("b", "broker", view=VIEW)]
    lives += [
        event("promote", "a", view=VIEW, peer="", reason="bootstrap", ts_us=1, wseq=1),
        event("insync", "a", view=VIEW, peer="b", reason="included", name="a,b", n=1, ts_us=1, wseq=2),
        event("span", "a", view=VIEW, name="durable", ts_us=1, ts_last_us=9, n=1),
    ]
    for wseq, (name, n) in enumerate(levels, 3):
        lives.append(event("confirm_level", "a", view=VIEW, name=name, n=n, wseq=wseq))
    return assemble(lives, let_go=True)


def lacks(ledgers: LedgerState) -> dict[str, list[tuple[int, int]]]:
    """By node: positions whose ack for the disk is missing, although a confirm had to wait for it."""
    noted = [{"kind": "replicated", "view": VIEW, "node": "b", "reason": "applied", "first": 1, "last": 99}]
    noted += [{"kind": "durable", "view": VIEW, "node": "a", "reason": None, "first": 0, "last": 9}]
    found: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    for lack in unacknowledged(ledgers, noted):
        if lack.disk:
            found[lack.node].append((lack.n_first, lack.n_last))
    return found


def test_all_disks_are_waited_for_unless_the_ledger_says_otherwise() -> None:
    assert lacks(told()) == {"a": [(10, FOREVER)], "b": [(1, FOREVER)]}


@pytest.mark.parametrize(
    ("levels", "of_a", "of_b"),
    [
        ([("primary-disk", 0)], [(10, FOREVER)], []),
        ([("all-memory", 5)], [], [(1, 4)]),
        ([("all-memory", 5), ("all-disks", 21)], [(21, FOREVER)], [(1, 4), (21, FOREVER)]),
        ([("all-memory", 20), ("primary-disk", 31)], [(10, 19), (31, FOREVER)], [(1, 19)]),
    ],
)
def test_a_level_excuses_its_positions_only(
    levels: list[tuple[str, int]], of_a: list[tuple[int, int]], of_b: list[tuple[int, int]]
) -> None:
    assert lacks(told(*levels)) == {"a": of_a, "b": of_b}


def answer(ledgers: LedgerState, *found: dict[str, Any]) -> dict[str, Any]:
    tags = dict.fromkeys(("sends", "nacked", "returned", "unrouted"), 0)
    numbers = Numbers(tags, {"published": 7, "confirmed": 7}, [], list(found), {}, [])
    return result(ledgers, numbers, {})


def test_the_verdict_names_the_weakest_level_and_what_it_may_cost() -> None:
    ledgers = told(("all-memory", 5), ("all-disks", 21))
    ledgers.missing.clear()
    proven = answer(ledgers)
    assert proven["confirm_level"] == "all-memory"
    assert proven["sentence"] == "Proven under all-memory: none of the 7 confirmed messages was lost."
    lost = {"label": "lost", "queue": "0" * 32, "epoch": VIEW, "prod": None, "note": None}
    violated = answer(ledgers, lost | {"first": 3, "last": 3, "ids": 1, "pieces": 1})
    assert violated["verdict"] == "violated"
    assert violated["sentence"].endswith(
        "Confirms did not wait for disks (all-memory): a loss of power may cost such messages."
    )
    strict = told()
    strict.missing.clear()
    assert answer(strict)["confirm_level"] == "all-disks"
    assert answer(strict)["sentence"].startswith("Proven: none of")


def test_a_level_that_is_not_known_proves_nothing() -> None:
    assert any("does not know: none" in each for each in told(("none", 1)).missing)
