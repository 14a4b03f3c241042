"""Commands over AMQP are checked as those by other doors: `fenced` is a name, not whoever it may be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ha.pair import Pair

FORCE = 'the arguments are "force_lossy", true or false, and "fenced", the name of a node that is off'


@pytest.mark.parametrize(("command", "args", "reason"), [
    ("promote", {"fenced": True}, FORCE),
    ("promote", {"fenced": 1}, FORCE),
    ("promote", {"force_lossy": 1}, FORCE),
    ("demote", {"force": True}, "it takes no arguments"),
    ("switchover", {"to": 5}, 'the only argument is "to", the name of a backup'),
    ("switchover", {"at": "b"}, 'the only argument is "to", the name of a backup'),
])  # fmt: skip
def test_arguments_of_commands_are_checked(command: str, args: dict[str, Any], reason: str) -> None:
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    pair.kill(a)
    answers: list[dict[str, Any]] = []
    question = json.dumps({"command": command, "args": args}).encode()
    b.running._questions.heard(question, answers.append, pair.now)
    pair.run(0.1)
    assert answers == [{"ok": False, "code": "command-bad-arguments", "reason": reason}]
    assert b.status == "ready"
