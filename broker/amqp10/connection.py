"""One AMQP 1.0 connection, server side, without I/O: bytes in, bytes out, on Proton's engine.

Owner: `Broker`, which creates it when a client begins with a 1.0 header. SASL and frame syntax are checked
here (`sasl`, `framing`); well-formed frames go to the engine. Connection events are served here, session and
link events by `Links`. It never raises because of the peer's input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from proton import Collector, Endpoint, Event, EventType, Transport
from proton import Connection as Engine

from broker.amqp10 import deliveries, entry
from broker.amqp10.host import Amqp10Host
from broker.amqp10.links import Links
from broker.amqp10.reply_codes import condition, condition_of, fault_of
from broker.amqp10.steps import BEFORE_LOGIN, NOT_SERVED, OPENING, WAITING, Amqp10Step
from broker.errors import AmqpError
from broker.model.statistics import AMQP10, Shares
from understudy.shared.amqp10 import framing
from understudy.shared.amqp10.conditions import DECODE, FORCED, FRAMING, INTERNAL, LIMIT, NOT_ALLOWED, Fault
from understudy.shared.amqp10.framing import (
    AMQP,
    AMQP_HEADER,
    CHANNEL_MAX,
    DISPOSITION,
    EMPTY_FRAME,
    SASL,
    SASL_HEADER,
    Numbers,
)  # fmt: skip
from understudy.shared.amqp10.sasl import (
    AUTH,
    EXTERNAL,
    LARGEST_FRAME,
    PLAIN,
    initial_response,
    mechanisms,
    outcome,
)
from understudy.shared.text import short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.connection import Connection, Services
    from broker.peer import Peer
    from broker.security.tickets import Answer

_STALL = 4
"""Input is not taken while unsent output exceeds this many times `unsent_max`."""
_UNSERVED = 128 * 1024
"""Octets of such input that are still read, because heartbeats may be among them."""
_ASK_AGAIN = 0.1
"""Seconds between two calls of the hooks for a connection that they hold."""
_HELD_MAX = 256 * 1024
"""Maximum octets that a client may send before it is accepted."""
_TOGETHER = 32
"""Maximum frames pushed into the engine before its events are served."""
_PUSHED = 64 * 1024
"""Maximum octets of such frames."""
_FRAME = 10
_EVENT = 30
_DELIVERY = 130
_STEPS = {
    Event.SESSION_REMOTE_OPEN: 400,
    Event.LINK_REMOTE_OPEN: 400,
    Event.LINK_REMOTE_CLOSE: 400,
    Event.LINK_REMOTE_DETACH: 400,
}
"""Steps of a frame until the engine has it, and of serving an event, by kind."""
_SERVED = frozenset(
    kind.number
    for kind in (
        Event.CONNECTION_REMOTE_OPEN, Event.CONNECTION_REMOTE_CLOSE, Event.TRANSPORT_ERROR,
        Event.SESSION_REMOTE_OPEN, Event.SESSION_REMOTE_CLOSE, Event.LINK_REMOTE_OPEN,
        Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH,
    )
)  # fmt: skip
"""Numbers of the events that are served, besides those of deliveries and credit."""
_SHORTEST_IDLE = 0.2
"""Seconds. A peer that wants heartbeats more often would keep the broker from its work."""
_CONNECTION = 24_000
"""Approximate octets of a connection with its engine, from the growth of a process with many."""


def _discard_trace(transport: Transport, sentence: str) -> None:
    """Discards the engine's messages for stderr: its errors also arrive as events, and are logged."""


