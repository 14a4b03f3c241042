"""A small AMQP 0-9-1 client without I/O, for the link and the CLI: handshake, one channel, extension class.

With `plain=True` it serves plain AMQP 0-9-1, too: after the handshake its owner gets the frames of all
channels above 1, and sends frames of its own. It frames, and knows nothing of what is in them.

Capabilities: `{"understudy.ha-peer": True}` for the link (user with tag `ha`), `{"understudy.management":
True}` for operators (tag `administrator`). A server accepts such a connection even while it refuses ordinary
clients, and allows only the extension class on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker.amqp091.codec.frames import (
    BODY,
    EXTENSION_OVERHEAD,
    FRAME_END,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    OVERHEAD,
    PROTOCOL_HEADER,
    extension_head,
    head,
)
from broker.amqp091.codec.grammar import decode_arguments, encode_frame, lookup
from broker.errors import AmqpError, FrameError
from broker.heartbeat import Heartbeat, HeartbeatVerdict
from understudy.shared.text import short

SPEAKS_TLS = "the server speaks TLS, and was not spoken to in it"
"""The cause, if the server answers with a TLS alert."""
NO_BROKER = "the server is a web server"
NOT_IN_TIME = "the server did not finish the handshake in time"
_EXTENSION = b"\x00\xfa"
_KINDS, _CONTENT = frozenset((METHOD, HEARTBEAT)), frozenset((HEADER, BODY))
_CLOSE_WAIT = 3.0
"""Seconds to wait for close-ok after connection.close."""


@dataclass(slots=True, frozen=True)
class Opened:
    """The handshake is done and the channel is open: extension methods may be sent."""

    server_properties: dict[str, Any]


@dataclass(slots=True, frozen=True)
class ExtensionReceived:
    channel: int
    method_id: int
    payload: bytes


@dataclass(slots=True, frozen=True)
class FramesReceived:
    """Frames of plain AMQP on channels above 1, in order: type, channel, and the whole frame."""

    frames: list[tuple[int, int, bytes]]


@dataclass(slots=True, frozen=True)
class Closed:
    """The connection is over. `code` 0: the socket was lost without a connection.close.

    `by_peer`: the server sent connection.close with this code and text.
    """

    code: int
    text: str
    by_peer: bool


ClientEvent = Opened | ExtensionReceived | FramesReceived | Closed


class ClientConnection:
    """Drive it with `receive`, `eof`, `lost` and `timers`; read `events()` and `take_output()`; close the
    socket when `wants_close`.

    `opened`: the handshake is done, and the connection is not closed.
    """

    __slots__ = (
        "_at_once", "_closed", "_closing", "_deadline", "_events", "_frames_in", "_life", "_now", "_out",
        "_password", "_pending", "_plain", "_properties", "_tail", "_user", "_vhost", "_wanted",
        "channel_max", "frame_max", "opened", "server_properties", "wants_close",
    )  # fmt: skip

    def __init__(
        self, user: str, password: str, now: float, *, vhost: str = "/", capabilities: dict[str,
        bool] | None = None,
        client_properties: dict[str, Any] | None = None, heartbeat: int = 60, frame_max: int = 131072,
        handshake_timeout: float = 10.0, plain: bool = False,
    ) -> None:  # fmt: skip
        self._plain = plain
        self._at_once = bool(capabilities) and not plain
        """A server holds no connection of a node or an operator: what follows need not wait for an answer."""
        self._frames_in: list[tuple[int, int, bytes]] = []
        self._user, self._password, self._vhost = user, password, vhost
        own = {"authentication_failure_close": True, "connection.blocked": True, **(capabilities or {})}
        self._properties = {"product": "Understudy", **(client_properties or {}), "capabilities": own}
        self._wanted = heartbeat
        self.frame_max = frame_max
        self.channel_max = 0xFFFF
        self.server_properties: dict[str, Any] = {}
        self._events: list[ClientEvent] = []
        self._out: list[bytes] = [PROTOCOL_HEADER]
        self._pending = 0
        self._tail = b""
        self._now = now
        self._life = Heartbeat(now)
        self._deadline: float | None = now + handshake_timeout
        self._closing: Closed | None = None
        self._closed = False
        self.opened = False
        self.wants_close = False

    # -- input

    def receive(self, data: bytes, now: float) -> None:
        """Bytes arrived. Never raises because of the server's input."""
        self._now = self._life.received = now
        if self._closed:
            return
        buf = self._tail + data if self._tail else data
        try:
            at = self._frames(buf)
        except AmqpError as error:
            self._frames_in = []
            self._fail(error.code, error.reply_text)
            return
        self._tail = buf[at:]
        if self._frames_in:
            self._events.append(FramesReceived(self._frames_in))
            self._frames_in = []

    def _frames(self, buf: bytes) -> int:
        pos, size = 0, len(buf)
        if buf[:1] == b"A":
            if size < 8:
                return 0
            raise FrameError("the server speaks another version of the protocol")
        if buf[:5] == b"HTTP/":
            raise FrameError(NO_BROKER)
        if buf[:2] == b"\x15\x03":
            raise FrameError(SPEAKS_TLS)
        while size - pos >= 7 and not self._closed:
            kind, channel, length = head(buf, pos)
            plain = self._plain and channel > 1
            content = plain and kind in _CONTENT
            # RabbitMQ sends a content header whole, also a larger one.
            most = self.frame_max * 4 if content and kind == HEADER else self.frame_max
            fits = length + OVERHEAD <= most
            if not fits or not (content or kind in _KINDS):
                raise FrameError("the server sent a frame that no server sends here")
            end = pos + OVERHEAD + length
            if end > size:
                break
            if buf[end - 1] != FRAME_END:
                raise FrameError("the server sent a frame without its end")
            if plain and self.opened and kind != HEARTBEAT:
                self._frames_in.append((kind, channel, buf[pos:end]))
            elif kind == METHOD:
                if buf[pos + 7 : pos + 9] == _EXTENSION:
                    self._extension(channel, buf, pos, end)
                else:
                    self._method(buf[pos + 7 : end - 1])
            pos = end
        return pos

    def _extension(self, channel: int, buf: bytes, pos: int, end: int) -> None:
        if (
            end - pos < EXTENSION_OVERHEAD
            or int.from_bytes(buf[pos + 11 : pos + 15], "big") != end - pos - 16
        ):
            raise FrameError("the server sent an extension frame of a wrong size")
        method_id = int.from_bytes(buf[pos + 9 : pos + 11], "big")
        self._events.append(ExtensionReceived(channel, method_id, buf[pos + 15 : end - 1]))

    def _method(self, payload: bytes) -> None:
        method = lookup(payload)
        arguments = decode_arguments(method, payload)
        match method.name:
            case "connection.start":
                self.server_properties = arguments["server_properties"]
                response = f"\0{self._user}\0{self._password}".encode()
                self._send(
                    0, "connection.start-ok", client_properties=self._properties, mechanism="PLAIN",
                    response=response, locale="en_US",
                )  # fmt: skip
            case "connection.tune":
                self.frame_max = min(self.frame_max, arguments["frame_max"] or self.frame_max)
                self.channel_max = arguments["channel_max"] or self.channel_max
                self._life.interval = _lower(self._wanted, arguments["heartbeat"])
                self._send(
                    0, "connection.tune-ok", channel_max=arguments["channel_max"], frame_max=self.frame_max,
                    heartbeat=self._life.interval,
                )  # fmt: skip
                self._send(0, "connection.open", virtual_host=self._vhost)
                if self._at_once:
                    self._send(1, "channel.open")
            case "connection.open-ok":
                if not self._at_once:
                    self._send(1, "channel.open")
            case "channel.open-ok":
                self.opened = True
                self._deadline = None
                self._events.append(Opened(self.server_properties))
            case "connection.close":
                if self._frames_in:  # what came before it
                    self._events.append(FramesReceived(self._frames_in))
                    self._frames_in = []
                self._send(0, "connection.close-ok")
                self._end(Closed(arguments["reply_code"], arguments["reply_text"], True))
            case "connection.close-ok":
                self._end(self._closing or Closed(0, "close-ok without a close", False))
            case "channel.close":
                self._send(1, "channel.close-ok")
                self.close(arguments["reply_code"], arguments["reply_text"])
            case _:
                pass

    # -- output

    def _send(self, channel: int, name: str, **arguments: Any) -> None:
        data = encode_frame(channel, name, **arguments)
        self._out.append(data)
        self._pending += len(data)

    def take_output(self) -> list[bytes]:
        """Take all output."""
        out, self._out = self._out, []
        self._pending = 0
        if out:
            self._life.sent = self._now
        return out

    def events(self) -> list[ClientEvent]:
        """Take all events since the last call, in order."""
        events, self._events = self._events, []
        return events

    def send_extension(self, method_id: int, payload: bytes, channel: int = 1) -> None:
        """Queue one frame. Raises ValueError unless `opened`, or if `payload` exceeds `extension_room`
        octets."""
        if not self.opened or len(payload) > self.extension_room:
            raise ValueError("connection not open, or payload too large for one frame")
        self._out += (extension_head(channel, method_id, len(payload)), payload, b"\xce")
        self._pending += len(payload) + EXTENSION_OVERHEAD

    def send_frames(self, parts: list[bytes]) -> None:
        """Queue whole frames of plain AMQP. Raises ValueError unless `opened`."""
        if not self.opened:
            raise ValueError("connection not open")
        self._out += parts
        self._pending += sum(map(len, parts))

    @property
    def extension_room(self) -> int:
        return self.frame_max - EXTENSION_OVERHEAD

    @property
    def unsent(self) -> int:
        """Octets queued here and not yet taken by `take_output`."""
        return self._pending

    # -- time

    def timers(self, now: float) -> None:
        """Handle the handshake limit, heartbeats and an unanswered close."""
        self._now = now
        if self._closed:
            return
        if self._deadline is not None and now >= self._deadline:
            self._end(self._closing or Closed(0, NOT_IN_TIME, False))
            return
        verdict = self._life.check(now) if self.opened else HeartbeatVerdict.NOTHING
        if verdict is HeartbeatVerdict.DEAD:
            self._end(Closed(0, f"no sign of life from the server for {2 * self._life.interval} s", False))
        elif verdict is HeartbeatVerdict.SEND:
            self._out.append(HEARTBEAT_FRAME)

    def next_deadline(self) -> float | None:
        """When to call `timers` next."""
        if self._closed:
            return None
        if self._deadline is not None:
            return self._deadline
        return self._life.next_deadline()

    # -- the end

    def eof(self, now: float) -> None:
        """The server will send no more."""
        self.lost(now)

    def lost(self, now: float) -> None:
        """The socket is closed."""
        self._now = now
        self._end(self._closing or Closed(0, "the server closed the socket", False))

    def close(self, code: int = 200, text: str = "Goodbye") -> None:
        """Send connection.close; a `Closed` event follows."""
        if self._closed or self._closing is not None:
            return
        self._closing = Closed(code, text, False)
        self.opened = False
        self._deadline = self._now + _CLOSE_WAIT
        self._send(0, "connection.close", reply_code=code, reply_text=short(text))

    def _fail(self, code: int, text: str) -> None:
        self._send(0, "connection.close", reply_code=code, reply_text=short(text))
        self._end(Closed(code, text, False))

    def _end(self, closed: Closed) -> None:
        if self._closed:
            return
        self._closed = True
        self.opened = False
        self.wants_close = True
        self._events.append(closed)


def _lower(one: int, other: int) -> int:
    """The smaller of two heartbeat intervals, where 0 means none."""
    return min(one, other) if one and other else one or other
