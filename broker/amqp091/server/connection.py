"""One AMQP 0-9-1 connection, server side, without I/O: bytes in, bytes out.

Owner: `Broker`. The shell (or a simulation) drives it through `receive`, `eof`, `lost`, `take_output` and
`writable`. It parses frames, and keeps channel 0, the channels, output and back-pressure, heartbeats and
closing. It never raises because of the peer's input. Implements `hooks.ExtensionPeer`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from broker.amqp091.channel_state.host import Failing, Host
from broker.amqp091.channel_state.unacked import are_acks
from broker.amqp091.codec.frames import (
    ACK,
    BODY,
    EXTENSION_OVERHEAD,
    FRAME_END,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    NACK,
    OVERHEAD,
    PUBLISH,
    REJECT,
    extension_head,
    head,
)
from broker.amqp091.codec.grammar import Method, decode_arguments, encode_frame, lookup
from broker.amqp091.publishing.publish import Publisher
from broker.amqp091.server.channel import Channel
from broker.amqp091.server.handshake import PEER_CAPABILITY, Handshake, HandshakeStep, foreign_protocol
from broker.errors import (
    AmqpError,
    BadChannel,
    ChannelError,
    CommandInvalid,
    DeadLettersPending,
    FrameError,
    InternalError,
    LoginRefused,
    NotAllowed,
    UnexpectedFrame,
)
from broker.heartbeat import HeartbeatVerdict
from broker.security.identity import ADMINISTRATOR, FEDERATION, HA, MIRROR, WITNESS
from understudy.shared.text import short, shown

if TYPE_CHECKING:
    from broker.amqp091.publishing.publish import PublishMemo
    from broker.connection import Services
    from broker.peer import Peer
    from broker.security.tickets import Answer

_KINDS = frozenset((METHOD, HEADER, BODY, HEARTBEAT))
_SETTLING = frozenset((ACK, NACK, REJECT))
_STALL = 4
"""Input is not parsed while unsent output exceeds this many times `unsent_max`. So a client that requests
(with basic.get, for example) and does not read cannot fill memory."""
_UNSERVED = 131072
"""Octets of such input that are still read, because heartbeats may be among them."""
_LARGE_FRAME = 8192
"""Octets of a message's frame that make it large."""
_METHOD = 64
"""Approximate steps of a method other than publish and acks. One more for each two octets, because tables of
arguments are decoded, checked and compared."""
_CHANGE = 128
"""Further steps if the method changed queues, exchanges or bindings: history, store, link and ledger record
it."""
_FRAME = 12
"""Approximate steps of a single content frame: some 4 us."""
_CONNECTION = 4300
_CHANNEL = 2200
"""Approximate octets of each, from the growth of a process with many."""

EXTENSION_CLASS = 250
LINK_METHODS = range(10, 50)
"""Extension methods of the link between nodes, only for users with the tag `ha`. The others are for
management, but for this one."""
MIRROR_METHODS = range(40, 47)
"""Of those, the ones of queue mirrors: also for users with the tag `mirror`."""
WITNESS_METHOD = 52
"""Of a pair to its witness, only for users with the tag `witness`."""
FEDERATION_METHODS = range(60, 67)
"""Of a federated broker, only for users with the tag `federation`."""


class State(enum.Enum):
    OPENING = "opening"
    RUNNING = "running"
    CLOSING = "closing"
    """connection.close is sent; close-ok is awaited."""
    CLOSED = "closed"


