"""The keys that a policy may have for queues and exchanges: names, types and limits. Pure.

The keys are RabbitMQ's (`rabbit_policies`). A key that has an effect here is a queue or exchange argument
without its `x-`, and is checked like that argument. Other RabbitMQ keys are kept without effect, and the
commands that set them say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from broker.model.patterns import PatternFault, check_pattern
from broker.model.queue.arguments import value_fault
from broker.model.routing.exchange import PEERS
from broker.model.values import CONFIRM_LEVELS

APPLY_TO = {
    "all": frozenset(("queues", "exchanges")),
    "queues": frozenset(("queues",)),
    "classic_queues": frozenset(("queues",)),
    "quorum_queues": frozenset(("queues",)),
    "exchanges": frozenset(("exchanges",)),
}
"""What each `apply-to` covers. Every queue of a pair is both, whether a client calls it classic or quorum."""
QUEUE_KEYS = {
    "expires": "x-expires",
    "message-ttl": "x-message-ttl",
    "max-length": "x-max-length",
    "max-length-bytes": "x-max-length-bytes",
    "overflow": "x-overflow",
    "dead-letter-exchange": "x-dead-letter-exchange",
    "dead-letter-routing-key": "x-dead-letter-routing-key",
    "delivery-limit": "x-delivery-limit",
    "consumer-timeout": "x-consumer-timeout",
    "dedup-window": "x-dedup-window",
}
"""Keys for queues, with the equivalent argument."""
CONFIRM = "ha-confirm"
"""The key for queues that no argument stands for: an application does not decide what its confirms mean."""
DEAD_LETTERS = "dead-letter-exchange"
ALTERNATE = "alternate-exchange"
"""The key for exchanges."""
UPSTREAM, UPSTREAM_PATTERN = "federation-upstream", "federation-upstream-pattern"
UPSTREAM_SET, EVERY_UPSTREAM = "federation-upstream-set", "all"
"""Keys for exchanges: from which upstreams they take. Of sets there is only that of all upstreams."""
EXCHANGE_KEYS = (ALTERNATE, UPSTREAM, UPSTREAM_PATTERN, UPSTREAM_SET)
WITHOUT_EFFECT = frozenset((
    "ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown",
    "ha-promote-on-failure", "queue-mode", "queue-version", "queue-master-locator", "queue-leader-locator",
    "max-in-memory-length", "max-in-memory-bytes",
    "dead-letter-strategy", "target-group-size",
))  # fmt: skip
"""RabbitMQ keys without effect here: a pair replicates every queue, or has no such feature."""
SMALLER = frozenset((
    "message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit", "max-in-memory-length",
    "max-in-memory-bytes",
))  # fmt: skip
"""Of these the smaller holds, if both a policy and an operator policy give one."""
OPERATOR_KEYS = SMALLER | {"overflow", "queue-version"}
"""What an operator policy may give, as in RabbitMQ. All are of queues."""


DEEPEST = 32
"""Maximum nesting of tables and arrays in a definition, as in a definitions file."""
LONGEST_KEY = 255


def policy_fault(definition: Mapping[str, object]) -> str | None:
    """The first fault of a definition; None if it is valid."""
    for key, value in definition.items():
        known = key in QUEUE_KEYS or key == CONFIRM or key in EXCHANGE_KEYS or key in WITHOUT_EFFECT
        fault = _value_fault(key, value) if known else "no policy has such a key"
        fault = fault or _unportable(value)
        if fault is not None:
            return f"{key:.80}: {fault}"
    return None


def operator_fault(definition: Mapping[str, object]) -> str | None:
    """The same of an operator policy."""
    for key in definition:
        if key not in OPERATOR_KEYS:
            return f"{key:.80}: no operator policy has such a key; it has {', '.join(sorted(OPERATOR_KEYS))}"
    return policy_fault(definition)


def merged(definition: Mapping[str, object], by_operator: Mapping[str, object]) -> Mapping[str, object]:
    """What a policy and an operator policy give together: of limits the smaller, else the operator's. An
    invalid value of the policy does not count."""
    found = {**definition, **by_operator}
    for key in SMALLER.intersection(definition, by_operator):
        own, asked = definition[key], by_operator[key]
        if isinstance(own, int) and isinstance(asked, int) and _value_fault(key, own) is None:
            found[key] = smaller(own, asked)
    return found


def smaller(one: int, other: int) -> int:
    """Of two limits. A negative delivery limit means none, so the other one holds."""
    return max(one, other) if min(one, other) < 0 else min(one, other)


def wrong_value(definition: Mapping[str, object]) -> tuple[str, str] | None:
    """The first effective key with an invalid value, and the fault."""
    for key, value in definition.items():
        if (fault := _value_fault(key, value)) is not None:
            return key, fault
    return None


def _value_fault(key: str, value: object) -> str | None:
    if value == PEERS and key in (ALTERNATE, DEAD_LETTERS):
        return f"exchange '{PEERS}' is for the nodes of the pair"
    if key in QUEUE_KEYS:
        return value_fault(QUEUE_KEYS[key], value)
    if key == CONFIRM:
        known = isinstance(value, str) and value in CONFIRM_LEVELS
        return None if known else f"not one of {', '.join(CONFIRM_LEVELS)}"
    if key not in EXCHANGE_KEYS:
        return None
    if not isinstance(value, str):
        return "not a string"
    return _pattern_fault(value) if key == UPSTREAM_PATTERN else None


def _pattern_fault(pattern: str) -> str | None:
    try:
        check_pattern(pattern)
    except PatternFault as error:
        return str(error)
    return None


def _unportable(value: object) -> str | None:
    """Why a definitions file could not hold the value, so that an export would be unreadable."""
    level: list[object] = [value]
    for _ in range(DEEPEST):
        inside: list[object] = []
        for item in level:
            if type(item) is int and not -(2**63) <= item < 2**63:
                return "a number that does not fit 64 bits"
            if isinstance(item, float) and not math.isfinite(item):
                return "a number too large"
            if isinstance(item, Mapping):
                if any(
                    len(str(key).encode(errors="surrogatepass")) > LONGEST_KEY or "\0" in str(key)
                    for key in item
                ):
                    return f"a key of more than {LONGEST_KEY} octets, or with a NUL"
                inside += item.values()
            elif isinstance(item, list):
                inside += item
        if not inside:
            return None
        level = inside
    return f"nested deeper than {DEEPEST}"


def without_effect(definition: Mapping[str, object]) -> list[str]:
    """Keys of the definition that have no effect."""
    keys = WITHOUT_EFFECT.intersection(definition)
    if definition.get(UPSTREAM_SET, EVERY_UPSTREAM) != EVERY_UPSTREAM:
        keys |= {UPSTREAM_SET}
    return sorted(keys)
