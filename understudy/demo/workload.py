"""The workload of the demo: exchanges, queues, publishers, consumers, and how many messages each handles.

Values only. The demo and its worker processes share them, and declare the same objects on every connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import kombu.entity

BODY_BYTES = 256
BURST = 25
"""Consecutive messages by one route, as an application with one task after another sends them."""
PLAIN_QUEUE = "plain"

_Exchange: Any = kombu.entity.Exchange  # kombu's own annotations are partial
_Queue: Any = kombu.entity.Queue

_NEWS: Any = _Exchange("news", type="fanout", durable=True)
_LOGS: Any = _Exchange("logs", type="topic", durable=True)

QUEUES: dict[str, Any] = {
    "orders.eu": _Queue("orders.eu", durable=True),
    "orders.us": _Queue("orders.us", durable=True),
    "news.mail": _Queue("news.mail", exchange=_NEWS, durable=True),
    "news.web": _Queue("news.web", exchange=_NEWS, durable=True),
    "logs.errors": _Queue("logs.errors", exchange=_LOGS, routing_key="*.error", durable=True),
    "logs.all": _Queue("logs.all", exchange=_LOGS, routing_key="#", durable=True),
    PLAIN_QUEUE: _Queue(PLAIN_QUEUE, durable=True),
}


@dataclass(slots=True, frozen=True)
class Route:
    """Where one publish goes, and how many queues get it."""

    exchange: str
    routing_key: str
    copies: int


PUBLISHERS: dict[str, tuple[Route, ...]] = {
    "orders": (Route("", "orders.eu", 1), Route("", "orders.us", 1)),
    "news": (Route("news", "", 2),),
    "logs": (Route("logs", "shop.info", 1), Route("logs", "bank.error", 2), Route("logs", "bank.info", 1)),
}
CONSUMERS: dict[str, tuple[str, ...]] = {
    "shop": ("orders.eu", "orders.us"),
    "press": ("news.mail", "news.web"),
    "watch": ("logs.errors", "logs.all"),
}


def queues_of(publisher: str) -> list[str]:
    """The queues that a publisher's messages reach."""
    return [name for name in QUEUES if name.startswith(publisher + ".")]


@dataclass(slots=True, frozen=True)
class Work:
    """The task of one worker process, as JSON on its command line."""

    role: str
    """publisher, consumer or plain."""
    name: str
    addresses: str
    ledger_dir: str
    messages: int = 0
    rate: float = 0.0
    """Messages a second; 0: no limit."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def shares(messages: int, rate: float) -> dict[str, tuple[int, float]]:
    """The number of messages and the rate for each publisher and for the plain client.

    The plain client is slow because it waits for each confirm. It gets a fiftieth of the messages, at most
    1,000.
    """
    plain = min(1000, messages // 50)
    names = list(PUBLISHERS)
    rest, each_rate = messages - plain, rate / len(names)
    counts = [rest // len(names) + (index < rest % len(names)) for index in range(len(names))]
    found = {name: (count, each_rate) for name, count in zip(names, counts, strict=True)}
    found[PLAIN_QUEUE] = (plain, rate * plain / max(1, rest))
    return found


def route_of(publisher: str) -> Callable[[int], Route]:
    """The route of a publisher's n-th message: bursts, one route after the other."""
    routes = PUBLISHERS[publisher]
    return lambda index: routes[index // BURST % len(routes)]
