"""Maps AMQP 0-9-1 reply codes and broker errors to AMQP 1.0 conditions."""

from __future__ import annotations

from proton import Condition

from broker.errors import AmqpError
from understudy.shared.amqp10.conditions import (
    DECODE,
    FORCED,
    FRAMING,
    INTERNAL,
    LIMIT,
    MESSAGE_SIZE,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION,
    UNAUTHORIZED,
    Fault,
)
from understudy.shared.text import short

_OF = {
    311: MESSAGE_SIZE,
    320: FORCED,
    403: UNAUTHORIZED,
    404: NOT_FOUND,
    405: "amqp:resource-locked",
    406: PRECONDITION,
    501: FRAMING,
    502: DECODE,
    506: LIMIT,
    530: NOT_ALLOWED,
    540: NOT_IMPLEMENTED,
}
"""By reply code of AMQP 0-9-1."""


def condition_of(code: int) -> str:
    """The condition for a reply code."""
    return _OF.get(code, INTERNAL)


def fault_of(error: AmqpError) -> Fault:
    """The AMQP 1.0 fault for an error. Without the label, which the condition replaces."""
    return Fault(condition_of(error.code), short(error.text))


def condition(fault: Fault) -> Condition:
    """For the engine."""
    return Condition(fault.condition, fault.text)
