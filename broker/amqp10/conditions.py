"""Error conditions of AMQP 1.0 (part 2, 2.8.15-18), and which of them a fault of the broker's is."""

from __future__ import annotations

from proton import Condition

from broker.errors import AmqpError, short

FORCED = "amqp:connection:forced"
FRAMING = "amqp:connection:framing-error"
DECODE = "amqp:decode-error"
HANDLE_IN_USE = "amqp:session:handle-in-use"
INTERNAL = "amqp:internal-error"
INVALID_FIELD = "amqp:invalid-field"
NOT_ALLOWED = "amqp:not-allowed"
NOT_FOUND = "amqp:not-found"
NOT_IMPLEMENTED = "amqp:not-implemented"
PRECONDITION = "amqp:precondition-failed"
DELETED = "amqp:resource-deleted"
LIMIT = "amqp:resource-limit-exceeded"
UNAUTHORIZED = "amqp:unauthorized-access"
MESSAGE_SIZE = "amqp:link:message-size-exceeded"
TRANSFER_LIMIT = "amqp:link:transfer-limit-exceeded"

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


class Fault(Exception):
    """What the peer did wrong: `condition` is a symbol from above, the text one line for it and the log."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.condition = condition
        self.text = text


def condition_of(code: int) -> str:
    """The condition that says what the reply code says."""
    return _OF.get(code, INTERNAL)


def fault_of(error: AmqpError) -> Fault:
    """The same fault in the words of 1.0: without the label that the condition has become."""
    return Fault(condition_of(error.code), short(error.text))


def condition(fault: Fault) -> Condition:
    """For the engine."""
    return Condition(fault.condition, fault.text)
