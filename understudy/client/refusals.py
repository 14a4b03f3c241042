"""Refusals: a broker closes the channel or the connection because of one message.

Possible causes: the exchange is missing or forbidden, the message is too large, the user-id belongs to
another user, or the properties are invalid.

Role: distinguishes a refusal from a lost connection, and reports it to the application. No I/O.
"""

from __future__ import annotations

from amqp import spec
from amqp.exceptions import AMQPError, ChannelError, InternalError, RecoverableConnectionError

_WILL_HEAL = (RecoverableConnectionError, InternalError)
"""The broker stops, lacks a resource or has an internal error: another broker may take the message."""


class Refused(Exception):
    """The broker refuses one message for good: the kit drops it and goes on with the others.

    `sequence` is the message's number. `code` and `text` are the broker's (such as 404), or 501 and the kit's
    own text for a message that the broker could not even read. `str()` is one line."""

    def __init__(
        self, sequence: int, message_id: str | None, exchange: str, routing_key: str, code: int, text: str
    ) -> None:
        which = f"message {sequence}" + ("" if message_id is None else f" (message_id {message_id!r})")
        super().__init__(
            f"{which}, published to exchange {exchange!r} with the routing key {routing_key!r}, is"
            f" refused and dropped: {code} {text}"
        )
        self.sequence = sequence
        self.message_id = message_id
        self.exchange = exchange
        self.routing_key = routing_key
        self.code = code
        self.text = text


def is_of_a_publish(error: AMQPError) -> bool:
    """Whether the broker closed the channel or connection because of a published message.

    A publisher's channel carries no other requests, so any channel error counts: not every broker names the
    method."""
    named = error.method_sig == spec.Basic.Publish
    return (named or isinstance(error, ChannelError)) and not isinstance(error, _WILL_HEAL)
