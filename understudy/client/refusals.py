"""What a broker answers to one message by closing channel or connection: its exchange is gone or not for us,
it is too large, its user-id is another's, its properties mean nothing.

Role: knows such an answer from a lost connection, and tells the application of it. No I/O.
"""

from __future__ import annotations

from amqp import spec
from amqp.exceptions import AMQPError, ChannelError, InternalError, RecoverableConnectionError

_WILL_HEAL = (RecoverableConnectionError, InternalError)
"""A broker that stops, is short of something, or fails by itself: another one may take the message."""


class Refused(Exception):
    """The broker will not have one message, however often it is sent: it is given up, and the others go on.
    `str()` is one line. `sequence` is the message's number, `code` and `text` are the broker's (404, ...), or
    501 and ours for one of which the broker would read nothing."""

    def __init__(
        self, sequence: int, message_id: str | None, exchange: str, routing_key: str, code: int, text: str
    ) -> None:
        which = f"message {sequence}" + ("" if message_id is None else f" (message_id {message_id!r})")
        super().__init__(
            f"{which}, published to exchange {exchange!r} with the routing key {routing_key!r}, is"
            f" refused and given up: {code} {text}"
        )
        self.sequence = sequence
        self.message_id = message_id
        self.exchange = exchange
        self.routing_key = routing_key
        self.code = code
        self.text = text


def is_of_a_publish(error: AMQPError) -> bool:
    """Did the broker close channel or connection for a message? On the channel of a publisher nothing else is
    asked of it, and not every broker names the method."""
    named = error.method_sig == spec.Basic.Publish
    return (named or isinstance(error, ChannelError)) and not isinstance(error, _WILL_HEAL)
