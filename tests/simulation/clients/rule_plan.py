"""What a client of rules does in a run, drawn from the seed. Part of a `Plan`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

PATIENT = 1 / 3
"""Part of the runs with a client whose messages live for seconds."""
LATEST = 1 / 8
"""Part of the runs with a client of a last-value queue."""
DELAYED = 1 / 8
"""Part of the runs with a client of a delayed-message exchange."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A queue for dead letters with rules of its own, from which they go on. Nobody gets from it."""

    message_ttl: int | None
    max_length: int | None
    max_length_bytes: int | None
    overflow: str

    @property
    def limited(self) -> bool:
        return self.max_length is not None or self.max_length_bytes is not None


@dataclass(frozen=True, slots=True)
class RulePlan:
    """Uses a queue with rules of its own and, with `dead_letters`, another for what leaves it. `message_ttl`,
    `expiration`: milliseconds, the queue's and the longest of its messages' own. `gets`: chance of a
    basic.get after each burst; `rejects`: of rejecting what it got. `rules_by`: whether the queue has its
    rules by arguments, by a policy or by both, of which each then says a part; they are the same rules.

    `body`: octets that a body has beyond its key, at most; it comes in frames of `frame` octets. `through`:
    dead letters leave the queue by an internal exchange. `steps`: queues that they come through before the
    last one; with `cycle` back to the first queue instead. (Without steps there is no cycle.)"""

    name: str
    durable: bool
    persistent: float
    interval: float
    burst: int
    gets: float
    message_ttl: int | None = None
    expiration: int | None = None
    max_length: int | None = None
    overflow: str = ""
    dead_letters: bool = False
    max_priority: int = 0
    rejects: float = 0.0
    cut_every: float = 0.0
    rules_by: str = "arguments"
    max_length_bytes: int | None = None
    body: int = 0
    frame: int = 4096
    through: bool = False
    steps: tuple[StepPlan, ...] = ()
    cycle: bool = False
    last_values: int = 0
    """Keys of a last-value queue, which the messages have in turn; 0: it is none."""
    delay: int = 0
    """Milliseconds for which messages wait at a delayed-message exchange, at most; 0: none does."""

    def __post_init__(self) -> None:
        if not self.steps:
            object.__setattr__(self, "cycle", False)

    @property
    def refuses(self) -> bool:
        return self.overflow.startswith("reject-publish")

    @property
    def limited(self) -> bool:
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def timed(self) -> bool:
        """Does any message leave any of its queues at a time?"""
        times = (
            self.message_ttl,
            self.expiration,
            self.delay or None,
            *(step.message_ttl for step in self.steps),
        )
        return any(ms is not None for ms in times)

    @property
    def longest_time(self) -> int:
        """Milliseconds until the last message has come to where it stays, once nobody touches any. In a
        cycle, the last one that comes to a limit may push another on, which was rejected: around once more.
        """
        own = max(self.message_ttl or 0, self.expiration or 0) + self.delay
        return (own + sum(step.message_ttl or 0 for step in self.steps)) * (2 if self.cycle else 1)


def draw_rule_users(rng: Random, policies: Random, *, cut_every: float) -> tuple[RulePlan, ...]:
    """None in half of the runs."""
    return tuple(_rule_user(rng, policies, f"r{n + 1}", cut_every) for n in range(rng.choice((0, 0, 1, 2))))


def _rule_user(rng: Random, policies: Random, name: str, cut_every: float) -> RulePlan:
    limit = rng.choice((None, 0, 1, 5, 20))
    overflow = rng.choice(("", "drop-head", "reject-publish", "reject-publish-dlx"))
    dead_letters = rng.random() < 0.7
    return RulePlan(
        name,
        durable=rng.random() < 0.8,
        message_ttl=rng.choice((None, None, 0, 20, 100, 1000)),
        expiration=rng.choice((None, None, 50, 500)),
        max_length=limit,
        overflow=overflow,
        dead_letters=dead_letters,
        max_priority=rng.choice((0, 0, 0, 2)),
        persistent=rng.choice((0.5, 1.0, 1.0)),
        interval=rng.choice((0.02, 0.1, 0.3)),
        burst=rng.choice((1, 4, 10)),
        gets=rng.choice((0.0, 0.3)),
        rejects=rng.choice((0.0, 0.5, 1.0)),
        cut_every=cut_every,
        rules_by=policies.choice(("arguments", "arguments", "policy", "both")),
    )