class ServerConnection(Host):
    """Implements `hooks.ExtensionPeer`."""

    __slots__ = (
        "_ignores_input", "channel_max", "channels", "extension_used", "handshake", "publisher", "state",
    )  # fmt: skip

    def __init__(self, broker: Services, peer: Peer, now: float, memo: PublishMemo) -> None:
        super().__init__(broker, peer, now)
        self.capabilities: dict[str, Any] = {}
        self.extension_used = False
        self.channels: dict[int, Channel] = {}
        self.frame_max = self.settings.frame_max_before_login
        self.payload_max = self.frame_max - OVERHEAD
        self.channel_max = 0
        self.numbered = False
        self._ignores_input = False
        self.state = State.OPENING
        self.publisher = Publisher(self, memo)
        self.handshake = Handshake(self, now)
        self.arm(self.handshake.deadline)

    @property
    def running(self) -> bool:
        return self.state is State.RUNNING

    @property
    def is_client(self) -> bool:
        return self.handshake.step is HandshakeStep.DONE and not self.is_management

    @property
    def filled(self) -> bool:
        return self.unserved > _UNSERVED

    @property
    def octets(self) -> int:
        return _CONNECTION + _CHANNEL * len(self.channels) + self.publisher.octets

    def capability(self, name: str) -> bool:
        """Whether the client claims this capability."""
        return self.capabilities.get(name) is True

    # -- input

    def receive(self, data: bytes, now: float) -> None:
        self.arrives(len(data), now)
        self.only_acked = not self._tail and are_acks(data)
        if self._ignores_input or self.state is State.CLOSED:
            return
        if not (self._rests and self._waits_on(data)):
            self.spent = 0
            self._feed(self._tail + data if self._tail else data)

    def _feed(self, buf: bytes) -> None:
        self._tail = b""
        at = 0
        try:
            if self._working and not self.work_on():
                self._tail = buf
                return
            if self.login is not None:
                self._keep(buf)
                return
            if self.handshake.step is HandshakeStep.HEADER:
                self.successor = self.broker.switch_protocol(self, buf[:8], self.now)
                if self.successor is not None:
                    self.successor.receive(buf, self.now)
                    return
                at = self.handshake.header(buf)
                if at < 0:
                    self.abandon(foreign_protocol(buf))
                    return
                if at == 0:
                    self._tail = buf
                    return
            at = self._frames(buf, at)
        except AmqpError as error:
            self.publisher.flush()
            self.close_for(error)
        except Exception as error:
            self.unexpected(error)
            self.close_for(InternalError("the broker failed to handle a method"))
        else:
            self.publisher.flush()
        if not self._ignores_input and self.state is not State.CLOSED:
            self._tail = buf[at:]
            if self._stalled:
                self.update_paused()

    def _frames(self, buf: bytes, pos: int) -> int:
        """Handle all complete frames from `pos` on. Returns the position behind them."""
        size = len(buf)
        while size - pos >= 7:
            kind, number, length = head(buf, pos)
            if kind not in _KINDS:
                raise FrameError(f"unknown frame type {kind}")
            if length > self.payload_max:
                raise FrameError(
                    f"frame of {length + OVERHEAD} octets is above the maximum of {self.frame_max}"
                )
            end = pos + OVERHEAD + length
            if end > size:
                break
            if buf[end - 1] != FRAME_END:
                raise FrameError(f"frame ends with octet 0x{buf[end - 1]:02x}, not 0xce")
            if self._pending + self.buffered > _STALL * self.settings.unsent_max and not self.is_management:
                self._stalled = True
                break
            if self.spent > self.settings.share:
                self.rest()
                break
            if kind == METHOD and number and self.state is State.RUNNING:
                pos = self._channel_method(number, buf, pos, end)
            elif kind == METHOD and self._unfinished():
                continue
            else:
                if self.state is State.RUNNING:
                    self.spent += _FRAME
                self._serve_frame(kind, number, buf, pos, end)
                pos = end
                if self.login is not None:
                    break
            if self._ignores_input or self.state is State.CLOSED:
                return size
        return pos

    def _channel_method(self, number: int, buf: bytes, pos: int, end: int) -> int:
        channel = self.channels.get(number)
        ids = buf[pos + 7 : pos + 11]
        if channel is not None and channel.is_open and not self.is_management:
            if channel.assembly is not None:
                raise UnexpectedFrame("method frame where content was expected", 60, 40)
            if ids == PUBLISH:
                return self.publisher.publishes(channel, buf, pos, end)
            if ids in _SETTLING:
                self.publisher.flush()
                if self._working:
                    return pos
                if channel.is_open:
                    serve = channel.acks if ids == ACK else channel.nacks
                    if rest := serve(buf, pos, end):
                        return rest
        self.publisher.flush()
        if self._working:
            return pos
        before = self.vhost.generation
        if not self.is_management:
            self.spent += _METHOD + (end - pos >> 1)
        try:
            self._serve_method(number, buf[pos + 7 : end - 1])
        except DeadLettersPending as due:  # the method is served again when the dead letters are made
            due.after(self.await_dead_letters())
            return pos
        if self.vhost.generation != before:
            self.spent += _CHANGE
        return end

    def _serve_frame(self, kind: int, number: int, buf: bytes, pos: int, end: int) -> None:
        """Serve a complete frame that is not a method on a channel of a running connection."""
        if kind == HEARTBEAT:
            if number or end - pos != OVERHEAD:
                raise FrameError("heartbeat on a channel other than 0, or with a payload")
            return
        if self.state is State.CLOSING:
            self._serve_while_closing(kind, number, buf[pos + 7 : end - 1])
            return
        if kind == METHOD:
            self.publisher.flush()
            self._serve_method(number, buf[pos + 7 : end - 1])
            return
        if self.state is not State.RUNNING or number == 0:
            raise UnexpectedFrame("content frame where a method was expected")
        channel = self.channels.get(number)
        if channel is None:
            raise BadChannel(f"content frame on channel {number}, which is not open")
        self.publisher.content(channel, kind, buf, pos, end)

    def _serve_method(self, number: int, payload: bytes) -> None:
        """Serve the payload of one method frame on channel `number`."""
        method = lookup(payload)
        if not method.from_client:
            raise CommandInvalid(f"{method.name} is for servers to send", method.class_id, method.method_id)
        try:
            if number == 0:
                self._on_channel_0(method, payload)
            elif method.class_id == 10:
                raise CommandInvalid(f"{method.name} on channel {number}")
            elif self.state is not State.RUNNING:
                raise CommandInvalid(f"{method.name} before the connection is open")
            else:
                self._on_channel(number, method, payload)
        except AmqpError as error:
            if not error.class_id:
                error.class_id, error.method_id = method.class_id, method.method_id
            raise

    def _on_channel_0(self, method: Method, payload: bytes) -> None:
        if method.class_id != 10:
            if self.state is State.RUNNING:
                raise BadChannel(f"{method.name} on channel 0")
            raise CommandInvalid(f"{method.name} before the connection is open")
        arguments = decode_arguments(method, payload)
        if method.name == "connection.close":
            self.log_closed("by the client")
            self.let_go()
            self.send(encode_frame(0, "connection.close-ok"))
            self.clean = True
            self.finish()
        elif self.state is State.OPENING:
            self.handshake.method(method, arguments, self.now)
        elif method.name == "connection.update-secret":
            # A secret that expires is an OAuth 2 token. A password is valid for the whole connection.
            self.log("connection.update-secret answered, and ignored: passwords do not expire")
            self.send(encode_frame(0, "connection.update-secret-ok"))
        else:
            raise CommandInvalid(f"{method.name} on an open connection")

    def _on_channel(self, number: int, method: Method, payload: bytes) -> None:
        channel = self.channels.get(number)
        if method.name == "channel.open":
            self._open_channel(number, method, payload)
            return
        if channel is None:
            raise BadChannel(f"{method.name} on channel {number}, which is not open")
        try:
            arguments = decode_arguments(method, payload)
        except ChannelError as error:
            if channel.is_open:
                self.fail(channel, error)
            return
        if not channel.is_open:
            channel.while_closing(method.name)
        elif method.class_id == EXTENSION_CLASS:
            self._extension(number, method.method_id, arguments["payload"])
        elif self.is_management and method.class_id != 20:
            raise NotAllowed("this connection claimed to speak the extension class only")
        else:
            try:
                channel.method(method, arguments)
            except DeadLettersPending:
                raise
            except ChannelError as error:
                error.class_id, error.method_id = method.class_id, method.method_id
                self.fail(channel, error)

    def _open_channel(self, number: int, method: Method, payload: bytes) -> None:
        present = self.channels.get(number)
        if present is not None and not present.failed:
            raise BadChannel("second 'channel.open' seen")
        if present is not None and not present.crossed:
            return  # closing, everything is swallowed
        self._check_room()
        if not self.is_management:
            self.broker.admission.check_channel(self.user)
        decode_arguments(method, payload)
        if present is not None:
            present.output.ended()
        self.channels[number] = Channel(self, number)
        self.broker.vhosts.churn.channel_created += 1
        self.send(encode_frame(number, "channel.open-ok"))

    @property
    def open_channels(self) -> int:
        return sum(channel.is_open for channel in self.channels.values())

    def _check_room(self) -> None:
        """As in RabbitMQ, channel-max limits the number of open channels, not their numbers. Raises
        NotAllowed."""
        limit = self.channel_max
        if len(self.channels) >= limit:
            opened = self.open_channels
            if opened >= limit:
                raise NotAllowed(
                    f"number of channels opened ({opened}) has reached the negotiated channel_max ({limit})"
                )

    def _extension(self, number: int, method_id: int, payload: bytes) -> None:
        """Link methods need the tag `ha` and a connection accepted as a peer's, those of queue mirrors `ha`
        or `mirror`, those of federation `federation`, the witness's `witness`. Other methods need
        `administrator` or `ha`."""
        of_link = method_id in LINK_METHODS
        wanted = {HA} if of_link else {HA, ADMINISTRATOR}
        if method_id in MIRROR_METHODS:
            wanted = {HA, MIRROR}
        elif method_id in FEDERATION_METHODS:
            wanted = {FEDERATION}
        elif method_id == WITNESS_METHOD:
            wanted = {WITNESS}
        if not wanted & self.tags or (of_link and not self.capability(PEER_CAPABILITY)):
            raise LoginRefused(f"extension method {method_id} is refused to user '{self.user}'")
        self.extension_used = True
        self.broker.hooks.extension(self, number, method_id, payload)

    def _serve_while_closing(self, kind: int, number: int, payload: bytes) -> None:
        """After our connection.close, discard everything except close-ok and a close that crossed ours."""
        if kind != METHOD or number:
            return
        name = lookup(payload).name
        if name == "connection.close":
            self.send(encode_frame(0, "connection.close-ok"))
        if name in ("connection.close-ok", "connection.close"):
            self.finish()

    def _unfinished(self) -> bool:
        """Publish what was gathered. Returns whether that needs more turns."""
        self.publisher.flush()
        return self.working

    def _keep(self, buf: bytes) -> None:
        """Keep input that arrives before the login is decided. Raises CommandInvalid if it is too much."""
        most = self.settings.frame_max_before_login
        if len(buf) > most:
            raise CommandInvalid(f"more than {most} octets while waiting for {self.handshake.step.value}")
        self._tail = buf

    # -- called by the handshake

    def login_answered(self, answer: Answer, now: float) -> None:
        self.now, self.login = now, None
        self.broker.clock(now, 0)
        try:
            self.handshake.answered(answer)
        except AmqpError as error:
            self.close_for(error)
        if self._tail and self.state is not State.CLOSED:
            self._feed(self._tail)

    def tuned(self, frame_max: int, channel_max: int, heartbeat: int) -> None:
        """Tune-Ok was accepted: the negotiated limits apply from the next frame on."""
        self.frame_max = frame_max
        self.payload_max = frame_max - OVERHEAD
        self.channel_max = channel_max
        self.life.interval = heartbeat

    def opened(self, now: float) -> None:
        """Open-Ok is queued: the connection is open."""
        self.state = State.RUNNING
        self.log_opened("AMQP 0-9-1")
        self.life.sent = now
        self.deadline = None
        self._arm_heartbeat()
        if self.broker.blocked:
            self.block(True)

    @property
    def sends_much(self) -> bool:
        return self.publisher.largest >= _LARGE_FRAME or super().sends_much

    # -- output

    def resume(self) -> None:
        if self.state is not State.RUNNING:
            return
        for channel in list(self.channels.values()):
            channel.consumers.resume()
        self._go_on(self._feed)

    # -- back-pressure on publishers

    def block(self, blocked: bool) -> None:
        """The first alarm (memory or disk) was raised, or the last one cleared."""
        if self.state is not State.RUNNING or self.is_management:
            return
        if self.capability("connection.blocked"):
            name = "connection.blocked" if blocked else "connection.unblocked"
            self.send(encode_frame(0, name, **({"reason": self.broker.block_reason} if blocked else {})))
        self.update_paused()

    # -- the extension class

    def send_extension(self, channel: int, method_id: int, payload: bytes) -> None:
        """Queue one frame of class 250. Raises ValueError if the payload exceeds `extension_room`."""
        if self.state is not State.RUNNING:
            return
        if len(payload) > self.extension_room:
            raise ValueError(f"extension payload of {len(payload)} octets does not fit a frame")
        self.send(extension_head(channel, method_id, len(payload)), payload, b"\xce")

    @property
    def extension_room(self) -> int:
        return self.frame_max - EXTENSION_OVERHEAD

    # -- time

    def timer(self, now: float) -> None:
        """A deadline has come: handshake, heartbeat or close."""
        self.now = now
        self.deadline = None
        if self.state is State.OPENING:
            self._on_opening_timer(now)
        elif self.state is State.CLOSING:
            self.finish()
        elif self.state is State.RUNNING:
            self._beat(now)

    def check_acks(self, now: float) -> None:
        if self.state is State.RUNNING and not self.is_management:
            self.now = now
            for channel in list(self.channels.values()):
                channel.check_acks(now)

    def _on_opening_timer(self, now: float) -> None:
        try:
            self.handshake.timer(now)
        except AmqpError as error:
            self.close_for(error)
        if self.state is State.OPENING:
            self.arm(self.handshake.deadline)

    def _beat(self, now: float) -> None:
        life = self.life
        verdict = life.check(now, listening=not self.paused_reading)
        if verdict is HeartbeatVerdict.DEAD:
            self.abandon(f"no sign of life for {2 * life.interval} s")
            return
        if verdict is HeartbeatVerdict.SEND and not self.clogged:
            self.send(HEARTBEAT_FRAME)
        self._arm_heartbeat()

    def _arm_heartbeat(self) -> None:
        """Set a timer for the next heartbeat, and for the peer's silence."""
        deadline = self.life.next_deadline()
        if deadline is not None:
            self.arm(deadline)

    # -- the end

    def fail(self, channel: Failing, error: AmqpError) -> None:
        """An error occurred in `channel`: close the channel or the connection, as the kind of error
        demands."""
        if not isinstance(error, ChannelError):
            self.close_for(error)
            return
        self.log(f"channel {channel.number}: {error.code} {error.reply_text}")
        self.publisher.forget(channel)
        channel.close_for(error)

    def forget_channel(self, channel: Failing) -> None:
        """The channel is closed on both sides."""
        self.publisher.forget(channel)
        if (gone := self.channels.pop(channel.number, None)) is not None:
            gone.output.ended()
            self.broker.vhosts.churn.channel_closed += 1

    def close(self, code: int, text: str) -> None:
        """Send connection.close after the queued output, with `text` unchanged. A connection that is not open
        is closed without it."""
        if self.state in (State.CLOSING, State.CLOSED):
            return
        self._send_close(code, text, 0, 0)

    def expel(self, code: int, text: str) -> None:
        """See `ExtensionPeer`. Logs once; later input is ignored."""
        if self.state is State.RUNNING:
            self.log(f"closed with {code} {shown(text)}")
        self.close(code, text)

    def close_for(self, error: AmqpError) -> None:
        """Send connection.close for an error. If it was sent already, close the socket."""
        if self.state in (State.CLOSING, State.CLOSED):
            self.finish()
            return
        if not error.logged:
            self.log(f"closed with {error.code} {error.reply_text}")
        # After a framing error the rest of the input is meaningless.
        self._ignores_input = not isinstance(error, ChannelError) and error.code in (501, 502, 505)
        self._send_close(error.code, error.reply_text, error.class_id, error.method_id)

    def _send_close(self, code: int, text: str, class_id: int, method_id: int) -> None:
        self.let_go()
        if self.handshake.step is HandshakeStep.HEADER:
            self.finish()
            return
        self.state, self._stalled, self._rests = State.CLOSING, False, False
        self.update_paused()
        self.send(
            encode_frame(
                0, "connection.close", reply_code=code, reply_text=short(text), failed_class=class_id,
                failed_method=method_id,
            )
        )  # fmt: skip
        self.deadline = None
        self.arm(self.now + self.settings.close_timeout)

    def finish(self) -> None:
        self.state, self.wants_close = State.CLOSED, True
        self._tail = b""
        self.sent(0)

    def let_go(self) -> None:
        self.withdraw_login()
        self._working.clear()
        channels, self.channels = self.channels, {}
        self.broker.vhosts.churn.channel_closed += len(channels)
        for channel in channels.values():
            self.publisher.forget(channel)
            channel.end()
            channel.output.ended()
        self.vhost.removals.requeueing.work()
        if self.state is not State.OPENING:
            self.vhost.connection_closed(self)

    def forgotten(self) -> None:
        if self.extension_used:
            self.broker.hooks.connection_lost(self, clean=self.clean)
        # Thousands of connections come and go, so they must leave no reference cycles.
        self.handshake.release()
        self.publisher.release()
