"""What leaves a queue by rule leaves once, for that rule, and goes where it should (1, 18).

Reads the queues of each `RuleUser` on the node that serves; shares nothing with what decides there. Octets
are counted by what the client has sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from tests.simulation.checkers.messages.deaths import Deaths18
from tests.simulation.checkers.messages.expiry import Dating
from tests.simulation.clients.rule_plan import RulePlan, StepPlan
from tests.simulation.clients.rule_user import Fate, Ruled, RuleUser, number_of, steps_of, waiting_of, way_of
from tests.simulation.harness.inspection import held
from tests.simulation.harness.journal import Journal, Violation
from tests.simulation.harness.machines.machine import Machine


class Rules18:
    """18: expiry, limits and dead letters are decided once. A confirmed message is in its queue, or in one
    that its dead letters come through, or has left for a rule that there is; it is never in two, nor twice in
    one, unless it was sent twice; a refused one is nowhere, and the queue was full; and what its rule asks to
    be gone is gone."""

    def __init__(self, users: Sequence[RuleUser], journal: Journal, dating: Dating) -> None:
        self.users = users
        self.journal = journal
        self.dating = dating
        self.deaths = Deaths18()
        self.promoted_at = 0.0
        self.checked = 0
        for user in users:
            user.on_got = partial(self.got, user)
            user.on_refused = partial(self.refused, user)

    def got(self, user: RuleUser, message: Ruled, asked: float) -> None:
        """The node took it no sooner than it was asked; its answer may have waited in the channel's order."""
        now, since = user.clock.now, message.sent[0]
        due = since + user.delay_of(message.number) / 1000
        if self.dating.kept(since) and now + self.dating.off(since, now) < due:
            raise Violation(
                18, f"{user.name}:{message.number} is delivered {due - now:.3f} s before its time"
            )
        limits = [t for t in (user.plan.message_ttl, message.expiration) if t is not None]
        if not limits or message.confirmed_at is None:
            return
        if user.plan.cycle and message.rejections:
            return  # it may have come round
        if self._overdue(message, min(limits), asked):
            raise Violation(18, f"{user.name}:{message.number} is delivered, and its time is over")

    def refused(self, user: RuleUser, message: Ruled) -> None:
        """A queue in which all that was ever sent has room is not full."""
        plan = user.plan
        if (plan.max_length is None or user.sends <= plan.max_length) and (
            plan.max_length_bytes is None or user.octets <= plan.max_length_bytes
        ):
            raise Violation(18, f"{user.name}:{message.number} is refused, and {user.queue} has room")

    def quiet(self, primary: Machine, now: float) -> None:
        """Nothing is on its way."""
        for user in self.users:
            there, dead = self._read(primary, user, user.queue), self._read(primary, user, user.dead)
            waiting = Counter(number_of(raw) for _, _, raw in self._waiting(primary, user))
            self._last_values(user, there)
            between = Counter[int]()
            self._limits(primary, user, user.queue, user.plan, there)
            for queue, step in zip(steps_of(user.plan), user.plan.steps, strict=True):
                here = self._read(primary, user, queue)
                self._limits(primary, user, queue, step, here)
                self._empty(user, queue, step, here)
                between += here
            if user.plan.cycle:
                self._empty(user, user.queue, user.plan, there)
            for number, message in user.messages.items():
                gone = dead[number] + between[number]
                if message.sent[-1] > self.journal.forced_until:
                    self._once(user, message, there[number] + waiting[number], gone)
                    self._no_way(user, message, dead[number], gone)
                if waiting[number] and self.dating.kept(message.sent[0]):
                    raise Violation(18, f"{user.name}:{number} still waits, and its time is over")
                if there[number]:
                    if not self._stuck(user, there):
                        self._not_over(user, message, now)
                elif not gone and not waiting[number]:
                    self._gone_rightly(user, message, now)
                self.checked += 1

    def _waiting(self, primary: Machine, user: RuleUser) -> list[tuple[int, int, bytes]]:
        """What waits at its delayed-message exchange."""
        return list(held(primary, waiting_of(user.plan))) if user.plan.delay else []

    def _read(self, primary: Machine, user: RuleUser, queue: str) -> Counter[int]:
        """How often each message is there; and what its headers say is looked into."""
        found = Counter[int]()
        for _, _, raw in held(primary, queue):
            number = number_of(raw)
            found[number] += 1
            self.deaths.look(user, user.messages[number], queue, raw)
        return found

    def _limits(
        self, primary: Machine, user: RuleUser, queue: str, rule: RulePlan | StepPlan, there: Counter[int]
    ) -> None:
        """One that refuses is not shortened: what comes back to it from a client, comes back; and the primary
        before may have taken the last ones in place of others, and died before it told that these had left.
        """
        if rule.overflow.startswith("reject-publish"):
            taken_now = any(epoch == primary.running.core.epoch for epoch, _, _ in held(primary, queue))
            if not taken_now or (rule is user.plan and user.plan.gets):
                return
        octets = sum(len(user.messages[number].body) * count for number, count in there.items())
        for what, found, limit in (
            ("messages", there.total(), rule.max_length), ("octets", octets, rule.max_length_bytes),
        ):  # fmt: skip
            if limit is not None and found > limit:
                raise Violation(18, f"{queue} holds {found} {what}, and may hold {limit}")

    def _last_values(self, user: RuleUser, there: Counter[int]) -> None:
        """Of each key there is one message at most."""
        if user.plan.last_values:
            keys = Counter(user.key_of(number) for number in there.elements())
            for key, count in keys.items():
                if count > 1:
                    raise Violation(18, f"{user.queue} holds {count} messages of the key {key}")

    def _empty(self, user: RuleUser, queue: str, rule: RulePlan | StepPlan, there: Counter[int]) -> None:
        """When nobody has touched them for as long as all times together, and the same node served, nothing
        is left where any time counts."""
        if rule.message_ttl is None or self.promoted_at >= user.left_at or self._stuck(user, there):
            return
        for number in there:
            raise Violation(18, f"{user.name}:{number} is in {queue}, and its time is over")

    def _stuck(self, user: RuleUser, there: Counter[int]) -> bool:
        """One that was dated by another clock lives on for as long as clocks differ, and so do those behind
        it: a queue looks at its oldest message only."""
        return any(not self.dating.kept(user.messages[number].sent[0]) for number in there)

    def _once(self, user: RuleUser, message: Ruled, there: int, gone: int) -> None:
        if there + gone > len(message.sent):
            raise Violation(
                18, f"{user.name}:{message.number}, sent {len(message.sent)} times, is {there} times in "
                f"{user.queue} and {gone} times where its dead letters go",
            )  # fmt: skip
        only_refused = message.refused and message.confirmed_at is None and len(message.sent) == 1
        if only_refused and (there or (gone and user.plan.overflow != "reject-publish-dlx")):
            raise Violation(18, f"{user.name}:{message.number} was refused, and is there")

    def _no_way(self, user: RuleUser, message: Ruled, dead: int, gone: int) -> None:
        if (gone and not user.plan.dead_letters) or (dead and user.plan.cycle):
            raise Violation(18, f"{user.name}:{message.number} is in {user.dead}, and no rule sends it there")

    def _not_over(self, user: RuleUser, message: Ruled, now: float) -> None:
        """Only the queue's own time is sure: a message's counts once it is the oldest."""
        ttl = user.plan.message_ttl
        if user.plan.cycle and message.rejections:
            return  # it may have come round
        if ttl is not None and self._overdue(message, ttl, now):
            raise Violation(18, f"{user.name}:{message.number} is in {user.queue}, and its time is over")

    def _overdue(self, message: Ruled, ttl: int, now: float) -> bool:
        """Is it surely over, whatever the machines' clocks show?"""
        since = message.sent[-1]
        off = self.dating.off(since, now)
        return self.dating.kept(message.sent[0]) and now > since + self._late(message) + ttl / 1000 + off

    def _late(self, message: Ruled) -> float:
        """A send may have come to the broker as late as its confirm left it."""
        return max(0.0, (message.confirmed_at or message.sent[-1]) - message.sent[-1])

    def _gone_rightly(self, user: RuleUser, message: Ruled, now: float) -> None:
        if message.confirmed_at is None or message.fate is Fate.ACKED:
            return
        if message.sent[-1] <= self.journal.forced_until:
            return
        lasting = message.persistent and user.plan.durable
        lost = self.journal.disk_lost if lasting else self.journal.memory_lost
        if lost >= message.sent[0]:
            return
        plan, name = user.plan, f"{user.name}:{message.number}"
        if plan.dead_letters and not plan.cycle:
            raise Violation(1, f"{name} was confirmed, and is in none of {', '.join(way_of(plan))}")
        if message.fate is Fate.REJECTED and not plan.cycle:
            return
        times = [t for t in (plan.message_ttl, message.expiration) if t is not None]
        if times and now >= message.sent[0] + min(times) / 1000 - self.dating.off(message.sent[0], now):
            return
        if self._pushed_out(user, message) or self._replaced(user, message):
            return
        raise Violation(1, f"{name} was confirmed, and left {user.queue} for no rule")

    def _replaced(self, user: RuleUser, message: Ruled) -> bool:
        """Was there ever a newer one with its key?"""
        key = user.key_of(message.number)
        return bool(key) and any(
            user.key_of(other.number) == key and other.orders[-1] > min(message.orders)
            for other in user.messages.values()
            if other is not message
        )

    def _pushed_out(self, user: RuleUser, message: Ruled) -> bool:
        """Was there ever too much behind it? With priorities the head, which leaves, may be the newest; in a
        cycle what was rejected comes behind it once more, and is refused where the queue is full."""
        plan = user.plan
        if plan.refuses and not plan.cycle:
            return False
        anywhere = plan.cycle or plan.max_priority
        behind = user.sends - (1 if anywhere else min(message.orders))
        octets = user.octets - (0 if anywhere else message.octets_before)
        long = plan.max_length is not None and behind >= plan.max_length
        return long or (plan.max_length_bytes is not None and octets > plan.max_length_bytes)
