"""Which condition of AMQP 1.0 stands for a reply code of AMQP 0-9-1, and for a fault of the broker's."""

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
    """The condition that says what the reply code says."""
    return _OF.get(code, INTERNAL)


def fault_of(error: AmqpError) -> Fault:
    """The same fault in the words of 1.0: without the label that the condition has become."""
    return Fault(condition_of(error.code), short(error.text))


def condition(fault: Fault) -> Condition:
    """For the engine."""
    return Condition(fault.condition, fault.text)
