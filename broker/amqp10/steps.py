"""What an AMQP 1.0 connection goes through."""

from __future__ import annotations

import enum


class Step(enum.Enum):
    """What the connection waits for, or what it is."""

    SASL_HEADER = "the SASL header"
    SASL_INIT = "sasl-init"
    AMQP_HEADER = "the AMQP header"
    OPEN = "open"
    HELD = "the hooks"
    RUNNING = "nothing: it is open"
    CLOSING = "close"
    CLOSED = "nothing: it is closed"


OPENING = frozenset((Step.SASL_HEADER, Step.SASL_INIT, Step.AMQP_HEADER, Step.OPEN, Step.HELD))
