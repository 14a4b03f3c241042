"""The states of an AMQP 1.0 connection."""

from __future__ import annotations

import enum


class Amqp10Step(enum.Enum):
    """What the connection waits for, or its state."""

    SASL_HEADER = "the SASL header"
    SASL_INIT = "sasl-init"
    CHECKING = "the check of its password"
    AMQP_HEADER = "the AMQP header"
    OPEN = "open"
    HELD = "the hooks"
    RUNNING = "nothing: it is open"
    CLOSING = "close"
    CLOSED = "nothing: it is closed"


BEFORE_LOGIN = frozenset(
    (Amqp10Step.SASL_HEADER, Amqp10Step.SASL_INIT, Amqp10Step.CHECKING, Amqp10Step.AMQP_HEADER)
)
OPENING = BEFORE_LOGIN | {Amqp10Step.OPEN, Amqp10Step.HELD}
WAITING = frozenset((Amqp10Step.CHECKING, Amqp10Step.HELD))
"""States in which input is kept for later."""
NOT_SERVED = WAITING | {Amqp10Step.CLOSED}
"""States in which no frame is served."""
