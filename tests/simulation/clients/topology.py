"""What the clients declare, drawn from the seed, and the checkers' own idea of where a message goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

WATCH = "watch"
"""A queue of events of membership, which nobody consumes; in no plan."""
KEYS = ("a", "a.b", "a.b.c", "b", "c.a")
PATTERNS = ("a.#", "*.b", "#", "a.*.c", "b", "a")


@dataclass(slots=True, frozen=True)
class QueuePlan:
    name: str
    durable: bool
    single_active: bool = False
    """One of its consumers gets all messages (`x-single-active-consumer`)."""


@dataclass(slots=True, frozen=True)
class ExchangePlan:
    name: str
    type: str
    durable: bool
    builtin: bool = False
    alternate: str = ""
    internal: bool = False
    """Clients may not publish to it: what comes, comes from another exchange."""


@dataclass(slots=True, frozen=True)
class BindingPlan:
    source: str
    target: str
    key: str
    to_exchange: bool = False


@dataclass(slots=True, frozen=True)
class Topology:
    """All of it is declared before the first publish and stays to the end."""

    queues: tuple[QueuePlan, ...] = ()
    exchanges: tuple[ExchangePlan, ...] = ()
    bindings: tuple[BindingPlan, ...] = ()
    churned: str = "amq.fanout"
    """The fanout exchange to which short-lived queues are bound."""

    @property
    def all_durable(self) -> bool:
        """Does the whole of it survive a restart?"""
        return all(q.durable for q in self.queues) and all(e.durable for e in self.exchanges)

    def durable(self, queue: str) -> bool:
        return all(plan.durable for plan in self.queues if plan.name == queue)

    def exchange_durable(self, exchange: str) -> bool:
        return all(plan.durable for plan in self.exchanges if plan.name == exchange)

    def single_active(self, queue: str) -> bool:
        return any(plan.single_active for plan in self.queues if plan.name == queue)

    def internal(self, exchange: str) -> bool:
        return any(plan.internal for plan in self.exchanges if plan.name == exchange)

    def lasting(self, thing: tuple[str, ...]) -> bool:
        """Does a queue, an exchange or a binding (both its ends) survive a restart?"""
        return all(self.durable(name) and self.exchange_durable(name) for name in thing[1:3])

    def route(self, exchange: str, key: str) -> frozenset[str]:
        """Names of the lasting queues that a publish reaches."""
        if exchange == "":
            return frozenset(plan.name for plan in self.queues if plan.name == key)
        found: set[str] = set()
        seen: set[str] = set()
        todo = [exchange]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            this = next(plan for plan in self.exchanges if plan.name == name)
            taken = [b for b in self.bindings if b.source == name and matches(this.type, b.key, key)]
            for binding in taken:
                (todo.append if binding.to_exchange else found.add)(binding.target)
            if not taken:
                todo += [plan.name for plan in self.exchanges if plan.name == this.alternate]
        return frozenset(found)


def matches(kind: str, pattern: str, key: str) -> bool:
    """Does a binding with `pattern` on an exchange of type `kind` take a message with `key`?"""
    if kind == "fanout":
        return True
    if kind == "direct":
        return pattern == key
    return _topic(pattern.split("."), key.split("."))


def _topic(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_topic(pattern[1:], words[n:]) for n in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _topic(pattern[1:], words[1:])


def draw_topology(rng: Random) -> Topology:
    """Two to four queues behind the default exchange, a fanout, a topic and perhaps a direct exchange."""
    queues: list[QueuePlan] = []
    exchanges: list[ExchangePlan] = []
    bindings: list[BindingPlan] = []
    lasting = 1.0 if rng.random() < 0.4 else 0.75
    for n in range(rng.randint(2, 4)):
        queues.append(QueuePlan(f"q{n + 1}", durable=rng.random() < lasting))
    for kind in ("fanout", "topic", "direct"):
        builtin = rng.random() < 0.4
        name = f"amq.{kind}" if builtin else f"x.{kind}"
        exchanges.append(ExchangePlan(name, kind, builtin or rng.random() < lasting, builtin))
    fanout, topic, direct = (plan.name for plan in exchanges)
    for queue in queues:
        if rng.random() < 0.8:
            bindings.append(BindingPlan(fanout, queue.name, ""))
        if rng.random() < 0.6:
            bindings.append(BindingPlan(topic, queue.name, rng.choice(PATTERNS)))
        if rng.random() < 0.4:
            bindings.append(BindingPlan(direct, queue.name, rng.choice(KEYS)))
    if rng.random() < 0.4:
        bindings.append(BindingPlan(direct, topic, rng.choice(KEYS), to_exchange=True))
    return Topology(tuple(queues), tuple(exchanges), tuple(bindings), churned=fanout)


def draw_alternates(topology: Topology, rng: Random) -> Topology:
    """Topic and direct exchange may take what the other one has no binding for. Only where all of it survives
    a restart: a binding that is lost would send its messages there.
    """
    other = {plan.type: plan.name for plan in topology.exchanges if plan.type != "fanout"}
    ways = {"topic": other["direct"], "direct": other["topic"]}
    exchanges = tuple(
        replace(plan, alternate=ways[plan.type] if rng.random() < 0.3 else "")
        if plan.type in ways and not plan.builtin and topology.all_durable
        else plan
        for plan in topology.exchanges
    )
    return replace(topology, exchanges=exchanges)


def draw_internal(topology: Topology, rng: Random) -> Topology:
    """Behind one of the others there may be one or two internal exchanges, which lead to some queues."""
    if rng.random() < 0.6:
        return topology
    exchanges, bindings = list(topology.exchanges), list(topology.bindings)
    outer = rng.choice(topology.exchanges).name
    for name in rng.choice((("x.inner",), ("x.inner", "x.inmost"))):
        kind = rng.choice(("fanout", "topic", "direct"))
        durable = topology.all_durable or rng.random() < 0.75
        exchanges.append(ExchangePlan(name, kind, durable, internal=True))
        bindings.append(BindingPlan(outer, name, rng.choice(KEYS), to_exchange=True))
        for queue in topology.queues:
            if rng.random() < 0.6:
                key = rng.choice(PATTERNS if kind == "topic" else KEYS)
                bindings.append(BindingPlan(name, queue.name, key))
        outer = name
    return replace(topology, exchanges=tuple(exchanges), bindings=tuple(bindings))


def draw_target(topology: Topology, rng: Random) -> tuple[str, str]:
    """An exchange and a routing key to publish to; most publishes reach a queue."""
    if rng.random() < 0.4:
        return "", rng.choice(topology.queues).name
    return rng.choice([e for e in topology.exchanges if not e.internal]).name, rng.choice(KEYS)
