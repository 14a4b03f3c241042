"""What leaves a queue by rule leaves once, for that rule, and goes where it should (1, 18).

Reads the two queues of each `RuleUser` on the node that serves; shares nothing with what decides there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from tests.simulation.fault_plan import Fault
from tests.simulation.inspection import held, key_of
from tests.simulation.journal import Journal, Violation
from tests.simulation.machine import Machine
from tests.simulation.plan import Plan
from tests.simulation.rule_user import Fate, Ruled, RuleUser

ANY = 1e9
SLACK = 0.05
"""Seconds for which a wall clock and a client's may disagree: a tick, a way, a sync."""


class Rules18:
    """18: expiry, limits and dead letters are decided once. A confirmed message is in its queue, or in that
    of the dead letters, or has left for a rule that there is; it is never in both, nor twice in one, unless
    it was sent twice; a refused one is nowhere; and what its rule asks to be gone is gone."""

    def __init__(self, plan: Plan, users: Sequence[RuleUser], journal: Journal) -> None:
        self.users = users
        self.journal = journal
        self.checked = 0
        for user in users:
            user.on_got = partial(self.got, user)
        errors = [machine.wall_error for machine in plan.machines]
        self._skew = (max(errors) - min(errors)) / 1000
        """Seconds by which the wall clocks of two nodes differ: a time counts from the clock of one, and is
        over by that of another. One that was set is, for the next life and the next primary, the only one."""
        if any(fault.kind is Fault.STEP_CLOCK for fault in plan.faults):
            self._skew = ANY

    def got(self, user: RuleUser, message: Ruled, asked: float) -> None:
        """The node took it no sooner than it was asked; its answer may have waited in the channel's order."""
        limits = [t for t in (user.plan.message_ttl, message.expiration) if t is not None]
        if not limits or message.confirmed_at is None:
            return
        over = message.sent[-1] + self._late(message) + min(limits) / 1000 + self._skew + SLACK
        if asked > over:
            raise Violation(18, f"{user.name}:{message.number} is delivered, and its time is over")

    def quiet(self, primary: Machine, now: float) -> None:
        """Nothing is on its way."""
        for user in self.users:
            there = Counter(key_of(raw) for _, _, raw in held(primary, user.queue))
            dead = Counter(key_of(raw) for _, _, raw in held(primary, user.dead))
            self._limits(user, there)
            newest = max(
                (max(m.orders) for m in user.messages.values() if there[f"{user.name}:{m.number}"]), default=0
            )
            for message in user.messages.values():
                key = f"{user.name}:{message.number}"
                if message.sent[-1] > self.journal.forced_until:
                    self._once(user, message, there[key], dead[key])
                if there[key]:
                    self._not_over(user, message, now)
                elif not dead[key]:
                    self._gone_rightly(user, message, now, newest)
                self.checked += 1

    def _limits(self, user: RuleUser, there: Counter[str]) -> None:
        """One that refuses is not shortened: what comes back to it, comes back."""
        limit = user.plan.max_length
        if limit is not None and not user.plan.refuses and there.total() > limit:
            raise Violation(18, f"{user.queue} holds {there.total()}, and may hold {limit}")

    def _once(self, user: RuleUser, message: Ruled, there: int, dead: int) -> None:
        if there + dead > len(message.sent):
            raise Violation(
                18, f"{user.name}:{message.number}, sent {len(message.sent)} times, is {there} times in "
                f"{user.queue} and {dead} times in {user.dead}",
            )  # fmt: skip
        if dead and not user.plan.dead_letters:
            raise Violation(18, f"{user.name}:{message.number} is in {user.dead}, and no rule sends it there")
        only_refused = message.refused and message.confirmed_at is None and len(message.sent) == 1
        if only_refused and (there or (dead and user.plan.overflow != "reject-publish-dlx")):
            raise Violation(18, f"{user.name}:{message.number} was refused, and is there")

    def _not_over(self, user: RuleUser, message: Ruled, now: float) -> None:
        """Only the queue's own time is sure: a message's counts once it is the oldest."""
        ttl = user.plan.message_ttl
        if ttl is not None and now > message.sent[-1] + ttl / 1000 + self._skew + SLACK + self._late(message):
            raise Violation(18, f"{user.name}:{message.number} is in {user.queue}, and its time is over")

    def _late(self, message: Ruled) -> float:
        """A send may have come to the broker as late as its confirm left it."""
        return max(0.0, (message.confirmed_at or message.sent[-1]) - message.sent[-1])

    def _gone_rightly(self, user: RuleUser, message: Ruled, now: float, newest: int) -> None:
        if message.confirmed_at is None or message.fate is Fate.ACKED:
            return
        if message.sent[-1] <= self.journal.forced_until:
            return
        lasting = message.persistent and user.plan.durable
        if not lasting and self.journal.memory_lost >= message.sent[0]:
            return
        if user.plan.dead_letters:
            raise Violation(1, f"{user.name}:{message.number} was confirmed, and is in neither queue")
        if message.fate is Fate.REJECTED:
            return
        times = [t for t in (user.plan.message_ttl, message.expiration) if t is not None]
        if times and now >= message.sent[0] + min(times) / 1000 - self._skew - SLACK:
            return
        limit = user.plan.max_length
        behind = user.sends - (1 if user.plan.max_priority else min(message.orders))
        if limit is not None and not user.plan.refuses and behind >= limit:
            return  # with priorities the head, which leaves, may be the newest
        raise Violation(1, f"{user.name}:{message.number} was confirmed, and left {user.queue} for no rule")
