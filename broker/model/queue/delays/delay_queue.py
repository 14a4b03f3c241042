"""Delay queues: what a delayed-message exchange keeps until its time comes.

Each exchange of type `x-delayed-message` has one. They are ordinary queues of a reserved name, so that they
are stored and replicated as any other. Their messages expire when their delay is over, earliest first, and go
back to the exchange in one batch of history, like dead letters. Clients and policies leave the queues alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.model.queue.arguments import LONGEST
from broker.model.queue.link import is_link

PREFIX = "amq.delayed."
DELAY = "x-delay"
"""Header: milliseconds. Negative once the delay is over, as with RabbitMQ's plugin."""


def delay_name(exchange: str) -> str:
    """The delay queue of an exchange."""
    return f"{PREFIX}{exchange}"


def is_delay(name: str) -> bool:
    return name.startswith(PREFIX)


def is_internal(name: str) -> bool:
    """Whether the queue is the broker's own, and no client's."""
    return is_link(name) or is_delay(name)


def delay_of(headers: Mapping[str, object]) -> int:
    """Milliseconds that a message is to wait, at most ten years; 0: not at all."""
    found = headers.get(DELAY)
    return min(max(0, found), LONGEST) if type(found) is int else 0
