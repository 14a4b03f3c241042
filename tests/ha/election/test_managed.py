"""Under Pacemaker, who serves is not for people to change behind its back: it would undo it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ha.adapter.management.questions import Questions
from ha.adapter.node import Node
from tests.ha.pair import Pair


def heard(node: Node, command: str, args: dict[str, Any], now: float) -> list[dict[str, Any]]:
    """What an operator is told over AMQP."""
    answers: list[dict[str, Any]] = []
    Questions(node).heard(json.dumps({"command": command, "args": args}).encode(), answers.append, now)
    return answers


def managed() -> Pair:
    """A pair whose resource manager is Pacemaker."""
    pair = Pair(authority="pacemaker")
    pair.start()
    pair.run(0.3)
    return pair


@pytest.mark.parametrize("args", [{}, {"operator": False}])
@pytest.mark.parametrize("command", ["promote", "demote", "switchover"])
def test_an_operator_is_told_to_ask_pacemaker(command: str, args: dict[str, Any]) -> None:
    pair = managed()
    (answer,) = heard(pair[0].running, command, args, pair.now)
    assert answer["code"] == "pacemaker-decides"
    assert pair[0].status == "joining"


def test_a_forced_promotion_is_the_operators_in_any_case() -> None:
    pair = managed()
    heard(pair[0].running, "promote", {"force_lossy": True}, pair.now)
    pair.until(lambda: pair[0].status in ("recovering", "active"))


def test_the_resource_manager_promotes_by_its_own_door() -> None:
    pair = managed()
    assert pair.ask(pair[0], "promote")["ok"]


def test_under_manual_an_operator_promotes() -> None:
    pair = Pair()
    pair.start()
    pair.run(0.3)
    heard(pair[0].running, "promote", {}, pair.now)
    pair.until(lambda: pair[0].status == "active")
