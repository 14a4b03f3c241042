"""How a queue gets the rules of a plan: by its arguments, by a policy, or by both together.

With both, each alone would say something else: of numbers the smaller counts, else the argument; and the
policy's routing key for dead letters holds with the exchange of the arguments. A policy of lower priority
matches too, and would empty the queue. The queues of a chain have theirs by arguments.
"""

from __future__ import annotations

from typing import Any

from broker.model.history.records import EntryDelete, EntryPut
from tests.simulation.clients.rule_plan import RulePlan, StepPlan

NOTHING = {"queue-mode": "lazy"}
"""Does nothing: a policy has to say something."""
RUIN = {"max-length": 0, "message-ttl": 0, "overflow": "reject-publish"}


def arguments_of(plan: RulePlan, dead: str) -> dict[str, Any]:
    """`dead`: the queue to which its dead letters go."""
    given = _given(plan, dead)
    if plan.rules_by == "policy":
        given = {}
    elif plan.rules_by == "both":
        given.pop("dead-letter-routing-key", None)
        for limit, more in (("max-length", 5), ("max-length-bytes", 100)):
            if limit in given:
                given[limit] += more
    arguments = {f"x-{key}": value for key, value in given.items()}
    if plan.last_values:
        arguments["x-last-value-key"] = "correlation-id"
    return arguments | ({"x-max-priority": plan.max_priority} if plan.max_priority else {})


def step_arguments(step: StepPlan, onward: str) -> dict[str, Any]:
    """`onward`: the queue to which its dead letters go."""
    given = {
        "x-message-ttl": step.message_ttl, "x-max-length": step.max_length,
        "x-max-length-bytes": step.max_length_bytes, "x-overflow": step.overflow or None,
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": onward,
    }  # fmt: skip
    return {key: value for key, value in given.items() if value is not None}


def exchange_of(plan: RulePlan) -> str:
    """The exchange that takes the dead letters of the queue with rules."""
    return f"x-{plan.name}" if plan.through else ""


RULED = "ruled"
"""The virtual host of the queues with rules: made by whoever misses it."""


def make_vhost() -> EntryPut:
    return EntryPut("vhost", "", RULED, {"description": "", "tags": []})


def policies_of(plan: RulePlan, queue: str, dead: str, number: int) -> list[EntryPut | EntryDelete]:
    """Changes after which the policy `number`, 0 or 1, holds for the queue, and the other is no more."""
    given = _given(plan, dead)
    if plan.rules_by == "both":
        if "message-ttl" in given:
            given["message-ttl"] = given["message-ttl"] * 2 + 1
        if "overflow" in given:
            given["overflow"] = "drop-head" if plan.refuses else "reject-publish"
        if plan.dead_letters:
            given["dead-letter-exchange"] = "amq.fanout"
    return [
        _policy(f"{queue}/{number}", f"^{queue}$", 1, given or NOTHING),
        _policy(f"{queue}/ruin", queue, 0, RUIN),
        EntryDelete("policy", RULED, f"{queue}/{1 - number}"),
    ]


def _given(plan: RulePlan, dead: str) -> dict[str, Any]:
    """All of it, by the names that policies have for it."""
    given: dict[str, Any] = {"message-ttl": plan.message_ttl, "max-length": plan.max_length}
    given["max-length-bytes"] = plan.max_length_bytes
    given["overflow"] = plan.overflow or None
    if plan.dead_letters:
        given |= {"dead-letter-exchange": exchange_of(plan), "dead-letter-routing-key": dead}
    return {key: value for key, value in given.items() if value is not None}


def _policy(name: str, pattern: str, priority: int, definition: dict[str, Any]) -> EntryPut:
    """Keys in the order in which a follower reads them: checkers compare what records look like."""
    said = dict(sorted(definition.items()))
    value = {"apply-to": "queues", "definition": said, "pattern": pattern, "priority": priority}
    return EntryPut("policy", RULED, name, value)