def draw_patient_user(rng: Random, *, cut_every: float) -> tuple[RulePlan, ...]:
    """One in a third of the runs. Its messages live for longer than a failover takes, so that it can be seen
    whether they end early by it."""
    if rng.random() >= PATIENT:
        return ()
    plan = RulePlan(
        "patient",
        durable=rng.random() < 0.8,
        message_ttl=rng.choice((3_000, 6_000)),
        expiration=rng.choice((None, None, 6_000)),
        dead_letters=rng.random() < 0.5,
        persistent=rng.choice((0.5, 1.0, 1.0)),
        interval=rng.choice((0.02, 0.1)),
        burst=rng.choice((1, 4)),
        gets=rng.choice((0.0, 0.3)),
        rejects=rng.choice((0.0, 0.5)),
        cut_every=cut_every,
    )
    return (plan,)


def draw_latest_user(rng: Random, *, cut_every: float) -> tuple[RulePlan, ...]:
    """One in an eighth of the runs, whose queue keeps last values only."""
    if rng.random() >= LATEST:
        return ()
    plan = RulePlan(
        "latest",
        durable=rng.random() < 0.8,
        expiration=rng.choice((None, None, 500)),
        max_length=rng.choice((None, None, 5)),
        overflow=rng.choice(("", "drop-head", "reject-publish")),
        persistent=rng.choice((0.5, 1.0, 1.0)),
        interval=rng.choice((0.02, 0.1)),
        burst=rng.choice((1, 4, 10)),
        gets=rng.choice((0.0, 0.3)),
        rejects=rng.choice((0.0, 0.5)),
        cut_every=cut_every,
        rules_by=rng.choice(("arguments", "arguments", "policy", "both")),
        last_values=rng.choice((1, 3, 10)),
    )
    return (plan,)


def draw_delayed_user(rng: Random, *, cut_every: float) -> tuple[RulePlan, ...]:
    """One in an eighth of the runs, whose messages wait before they come to their queue."""
    if rng.random() >= DELAYED:
        return ()
    plan = RulePlan(
        "delayed",
        durable=rng.random() < 0.8,
        persistent=rng.choice((0.5, 1.0, 1.0)),
        interval=rng.choice((0.02, 0.1)),
        burst=rng.choice((1, 4, 10)),
        gets=rng.choice((0.0, 0.3)),
        cut_every=cut_every,
        delay=rng.choice((20, 300, 3_000)),
    )
    return (plan,)


def draw_more_rules(rng: Random, plan: RulePlan) -> RulePlan:
    """A limit in octets, an internal exchange and a chain of dead letters: each in a part of the users."""
    if rng.random() < 0.4:
        plan = replace(
            plan,
            max_length=rng.choice((None, None, plan.max_length)),
            max_length_bytes=rng.choice((0, 40, 150, 1000)),
            overflow=rng.choice((plan.overflow, "drop-head")),
            body=rng.choice((0, 20, 100, 300)),
            frame=rng.choice((40, 4096)),
        )
    if not plan.dead_letters:
        return plan
    plan = replace(plan, through=rng.random() < 0.3)
    if rng.random() < 0.5:
        return plan
    steps = tuple(_step(rng) for _ in range(rng.choice((1, 1, 2))))
    if rng.random() < 0.5:
        return replace(plan, steps=steps)
    return replace(plan, steps=steps, cycle=True, gets=0.5, rejects=rng.choice((0.5, 1.0)))


def _step(rng: Random) -> StepPlan:
    """It sends on what it does not take: so nothing ends there."""
    return StepPlan(
        message_ttl=rng.choice((None, 0, 20, 100, 300)),
        max_length=rng.choice((None, None, 0, 3)),
        max_length_bytes=rng.choice((None, None, 50)),
        overflow=rng.choice(("", "drop-head", "reject-publish-dlx")),
    )
