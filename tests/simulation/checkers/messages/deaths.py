"""What a dead letter says of its way is its way (18): which queues it died in, for what, and how often.

The way is known: from the queue with rules through those of the chain, and round again only for what the
client has rejected. So what the headers must say follows from the queue that a message is in.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.simulation.clients.rule_plan import RulePlan, StepPlan
from tests.simulation.clients.rule_user import Ruled, RuleUser, way_of
from tests.simulation.clients.rules_given import exchange_of
from tests.simulation.harness.inspection import content_of
from tests.simulation.harness.journal import Violation

WHAT = ("reason", "queue", "exchange")
Deaths = list[dict[str, Any]]


class Deaths18:
    """18: the header `x-death` of a message names the queues that it has come through, the newest first, each
    with its reason and count; and the body is what was published."""

    def __init__(self) -> None:
        self.checked = 0

    def look(self, user: RuleUser, message: Ruled, queue: str, raw: bytes) -> None:
        headers, expires, body = content_of(raw)
        name = f"{user.name}:{message.number} in {queue}"
        if body != message.body:
            raise Violation(18, f"{name} is not what was published")
        deaths = headers.get("x-death", [])
        self.checked += bool(deaths)
        wrong = self._wrong_way(user, message, queue, deaths) or self._wrong_words(user, message, deaths)
        if wrong is None and expires is not (message.expiration is not None and not deaths):
            wrong = "the expiration is that of no such message"
        if wrong is None and deaths:
            first = next(death for death in deaths if death["queue"] == user.queue)
            wrong = _wrong_summary(headers, first, deaths[0])
        if wrong is not None:
            told = [(death["queue"], death["reason"], death["count"]) for death in deaths]
            raise Violation(18, f"{name} says that it died in {told}: {wrong}")

    def _wrong_way(self, user: RuleUser, message: Ruled, queue: str, deaths: Deaths) -> str | None:
        """Where it died, how often, and in which order."""
        way = way_of(user.plan)
        place = way.index(queue)
        dying = way[:-1]
        times = Counter[str]()
        for death in deaths:
            times[death["queue"]] += death["count"]
        rejections = sum(d["count"] for d in deaths if (d["queue"], d["reason"]) == (way[0], "rejected"))
        rounds = times[way[0]] - (1 if place else 0)
        if rounds < 0 or (rounds and not user.plan.cycle):
            return f"it came to {queue} otherwise"
        if any(times[each] != rounds + (at < place) for at, each in enumerate(dying)) or times.keys() - dying:
            return f"it is in {queue} in round {rounds + 1}"
        if rounds and rejections != times[way[0]]:
            return "it went round, and nobody rejected it"
        if rejections > message.rejections:
            return f"it was rejected {message.rejections} times"
        newest = list(dict.fromkeys(death["queue"] for death in deaths))
        expected = [*reversed(dying[:place]), *(reversed(dying[place:]) if rounds else ())]
        return None if newest == expected else "that is not the order"

    def _wrong_words(self, user: RuleUser, message: Ruled, deaths: Deaths) -> str | None:
        """What each death says besides."""
        plan, way = user.plan, way_of(user.plan)
        rules: dict[str, RulePlan | StepPlan] = dict(zip(way, (plan, *plan.steps), strict=False))
        for death in deaths:
            queue, reason = death["queue"], death["reason"]
            rule = rules[queue]
            timed = rule.message_ttl is not None or (queue == user.queue and message.expiration is not None)
            limited = rule.limited and rule.overflow != "reject-publish"
            may = {"expired": timed, "maxlen": limited, "rejected": queue == user.queue}
            if not may.get(reason, False):
                return f"no rule of {queue} says {reason}"
            exchange = exchange_of(plan) if queue == user.first_dead else ""
            if (death["exchange"], death["routing-keys"]) != (exchange, [queue]):
                return f"it came to {queue} by '{exchange}'"
            own = queue == user.queue and message.expiration is not None
            if death.get("original-expiration") != (str(message.expiration) if own else None):
                return "the original expiration is another"
        return None


def _wrong_summary(headers: dict[str, Any], first: dict[str, Any], last: dict[str, Any]) -> str | None:
    """What is said of two of the deaths once more."""
    for which, death in (("first", first), ("last", last)):
        if any(headers.get(f"x-{which}-death-{what}") != death[what] for what in WHAT):
            return f"of the {which} it says something else"
    return None