class Amqp10Connection(Amqp10Host):
    """`links`: the sessions and links that it serves, and the output that waits for gates."""

    __slots__ = (
        "_buffers", "_collector", "_delivery_failed", "_handshake_deadline", "_heartbeat_after",
        "_ignores_input", "_let_in", "_most_buffers", "_numbers", "_room", "_serving", "_transport", "links",
    )  # fmt: skip
    __deletable__ = ("_collector", "_transport")

    def __init__(self, broker: Services, peer: Peer, now: float) -> None:
        super().__init__(broker, peer, now)
        self.step = Amqp10Step.SASL_HEADER
        self.claimed = self.retry_reason = ""
        self.counts.begin_confirms()
        self.went = Shares()
        self._let_in = self._ignores_input = self._delivery_failed = False
        self._serving = self._room = False
        self._buffers = self._most_buffers = 0
        self._numbers = Numbers()
        self._handshake_deadline = now + self.settings.handshake_timeout
        self._heartbeat_after = 0.0
        """Seconds of silence after which the peer expects a heartbeat; 0: never."""
        self.engine = Engine()
        self._collector = Collector()
        self.engine.collect(self._collector)
        self.engine.container = self.settings.name
        self._transport = Transport(Transport.SERVER)
        self._transport.tracer = _discard_trace
        self._transport.max_frame_size = self.settings.frame_max
        self._transport.channel_max = CHANNEL_MAX
        self._transport.idle_timeout = 2 * self.settings.heartbeat
        """Half of it is announced to the peer."""
        self._transport.bind(self.engine)
        self.links = Links(self)
        self.arm(self._handshake_deadline)

    @property
    def running(self) -> bool:
        return self.step is Amqp10Step.RUNNING

    @property
    def open_channels(self) -> int:
        return self.links.sessions

    @property
    def is_client(self) -> bool:
        return self._let_in

    @property
    def filled(self) -> bool:
        return self.unserved > _UNSERVED

    @property
    def octets(self) -> int:
        return _CONNECTION + self.links.octets + self._most_buffers - self._buffers

    def buffers(self, octets: int) -> None:
        """The engine's buffers for incomplete deliveries changed by `octets`. It reuses its buffers, and
        frees none before the connection ends."""
        self._buffers += octets
        self._most_buffers = max(self._most_buffers, self._buffers)

    # -- input

    def receive(self, data: bytes, now: float) -> None:
        self.arrives(len(data), now)
        if self._ignores_input or self.step is Amqp10Step.CLOSED:
            return
        if not self._waits_on(data):
            self.spent = 0
            self._feed(self._tail + data if self._tail else data)

    def _feed(self, buf: bytes) -> None:
        self._tail = b""
        if self._guarded(lambda: self._take(buf)):
            self._guarded(self.links.input_served)
        self.pull()

    def _guarded(self, what: Callable[[], None]) -> bool:
        """Run `what`. Returns False, with the connection closing, if it raised an error."""
        try:
            what()
        except Fault as fault:
            self.fail(fault)
        except AmqpError as error:
            self.fail(fault_of(error))
        except Exception as error:
            self.unexpected(error)
            self.fail(Fault(INTERNAL, "the broker failed to handle a frame"))
        else:
            return True
        return False

    def later(self, what: Callable[[], None]) -> None:
        """Run `what` in the middle of a tick. An error closes this connection, in the next tick."""
        try:
            what()
        except Exception as error:
            self.unexpected(error)
            self._delivery_failed = True
            self.broker.resuming[self] = None

    def _take(self, buf: bytes) -> None:
        """Handle all complete frames of `buf` and keep the rest."""
        if self._working and not self.work_on():
            self._tail = buf
            return
        at = 0
        while not self._ignores_input and self.step is not Amqp10Step.CLOSED:
            if self.step in (Amqp10Step.SASL_HEADER, Amqp10Step.AMQP_HEADER):
                end = self._header(buf, at)
            elif self.step is Amqp10Step.SASL_INIT:
                end = self._sasl(buf, at)
            else:
                at = at if self.step in WAITING else self._frames(buf, at)
                break
            if not end:
                break
            at = end
        if not self._ignores_input and self.step is not Amqp10Step.CLOSED:
            self._tail = buf[at:]
            if self._stalled:
                self.update_paused()
            most = self.settings.frame_max_before_login if self.step is Amqp10Step.CHECKING else _HELD_MAX
            if self.step in WAITING and len(self._tail) > most:
                raise Fault(LIMIT, f"more than {most} octets before it is let in")

    def _header(self, buf: bytes, at: int) -> int:
        header = buf[at : at + 8]
        wanted = SASL_HEADER if self.step is Amqp10Step.SASL_HEADER else AMQP_HEADER
        if header == wanted:
            if self.step is Amqp10Step.SASL_HEADER:
                self.send(SASL_HEADER, mechanisms(self._mechanisms))
                self.step = Amqp10Step.SASL_INIT
            else:
                self.step = Amqp10Step.OPEN
                self._push(header)
            return at + 8
        if wanted.startswith(header):
            return 0
        self.send(SASL_HEADER)
        self.abandon(f"what it sent is not {self.step.value} of AMQP 1.0, which begins with SASL here")
        return 0

    def _sasl(self, buf: bytes, at: int) -> int:
        end = framing.whole(buf, at, SASL, LARGEST_FRAME)
        if end:
            try:
                mechanism, response = initial_response(buf, at, end, self._mechanisms)
            except Fault:
                self.send(outcome(AUTH))
                raise
            if mechanism == EXTERNAL:
                self.claimed = self.certified_user
                entry.answered(self, self.log_in_by_certificate(self.claimed))
            else:
                entry.login(self, response)
        return end

    @property
    def _mechanisms(self) -> tuple[str, ...]:
        return (PLAIN, EXTERNAL) if self.offers_external else (PLAIN,)

    def login_answered(self, answer: Answer, now: float) -> None:
        self.now, self.login = now, None
        self.broker.clock(now, 0)
        if self._guarded(lambda: entry.answered(self, answer)) and self.step is not Amqp10Step.CLOSED:
            self._feed(self._tail)

    def _frames(self, buf: bytes, at: int) -> int:
        """Check complete frames from `at` on, and push them to the engine a few at a time, until the share is
        used up. Returns the position behind them."""
        while True:
            self.serve()
            if self.spent > self.settings.share:
                self.rest()
            elif self._pending + self.buffered > _STALL * self.settings.unsent_max:
                self._stalled = True
            elif self.step not in NOT_SERVED and (end := self._some_frames(buf, at)) > at:
                at = end
                continue
            return at

    def _some_frames(self, buf: bytes, at: int) -> int:
        start, largest, many = at, self.settings.frame_max, 0
        try:
            while (
                many < _TOGETHER and at - start < _PUSHED and (end := framing.whole(buf, at, AMQP, largest))
            ):
                performative, body = framing.check(buf, at, end)
                self._numbers.follow(buf, at, end, performative, body)
                many += framing.deliveries(buf, body) if performative == DISPOSITION else 1
                at = end
        finally:
            if at > start:
                self.spent += _FRAME * min(many, _TOGETHER)
                self._push(buf[start:at])
        return at

    def _push(self, data: bytes) -> None:
        at = 0
        while at < len(data) and self.step is not Amqp10Step.CLOSED:
            room = self._transport.capacity()
            if room <= 0:
                self.serve()
                room = self._transport.capacity()
            if room <= 0:
                self.pull()
                if self._transport.capacity() <= 0:
                    raise Fault(FRAMING, "what it sent makes no sense to the protocol engine")
                continue
            self._transport.push(data[at : at + room])
            at += room
            self.serve()

    # -- events

    def serve(self) -> None:
        """Serve the engine's events, up to the share. Events of a client that is not accepted yet wait."""
        if self._serving:
            return
        self._serving, share = True, self.settings.share
        collector = deliveries.pointer(self._collector)
        try:
            while (
                self.step is not Amqp10Step.HELD
                and self.spent <= share
                and (event := deliveries.next_event(collector))
            ):
                number = deliveries.kind_of(event)
                if number == deliveries.DELIVERY:
                    self.spent += _DELIVERY
                    if self.step is Amqp10Step.RUNNING or self.step is Amqp10Step.CLOSING:
                        self.links.delivery(deliveries.delivery_of(event))
                elif number == deliveries.FLOW:
                    self.spent += _EVENT
                    if self.step is Amqp10Step.RUNNING:
                        self.links.flow(deliveries.link_of_flow(event))
                elif number in _SERVED:
                    wrapped = deliveries.event_of(event)
                    kind = wrapped.type
                    self.spent += _STEPS.get(kind, _EVENT)
                    self._event(kind, wrapped)
                else:
                    self.spent += _EVENT
                deliveries.drop_event(collector)
        finally:
            self._serving = False

    def _event(self, kind: EventType, event: Event) -> None:
        if kind is Event.CONNECTION_REMOTE_OPEN:
            if self.step is Amqp10Step.OPEN:
                entry.opening(self)
        elif kind is Event.CONNECTION_REMOTE_CLOSE:
            self._closed_by_client()
        elif kind is Event.TRANSPORT_ERROR:
            found = self._transport.condition
            why = "" if found is None else f"{found.name}: {short(str(found.description))}"
            self.log(f"closed with {why or 'an error of the protocol'}")
            self.let_go()
            self.pull()
            self.finish()
        elif self.step is Amqp10Step.RUNNING:
            self.links.event(kind, event)

    def admitted(self, now: float) -> None:
        """The client is accepted and its open answered: the connection is open."""
        self.step, self._let_in = Amqp10Step.RUNNING, True
        self.log_opened("AMQP 1.0")
        idle = self._transport.remote_idle_timeout
        if 0 < idle < _SHORTEST_IDLE:
            raise Fault(NOT_ALLOWED, f"idle-time-out of {idle * 1000:.0f} ms is shorter than 200 ms")
        self._heartbeat_after = idle / 2
        self.life.sent = now
        self.life.interval = self.settings.heartbeat
        self.deadline = None
        self._arm_heartbeat()
        self.serve()

    def hold(self, now: float) -> None:
        """The hooks will be asked again soon."""
        self.step = Amqp10Step.HELD
        self.arm(min(now + _ASK_AGAIN, self._handshake_deadline))

    # -- output

    def pull(self) -> None:
        """Take the engine's output."""
        transport, octets = self._transport, 0
        while (size := transport.pending()) > 0:
            data = transport.peek(size)
            if not data:
                break
            transport.pop(len(data))
            self.out.append(data)
            octets += len(data)
        if octets:
            self.sent(octets)

    def take_output(self) -> list[bytes]:
        if not self.gone and not (self.broker.output_fenced and self.is_client):
            self.pull()
        return super().take_output()

    def drop_output(self) -> None:
        if self.is_client and not self.gone:
            self.pull()
        super().drop_output()

    def _ask_to_resume(self) -> None:
        self._room = True
        super()._ask_to_resume()

    @property
    def waits_to_send(self) -> bool:
        return bool(self.links.turns)

    def resume(self) -> None:
        if self.step is Amqp10Step.CLOSED:
            return
        if self.running and self._delivery_failed:
            self.fail(Fault(INTERNAL, "the broker failed to deliver a message"))
            return
        if self.running and self.links.turns:
            self._guarded(self.links.take_turns)
        if self.running and self._room:
            self._room = False
            self._guarded(self.links.resume)
        self._go_on(self._feed)

    def block(self, blocked: bool) -> None:
        """AMQP 1.0 has no method for it; reading from the client is paused."""
        if self.step is Amqp10Step.RUNNING:
            self.update_paused()

    # -- time

    def timer(self, now: float) -> None:
        self.now, self.deadline = now, None
        if self.step is Amqp10Step.CLOSING:
            self.finish()
        elif self.step is Amqp10Step.RUNNING:
            self._check_heartbeat(now)
        elif self.step in OPENING:
            self._opening_timer(now)

    def check_acks(self, now: float) -> None:
        if self.running:
            self.now = now
            self._guarded(lambda: self.links.check_acks(now))

    def _opening_timer(self, now: float) -> None:
        if now < self._handshake_deadline:
            if self.step is Amqp10Step.HELD:
                self._ask_again(now)
            if self.step in OPENING:
                self.arm(self._handshake_deadline)
        elif self.step is Amqp10Step.HELD:
            self.close(320, "this broker did not begin to serve in time; try the next one")
        else:
            self.abandon(f"handshake not finished in time, waiting for {self.step.value}")

    def _ask_again(self, now: float) -> None:
        if self._guarded(lambda: entry.ask(self, now)) and self.running:
            self._feed(self._tail)
        self.pull()

    def _check_heartbeat(self, now: float) -> None:
        life = self.life
        if self.paused_reading:
            life.received = now
        if life.interval and now >= life.received + 2 * life.interval:
            self.abandon(f"no sign of life for {2 * life.interval} s")
            return
        if self._heartbeat_after and now >= life.sent + self._heartbeat_after:
            life.sent = now
            if not self.clogged:
                self.pull()
                self.send(EMPTY_FRAME)
        self._arm_heartbeat()

    def _arm_heartbeat(self) -> None:
        life = self.life
        if life.interval:
            self.arm(life.received + 2 * life.interval)
        if self._heartbeat_after:
            self.arm(life.sent + self._heartbeat_after)

    # -- the end

    def fail(self, fault: Fault) -> None:
        """Close because of an error. If close was sent already, close the socket."""
        if self.step in (Amqp10Step.CLOSING, Amqp10Step.CLOSED):
            self.finish()
            return
        self.log(f"closed with {fault.condition}: {fault.text}")
        self._ignores_input = fault.condition in (FRAMING, DECODE)
        self._close(fault)

    def close(self, code: int, text: str) -> None:
        """Close with the condition that corresponds to the reply code. `FORCED` closes the socket without a
        close frame."""
        if self.step not in (Amqp10Step.CLOSING, Amqp10Step.CLOSED):
            self._close(Fault(condition_of(code), short(text)))

    def _close(self, fault: Fault) -> None:
        self.let_go()
        if fault.condition == FORCED or self.step in BEFORE_LOGIN:
            # FORCED sends no close frame. After one, Proton's Python clients stop reading and do not notice
            # the end of the connection, forever if they have no idle timeout. They could not try another
            # broker.
            self.pull()
            self.finish()
            return
        self.step, self._stalled, self._rests = Amqp10Step.CLOSING, False, False
        self.update_paused()
        self.engine.open()
        self.engine.condition = condition(fault)
        self.engine.close()
        self.pull()
        if self.engine.state & Endpoint.REMOTE_UNINIT:
            # The engine has not seen the client's open, and sends no more before it has.
            self.send(framing.close(fault))
            self.finish()
            return
        self.deadline = None
        self.arm(self.now + self.settings.close_timeout)

    def _closed_by_client(self) -> None:
        """The client has closed the connection, or answers our close."""
        self.clean = True
        if self.step is not Amqp10Step.CLOSING:
            self.log_closed("by the client")
            self.links.flush()  # messages sent before the close count
            self.let_go()
            self.engine.open()
            self.engine.close()
        self.pull()
        self.finish()

    def finish(self) -> None:
        self.step, self.wants_close = Amqp10Step.CLOSED, True
        self._tail = b""
        self.sent(0)

    def let_go(self) -> None:
        self.withdraw_login()
        self._working.clear()
        self.links.end()
        self.vhost.counts[AMQP10].end(self.counts)
        if self._let_in:
            self.vhost.connection_closed(self)

    def forgotten(self) -> None:
        self._transport.unbind()
        self._collector.release()
        self.links.release()  # no reference cycles, as in 0-9-1
        # A timer may keep the connection for long, but not the engine's deliveries.
        del self.engine, self._transport, self._collector


PROTOCOLS: Mapping[bytes, Callable[[Services, Peer, float], Connection]] = dict.fromkeys(
    (SASL_HEADER, AMQP_HEADER), Amqp10Connection
)
"""For `Broker.protocols`."""
