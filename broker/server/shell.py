"""The asyncio shell: sockets, ticks, timers, limits. It owns every socket and makes no decisions.

Owner: the daemon. One thread, one event loop. All input of one wake-up goes to the connections. Then one tick
follows: `end_tick`, and one write per connection. Only `wake` may be called from other threads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from broker import codes
from broker.repeats import EVERY, Repeats
from broker.security.access import Door
from broker.server.clock import now, wall_ms
from broker.server.driven import Dialing, Driven, DrivenConnection
from broker.server.event_loop import TickLoop
from broker.server.garbage import GarbageSchedule
from broker.server.listener import listen
from broker.server.places import Places
from broker.server.resolving import Unresolved, connect
from broker.server.sockets import LARGE_READ_SIZE, READ_SIZE, Inbound, Outbound
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from broker.server.driven import DialWanted

_LOGGER = logging.getLogger("understudy.shell")
LINGERING_MAX = 1000
"""Maximum closed sockets that wait for their peer to close. Further ones do not wait."""
RESERVE = 100
"""Places in addition to those of clients."""
LOGIN_SHARE = 0.001
"""Seconds of each tick for connections that have not logged in. A confirm takes some six turns of the
loop."""
CROWD = 16
"""While this many new connections wait for their turn, further ones are not read yet."""
_LINGER_AT_STOP = 0.5
"""Seconds for which `close` waits for such sockets."""


def _no_tls(login: str) -> SSLContext:
    raise OSError(f"no TLS context for {login or 'the pair'}")


class Shell:
    """Runs one `Driven` (and its dials, if it is `Dialing`) on the current event loop.

    `addresses`: host and port of each listener as bound, port 0 resolved.
    """

    def __init__(
        self, driven: Driven, *, clients: int = 10_000, reserve: int = RESERVE, lingering: int = LINGERING_MAX
    ) -> None:
        """`clients`: places for clients. `reserve`: further places for peers, operators and connections
        before their login. `lingering`: maximum sockets that wait for their peer to close."""
        self.driven = driven
        self.dialing: Dialing | None = driven if isinstance(driven, Dialing) else None
        self._places: Places[Inbound] = Places(clients, reserve)
        self._lingering_max = lingering
        self._repeats = Repeats[Coded](_LOGGER.warning)
        self.dial_tls: Callable[[str], SSLContext] = _no_tls
        """Returns the TLS context of the next dial with that login."""
        self.carry: Callable[[], None] | None = None
        """Called in each tick after output is written: passes the machine's requests on."""
        self.before_tick: Callable[[], None] | None = None
        """Called first in each tick."""
        self.output_sent: Callable[[], None] | None = None
        """Called in each tick when the output of inbound connections is written."""
        self.loop = asyncio.get_running_loop()
        self.buffer = memoryview(bytearray(LARGE_READ_SIZE))
        self.small_buffer = self.buffer[:READ_SIZE]
        self.addresses: list[tuple[str, int]] = []
        self.inbound: dict[DrivenConnection, Inbound] = {}
        self.outbound: dict[int, Outbound] = {}
        self.lingering: dict[Inbound, asyncio.TimerHandle] = {}
        """Sockets closed at this end, with the timer that ends their wait for the peer."""
        self._logging_in: dict[Inbound, None] = {}
        """Sockets that have not logged in and have sent something, in the order of their turns."""
        self._unread: dict[Inbound, None] = {}
        """New sockets that are not read yet."""
        self._dials: set[asyncio.Task[None]] = set()
        self._met: dict[tuple[str, int], str] = {}
        """The address at which each host was reached last."""
        self._servers: list[asyncio.Server] = []
        self._garbage = GarbageSchedule()
        self._tick_due = False
        self._thread = threading.get_ident()
        self._tick_loop = self.loop if isinstance(self.loop, TickLoop) else None
        if self._tick_loop is not None:
            self._tick_loop.after_input(self._tick)
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        """The machine's next deadline after the last tick. If input brings it forward, the tick of the input
        requests one more tick for it."""
        self._stop = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._all_left = asyncio.Event()
        self._all_left.set()
        self._reason: str | None = None

    # -- listeners

    async def listen(
        self, host: str, port: int, *, door: Door = Door.ANY, tls: Callable[[], SSLContext] | None = None
    ) -> tuple[str, int]:
        """Open a listener. Returns the bound host and port. `door`: the connections that it accepts. `tls`:
        returns the TLS context of the next connection; None: no TLS. Raises OSError."""
        server = await listen(lambda: Inbound(self, door, tls), host, port)
        self._servers.append(server)
        bound = server.sockets[0].getsockname()
        self.addresses.append((str(bound[0]), int(bound[1])))
        return self.addresses[-1]

    def admit(self, socket: Inbound) -> bool:
        """Whether one more connection may come in; the socket itself calls this. The connection that has been
        longest without a login may be closed for it."""
        if self._stopping:
            return False
        admitted, goes = self._places.enter(socket)
        if goes is not None:
            said = codes.NO_PLACE.say(connection=f"connection {goes.peer} closed, which has not logged in")
            self.warn("no place", said)
            goes.abort()
        if not admitted:
            self.warn("no place", codes.NO_PLACE.say(connection="connection refused"))
            return False
        self._idle.clear()
        return True

    def warn(self, kind: str, said: Coded) -> None:
        """Log what remote peers may cause any number of times: once a second, with a count."""
        waits = self._repeats.due is not None
        self._repeats.say(kind, said, now())
        if not waits:
            self.loop.call_later(EVERY, self._flush_repeats)

    def _flush_repeats(self) -> None:
        at = now()
        self._repeats.flush(at)
        if self._repeats.due is not None:
            self.loop.call_later(max(0.0, self._repeats.due - at), self._flush_repeats)

    def joined(self, socket: Inbound) -> None:
        """Register a new connection. While others wait for their turn, it is not read yet."""
        if self._unread or len(self._logging_in) >= CROWD:
            socket.halt()
            self._unread[socket] = None
        self.tick_soon()

    def queue_input(self, socket: Inbound) -> None:
        """Serve a socket that has not logged in, in one of the next ticks. Logged-in clients are served in
        between."""
        self._logging_in[socket] = None
        self.tick_soon()

    def _serve_logging_in(self) -> None:
        until = now() + LOGIN_SHARE
        while self._logging_in:
            socket = next(iter(self._logging_in))
            del self._logging_in[socket]
            socket.serve_input()
            if now() >= until:
                break
        for socket in list(islice(self._unread, max(0, CROWD - len(self._logging_in)))):
            del self._unread[socket]
            socket.go_on()

    def may_linger(self) -> bool:
        """Whether one more socket may wait for its peer to close."""
        return len(self.lingering) < self._lingering_max

    def linger(self, socket: Inbound, limit: float) -> None:
        """Let a socket wait at most `limit` seconds for its peer to close."""
        self.lingering[socket] = self.loop.call_later(limit, socket.abort)
        self._all_left.clear()

    def lingered(self, socket: Inbound) -> None:
        """A socket is closed; it may have been waiting."""
        timer = self.lingering.pop(socket, None)
        if timer is not None:
            timer.cancel()
        if not self.lingering:
            self._all_left.set()

    def left(self, socket: Inbound) -> None:
        """An admitted socket is closed."""
        self._places.leave(socket)
        self._garbage.closed()
        self._logging_in.pop(socket, None)
        self._unread.pop(socket, None)
        if not len(self._places):
            self._idle.set()
        self.tick_soon()

    # -- ticks

    def wake(self) -> None:
        """Request a tick, from any thread. The store calls this after a sync."""
        if threading.get_ident() == self._thread:
            self.tick_soon()
            return
        try:
            self.loop.call_soon_threadsafe(self.tick_soon)
        except RuntimeError:
            _LOGGER.debug("woken after the loop was closed")

    def tick_soon(self) -> None:
        """Request a tick after all input of this wake-up. Loop thread only."""
        if not self._tick_due:
            self._tick_due = True
            if self._tick_loop is None or not self._tick_loop.handles_input:
                self.loop.call_soon(self._tick)

    def tick_for_acks(self) -> None:
        """Request a tick after input of nothing but acks. If nothing follows from them, it may come later."""
        if self._tick_due:
            return
        at = now()
        until = self.driven.acks_wait(at)
        if until is None:
            self.tick_soon()
        elif until < inf:
            self._wake_at(until, at)

    def _tick(self) -> None:
        if not self._tick_due:
            return
        self._tick_due = False
        self._guarded(self._run_tick)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Do a part of a tick. If it fails, the node stops."""
        try:
            step()
        except Exception as error:
            # The machine is in an unknown state and must confirm nothing more.
            _LOGGER.exception(codes.TICK_FAILED.say(error=repr(error)))
            self._reason = f"internal error: {error!r}"
            self._stopping = True
            self._stop.set()

    def _run_tick(self) -> None:
        if self.before_tick is not None:
            self.before_tick()
        if self._logging_in or self._unread:
            self._serve_logging_in()
        if not self._stopping:
            at = now()
            if self._deadline <= at:
                self.driven.timers(at)
            self.driven.end_tick(at, wall_ms())
        if self.dialing is not None:
            # The tick may have waited for a disk, or the process may have been suspended during it.
            self.dialing.before_output(now())
        for connection in self.driven.take_dirty():
            socket = self.inbound.get(connection)
            if socket is not None:
                socket.serve()
        if self.output_sent is not None:
            self.output_sent()
        if self.dialing is not None:
            self._serve_dials(self.dialing)
        if self._logging_in or self._unread:
            self.tick_soon()
        self._garbage.end_tick()
        if not self._stopping:
            self._arm()

    def _serve_dials(self, node: Dialing) -> None:
        for outbound in list(self.outbound.values()):
            outbound.serve()
        if self._stopping:
            return
        for wanted in node.wants_dials():
            task = self.loop.create_task(self._dial(node, wanted))
            self._dials.add(task)
            task.add_done_callback(self._dials.discard)
        if self.carry is not None:
            self.carry()
        if node.stopped is not None:
            self._reason = node.stopped
            self._stop.set()

    def _arm(self) -> None:
        """Schedule a tick for the machine's next deadline. A timer that fires too early only checks again."""
        deadline = self.driven.next_deadline()
        if deadline is None:
            self._deadline = inf
            return
        self._deadline = deadline
        self._wake_at(deadline, now())

    def _wake_at(self, deadline: float, at: float) -> None:
        if deadline <= at:
            self.tick_soon()
        elif self._timer is None or deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self.loop.call_later(deadline - at, self._timer_fired)

    def _timer_fired(self) -> None:
        """What it was for may have been done by another tick."""
        self._timer = None
        if not self._stopping:
            self._guarded(self._arm)

    # -- dials

    async def _dial(self, node: Dialing, wanted: DialWanted) -> None:
        try:
            context = self.dial_tls(wanted.peering) if wanted.tls else None
            place = (wanted.host, wanted.port)
            self._met[place] = await connect(
                lambda: Outbound(self, node, wanted, context),
                *place,
                wanted.timeout,
                self._met.get(place, ""),
            )
        except OSError as error:
            if not self._stopping and wanted.dial_id not in self.outbound:
                node.dial_failed(
                    wanted.dial_id, str(error) or "timed out", now(),
                    refused=isinstance(error, ConnectionRefusedError),
                    unresolved=isinstance(error, Unresolved),
                )  # fmt: skip
                self.tick_soon()

    # -- life cycle

    async def run(self) -> str | None:
        """Serve until `request_stop` or until the node must end. Returns the node's reason, if any."""
        with self._garbage.governing():
            self.tick_soon()
            while not self._stop.is_set():
                try:
                    await asyncio.wait_for(self._stop.wait(), 1.0)
                except TimeoutError:
                    self._garbage.step()
        return self._reason

    def request_stop(self) -> None:
        """Begin a graceful stop: `run` returns. From the loop thread or a signal handler."""
        self._stop.set()

    async def close(self, grace: float = 3.0) -> None:
        """Stop listening, flush output for at most `grace` seconds, then close every socket.

        Call it after the machine was told to stop and has sent connection.close to its clients. From here on
        the machine gets input, so that close-ok can arrive, but no ticks and timers.
        """
        for server in self._servers:
            server.close()
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        self._tick_due = True
        self._tick()
        for task in self._dials:
            task.cancel()
        for outbound in list(self.outbound.values()):
            outbound.close()
        try:
            await asyncio.wait_for(self._idle.wait(), grace)
        except TimeoutError:
            _LOGGER.info(codes.CLOSED_LATE.say(connections=len(self._places)))
        await self._let_linger()
        for socket in [*self._places.all(), *self.outbound.values(), *self.lingering]:
            socket.abort()
        # One turn of the loop, so that the aborted transports notify their protocols.
        await asyncio.sleep(0)

    async def _let_linger(self) -> None:
        """Give clients time to read their last answer before a reset."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_left.wait(), _LINGER_AT_STOP)
