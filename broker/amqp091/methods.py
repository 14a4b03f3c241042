"""Frames and methods that are not on the hot path: to which part of the connection each goes, and which are
out of place.

Called by `ServerConnection` for every frame but publishes and acks. Raises what ends the connection, with
class and method ids filled in; what ends a channel only is handed to `ServerConnection.fail`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from broker.amqp091.channel import Channel
from broker.amqp091.frames import HEARTBEAT, METHOD, OVERHEAD
from broker.amqp091.grammar import Method, decode_arguments, encode_frame, lookup
from broker.amqp091.handshake import PEER_CAPABILITY
from broker.errors import (
    AmqpError,
    BadChannel,
    ChannelError,
    CommandInvalid,
    FrameError,
    LoginRefused,
    NotAllowed,
    UnexpectedFrame,
)  # fmt: skip
from broker.security.identity import ADMINISTRATOR, HA

if TYPE_CHECKING:
    from broker.amqp091.connection import ServerConnection

EXTENSION_CLASS = 250
LINK_METHODS = range(10, 50)
"""Extension methods of the link between nodes: for users with the tag `ha` only. The others manage."""


class State(enum.Enum):
    OPENING = "opening"
    RUNNING = "running"
    CLOSING = "closing"
    """We sent connection.close and wait for close-ok."""
    CLOSED = "closed"


def serve_frame(connection: ServerConnection, kind: int, number: int, buf: bytes, pos: int, end: int) -> None:
    """Serve a whole frame that is no method on a channel of a running connection."""
    if kind == HEARTBEAT:
        if number or end - pos != OVERHEAD:
            raise FrameError("heartbeat on a channel other than 0, or with a payload")
        return
    if connection.state is State.CLOSING:
        serve_while_closing(connection, kind, number, buf[pos + 7 : end - 1])
        return
    if kind == METHOD:
        connection.publisher.flush()
        serve_method(connection, number, buf[pos + 7 : end - 1])
        return
    if connection.state is not State.RUNNING or number == 0:
        raise UnexpectedFrame("content frame where a method was expected")
    connection.publisher.content(kind, number, buf, pos, end)


def serve_method(connection: ServerConnection, number: int, payload: bytes) -> None:
    """Serve one method frame's payload, on channel `number`."""
    method = lookup(payload)
    if not method.from_client:
        raise CommandInvalid(f"{method.name} is for servers to send", method.class_id, method.method_id)
    try:
        if number == 0:
            _on_channel_0(connection, method, payload)
        elif method.class_id == 10:
            raise CommandInvalid(f"{method.name} on channel {number}")
        elif connection.state is not State.RUNNING:
            raise CommandInvalid(f"{method.name} before the connection is open")
        else:
            _on_channel(connection, number, method, payload)
    except AmqpError as error:
        if not error.class_id:
            error.class_id, error.method_id = method.class_id, method.method_id
        raise


def _on_channel_0(connection: ServerConnection, method: Method, payload: bytes) -> None:
    if method.class_id != 10:
        if connection.state is State.RUNNING:
            raise BadChannel(f"{method.name} on channel 0")
        raise CommandInvalid(f"{method.name} before the connection is open")
    arguments = decode_arguments(method, payload)
    if method.name == "connection.close":
        connection.log_closed("by the client")
        connection.let_go()
        connection.send(encode_frame(0, "connection.close-ok"))
        connection.clean = True
        connection.finish()
    elif connection.state is State.OPENING:
        connection.handshake.method(method, arguments, connection.now)
    elif method.name == "connection.update-secret":
        # A secret that expires is a token of OAuth 2; a password holds for the connection that it opened.
        connection.log("connection.update-secret answered, and ignored: passwords do not expire")
        connection.send(encode_frame(0, "connection.update-secret-ok"))
    else:
        raise CommandInvalid(f"{method.name} on an open connection")


def _on_channel(connection: ServerConnection, number: int, method: Method, payload: bytes) -> None:
    channel = connection.channels.get(number)
    if method.name == "channel.open":
        _open_channel(connection, number, method, payload)
        return
    if channel is None:
        raise BadChannel(f"{method.name} on channel {number}, which is not open")
    try:
        arguments = decode_arguments(method, payload)
    except ChannelError as error:
        if channel.is_open:
            connection.fail(channel, error)
        return
    if not channel.is_open:
        channel.while_closing(method.name)
    elif method.class_id == EXTENSION_CLASS:
        _extension(connection, number, method.method_id, arguments["payload"])
    elif connection.is_management and method.class_id != 20:
        raise NotAllowed("this connection claimed to speak the extension class only")
    else:
        try:
            channel.method(method, arguments)
        except ChannelError as error:
            error.class_id, error.method_id = method.class_id, method.method_id
            connection.fail(channel, error)


def _open_channel(connection: ServerConnection, number: int, method: Method, payload: bytes) -> None:
    present = connection.channels.get(number)
    if present is not None and not present.failed:
        raise BadChannel("second 'channel.open' seen")
    if present is not None and not present.crossed:
        return  # closing, everything is swallowed
    _check_room(connection)
    decode_arguments(method, payload)
    connection.channels[number] = Channel(connection, number)
    connection.send(encode_frame(number, "channel.open-ok"))


def _check_room(connection: ServerConnection) -> None:
    """Channel-max limits how many channels are open, not their numbers, as in RabbitMQ. Raises NotAllowed."""
    limit = connection.channel_max
    if len(connection.channels) >= limit:
        opened = sum(channel.is_open for channel in connection.channels.values())
        if opened >= limit:
            raise NotAllowed(
                f"number of channels opened ({opened}) has reached the negotiated channel_max ({limit})"
            )


def _extension(connection: ServerConnection, number: int, method_id: int, payload: bytes) -> None:
    """Link methods are for `ha`, on a connection that was let in as a peer's; the rest for `administrator`,
    and for `ha` as well."""
    of_link = method_id in LINK_METHODS
    wanted = {HA} if of_link else {HA, ADMINISTRATOR}
    if not wanted & connection.tags or (of_link and not connection.capability(PEER_CAPABILITY)):
        raise LoginRefused(f"extension method {method_id} is refused to user '{connection.user}'")
    connection.extension_used = True
    connection.broker.hooks.extension(connection, number, method_id, payload)


def serve_while_closing(connection: ServerConnection, kind: int, number: int, payload: bytes) -> None:
    """We sent close: everything is discarded but close-ok, and a close that crossed ours."""
    if kind != METHOD or number:
        return
    name = lookup(payload).name
    if name == "connection.close":
        connection.send(encode_frame(0, "connection.close-ok"))
    if name in ("connection.close-ok", "connection.close"):
        connection.finish()
