"""Error conditions of AMQP 1.0 (part 2, 2.8.15-18)."""

from __future__ import annotations

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


class Fault(Exception):
    """An error of the peer: `condition` is a symbol from above, `text` one line for the peer and the log."""

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.condition = condition
        self.text = text
