"""What an AMQP 1.0 connection goes through."""

from __future__ import annotations

import enum


class Step(enum.Enum):
    """What the connection waits for, or what it is."""

    SASL_HEADER = "the SASL header"
    SASL_INIT = "sasl-init"
    CHECKING = "the check of its password"
    AMQP_HEADER = "the AMQP header"
    OPEN = "open"
    HELD = "the hooks"
    RUNNING = "nothing: it is open"
    CLOSING = "close"
    CLOSED = "nothing: it is closed"


BEFORE_LOGIN = frozenset((Step.SASL_HEADER, Step.SASL_INIT, Step.CHECKING, Step.AMQP_HEADER))
OPENING = BEFORE_LOGIN | {Step.OPEN, Step.HELD}
WAITING = frozenset((Step.CHECKING, Step.HELD))
"""What comes meanwhile is kept."""
