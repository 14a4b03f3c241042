"""What a client of rules does in a run, drawn from the seed. Part of a `Plan`."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class RulePlan:
    """Uses a queue with rules of its own and, with `dead_letters`, another for what leaves it. `message_ttl`,
    `expiration`: milliseconds, the queue's and the longest of its messages' own. `gets`: chance of a
    basic.get after each burst; `rejects`: of rejecting what it got. `rules_by`: whether the queue has its
    rules by arguments, by a policy or by both, of which each then says a part; they are the same rules."""

    name: str
    durable: bool
    message_ttl: int | None
    expiration: int | None
    max_length: int | None
    overflow: str
    dead_letters: bool
    max_priority: int
    persistent: float
    interval: float
    burst: int
    gets: float
    rejects: float
    cut_every: float = 0.0
    rules_by: str = "arguments"

    @property
    def refuses(self) -> bool:
        return self.overflow.startswith("reject-publish")


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
