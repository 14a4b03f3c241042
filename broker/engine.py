"""The broker without I/O: connections, ticks, timers, completion. Owner: the shell, a node or a simulation.

A driver passes bytes to connections, calls `timers` when `next_deadline` has come, calls `end_tick` once
after each burst of both, and writes the output of the connections from `take_dirty`. The order inside
`end_tick` is a guarantee: first deliveries, then one history batch to all sinks (store, link, ledger), then
the confirms and replies that the gates allow. So nothing is confirmed before the sinks have it.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable
from itertools import count

from broker import codes
from broker.ack_timeouts import AckTimeouts
from broker.admission import Admission
from broker.amqp091.publishing.publish import PublishMemo
from broker.amqp091.server.connection import ServerConnection
from broker.bind_waits import BindWaits
from broker.connection import Connection, Holder, Services
from broker.deadlines import sooner
from broker.disk_alarm import DiskAlarm
from broker.errors import NotAllowed
from broker.hooks import Hooks
from broker.memory_alarm import MemoryAlarm
from broker.model.history.batch import BatchSink
from broker.model.history.completion import Completion, Gate
from broker.model.queue.consumer import Consumer
from broker.model.queue.message_run import Overflow
from broker.model.queue.removals import HAND, LOOKED, STEPS, WORK_AT_ONCE
from broker.model.queue.requeueing import PIECE
from broker.model.vhost.directory import Directory
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.vhosts import VirtualHosts
from broker.paging import Paging
from broker.peer import Peer
from broker.repeats import Repeats
from broker.sampling import Sampler
from broker.security.access import Door
from broker.security.authenticator import Authenticator
from broker.security.logins import Logins
from broker.settings import BrokerSettings
from broker.wall_clock import WallClock
from understudy.shared.codes import Coded

_STALE_TIMERS = 64
"""Stale timers that are always tolerated. `forget` sweeps the heap when twice its size exceeds this plus
three times the number of connections."""

_CLIENT_LINES = 20
"""Log lines in one second about connecting clients of one user and host, and as many about disconnecting
ones. Further ones are only counted."""

_QUEUE = 125
"""Approximate steps for deleting one queue."""
SEND = 100
"""Steps of the share for each sent message that is encoded anew, which takes 55 us."""

_UNFINISHED = "RESOURCE_ERROR - unfinished messages keep the memory alarm on"

_LOGGER = logging.getLogger("understudy.broker")


class Broker:
    """One broker: its virtual hosts, its connections and the order of a tick.

    `sinks` receive each tick's batch in the order store, link, ledger. Confirms wait for `gates`. The owner
    may change both lists between ticks. `vhost`: the virtual host `/`. `overflow`: where messages go when
    memory is short; None: they stay in memory.
    """

    def __init__(
        self, settings: BrokerSettings, hooks: Hooks, vhosts: VirtualHosts, *,
        log: Callable[[Coded | str], None] | None = None, warn: Callable[[Coded], None] | None = None,
        overflow: Overflow | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.hooks = hooks
        self.vhosts = vhosts
        self.vhost = vhosts.root
        vhosts.ending = self._close_clients_of
        vhosts.warn = lambda sentence: self.log(sentence)
        vhosts.consumer_max = settings.consumer_max_per_queue
        vhosts.producers.most = settings.producers_most
        vhosts.producers.idle = settings.producers_idle
        vhosts.producers.told = self._forgotten
        vhosts.steps = min(STEPS, max(HAND, 4 * settings.share))
        requeueing = vhosts.removals.requeueing
        requeueing.piece = requeueing.left = min(PIECE, max(1, settings.share // 3))
        vhosts.removals.work = min(WORK_AT_ONCE, max(1, settings.share // LOOKED))
        vhosts.leaving.at_once = max(1, settings.share // _QUEUE)
        self.sends = self._sends_each = max(1, settings.share // SEND)
        """Messages that this tick may still send if they are encoded anew for each consumer. All AMQP 1.0
        connections share them."""
        self.history = vhosts.history
        self.sinks: list[BatchSink] = vhosts.history.sinks
        self.gates: list[Gate] = []
        self.completion = Completion(self.gates)
        self.authenticator = Authenticator(
            settings.users,
            allow_plain_without_tls=settings.allow_plain_without_tls,
            stored=lambda name: vhosts.directory.users.get(name),
        )
        self.log: Callable[[Coded | str], None] = log or _LOGGER.info
        self.warn: Callable[[Coded], None] = warn or self.log
        self.clients_log = Repeats[str](logging.getLogger("understudy.clients").info, each=_CLIENT_LINES)
        """Lines about clients that connect and disconnect. Counted lines are logged by the next tick after
        their second; no tick is scheduled for them."""
        self.protocols: dict[bytes, Callable[[Services, Peer, float], Connection]] = {}
        """Protocols other than AMQP 0-9-1, by the eight octets of the client's protocol header."""
        self.repeats = Repeats[str](self.log)
        """Log lines that peers can cause any number of times."""
        self.repeated_warnings = Repeats[Coded](self.warn)
        self.logins = Logins(self.authenticator, self.repeats.say)
        self.clients_max: int | None = None
        """Maximum number of logged-in clients; None: no limit. Peers and operators do not count."""
        self.clients = 0
        self.admission = Admission(vhosts.directory)
        self.connections: dict[Connection, None] = {}
        """In order of arrival, so that an action on all of them has the same order in every run."""
        self.publish_memo = PublishMemo()
        self.dirty: list[Connection] = []
        """Connections with output. They add themselves once per `take_output`."""
        self.resuming: dict[Connection, None] = {}
        """Connections that continue in the next tick: their output was taken after back-pressure stopped
        them, or their turn ended with input left."""
        self.holding: dict[Holder, None] = {}
        """Channels, and their AMQP 1.0 counterparts, with pending confirms or replies."""
        self.bind_waits = BindWaits()
        """Binds whose answers wait for other nodes."""
        self.unconfirmed: dict[Consumer, Callable[[], bool]] = {}
        """Consumers that have asked for confirmed messages only, and whose messages wait. The function sends
        those that may go, and returns whether others wait."""
        self.memory = MemoryAlarm(settings.memory_limit)
        self.disk = DiskAlarm(settings.disk_free_limit)
        self.paging = Paging(overflow)
        self.ack_timeouts = AckTimeouts(settings.consumer_timeout)
        self._received = 0
        """Octets of input since the disk was last sampled."""
        self.sampler = Sampler(self)
        """Takes samples of the counters if the owner makes it pass."""
        self.output_fenced = False
        """Output is fenced: no confirm or delivery may leave; see `fence_output`."""
        self.input_paused = False
        """Input is paused: nothing is read from clients or delivered to them; see `pause_input`."""
        self.on_clock: Callable[[float], None] = lambda now: None
        """Called with each new time before the input of that time is handled, so that the owner can fence
        output."""
        self.now = 0.0
        self._wall = WallClock()
        self._directory_seen = 0
        """The generation of the directory that the connections already follow."""
        self._timers: list[tuple[float, int, Connection]] = []
        self._order = count()

    @property
    def directory(self) -> Directory:
        """Stored users, permissions and policies; also known on a backup."""
        return self.vhosts.directory

    @property
    def blocked(self) -> bool:
        """An alarm is raised: nothing is read from publishers."""
        return self.memory.raised or self.disk.raised

    @property
    def pausing(self) -> bool:
        """Nothing is read from publishers: an alarm is raised, or paging cannot free memory fast enough."""
        return self.blocked or self.paging.behind

    @property
    def alarms(self) -> list[str]:
        """Names of the raised alarms: `memory`, `disk`."""
        return [name for name, alarm in (("memory", self.memory), ("disk", self.disk)) if alarm.raised]

    @property
    def block_reason(self) -> str:
        """The reason for connection.blocked, in RabbitMQ's words."""
        return "low on " + " & ".join(self.alarms)

    # -- called by the driver

    def accept(self, peer: Peer, now: float) -> ServerConnection:
        self.clock(now, 0)
        connection = ServerConnection(self, peer, now, self.publish_memo)
        self.connections[connection] = None
        return connection

    def switch_protocol(self, connection: Connection, header: bytes, now: float) -> Connection | None:
        """Replace a connection whose client began with a protocol header other than AMQP 0-9-1. Returns the
        new connection, or None if the protocol is not served."""
        make = self.protocols.get(header)
        if make is None or connection.peer.door is Door.PEERS:
            return None
        successor = make(self, connection.peer, now)
        connection.gone = True
        self.forget(connection)
        connection.forgotten()
        self.connections[successor] = None
        return successor

    def clock(self, now: float, octets: int) -> None:
        """Note the time and the octets of arriving input. The wall clock of the virtual hosts follows."""
        if now != self.now:
            self.now = now
            self.vhosts.wall_ms = self._wall.at(now)
            self.on_clock(now)
        if self.vhosts.removals.since is None:
            self.vhosts.removals.since = self.vhosts.wall_ms
        self.memory.received += octets
        self._received += octets

    def wall_at(self, now: float) -> int:
        """The timestamp for messages at `now`, in milliseconds."""
        return self._wall.at(now)

    def go_on_from(self, now: float, wall_ms: float) -> None:
        """Set the message clock. It then follows the machine's clock slowly."""
        if self.sampler.began is None:
            self.sampler.began = now
        self._wall.put(now, wall_ms)
        self.vhosts.wall_ms = self._wall.at(now)

    def end_tick(self, now: float, wall_ms: int) -> None:
        """Dispatch, flush history to the sinks, release what the gates allow. Never raises because of a
        peer's input."""
        self.now = now
        self.vhosts.wall_ms = self._wall.follow(now, wall_ms)
        if self._directory_seen != self.directory.generation:
            self._follow_directory(now)
        self.sends = self._sends_each
        if self.resuming:
            self._resume()
        if not self.output_fenced and not self.input_paused:
            timeouts, own = self.ack_timeouts, self.vhosts.removals.shortest_ack
            if (own or timeouts.default) and (look := timeouts.next(own)) is not None and look <= now:
                timeouts.look(now, self.connections)
            self.vhosts.dispatch()
            self.vhosts.expire(now)
        self.vhosts.removals.end_tick()
        self.history.flush(now, wall_ms)
        if self.holding:
            # Others are not heard while input is paused, and a switchover waits for all answers.
            self.bind_waits.end_tick(math.inf if self.input_paused else now)
            self.release()
        if self.unconfirmed and not self.output_fenced and not self.input_paused:
            self._deliver_confirmed()
        self._look_after(now)

    def _look_after(self, now: float) -> None:
        """What is due besides messages: paging, repeated lines of the log, samples of memory and disk."""
        if self.paging.due(now) and self.paging.step(now, self.vhosts):
            for connection in list(self.connections):
                connection.update_paused()
        if self.repeats.due is not None:
            self.repeats.flush(now)
        if self.repeated_warnings.due is not None:
            self.repeated_warnings.flush(now)
        if self.clients_log.due is not None:
            self.clients_log.flush(now)
        if self.memory.due(now) or self.disk.due(now, self._received):
            self._watch(now)

    def _resume(self) -> None:
        """Continue the waiting connections. Those whose turn ended share one turn: when it is used up, the
        rest go first in the next tick. Connections that wait to send wait likewise."""
        resuming, self.resuming = self.resuming, {}
        room, later = self.settings.share, []
        for connection in resuming:
            if not connection.rests:
                if self.sends > 0 or not connection.waits_to_send:
                    connection.resume()
                else:
                    later.append(connection)
            elif room > 0:
                connection.spent = 0
                connection.resume()
                room -= connection.spent
            else:
                later.append(connection)
        if later:
            self.resuming = dict.fromkeys(later) | self.resuming

    def release(self) -> None:
        """Send what the gates allow. `end_tick` calls this. Also call it after a gate moved outside
        `end_tick`."""
        completion = self.completion
        done = []
        for channel in list(self.holding):
            held, connection = channel.held, channel.connection
            before = len(connection.out)
            after = held.release(completion, connection.out)
            octets = sum(map(len, connection.out[before:]))
            if octets:
                connection.sent(octets)
            for call in after:
                call()
            if not held:
                done.append(channel)
        for channel in done:
            if not channel.held:
                self.holding.pop(channel, None)

    def _deliver_confirmed(self) -> None:
        for consumer, send in list(self.unconfirmed.items()):
            if not send():
                self.unconfirmed.pop(consumer, None)

    def _forgotten(self, what: str, early: bool) -> None:
        if early:
            self.repeated_warnings.say("forgotten", codes.PRODUCER_FORGOTTEN.say(what=what), self.now)
        else:
            self.repeats.say("forgotten", what, self.now)

    def timers(self, now: float) -> None:
        """Handle handshake limits, held handshakes, heartbeats and unanswered closes. Call `end_tick`
        afterwards."""
        self.clock(now, 0)
        heap = self._timers
        while heap and heap[0][0] <= now:
            when, _, connection = heapq.heappop(heap)
            if connection.deadline == when and not connection.gone:
                connection.timer(now)

    def next_deadline(self) -> float | None:
        """When to call `timers` and `end_tick` next, on the clock of `now`. A time in the past means at
        once."""
        waits, vhosts = self.output_fenced or self.input_paused, self.vhosts
        if self.resuming or vhosts.removals.in_pieces or (not waits and self._queues_have_work()):
            return self.now
        heap = self._timers
        while heap and (heap[0][2].gone or heap[0][2].deadline != heap[0][0]):
            heapq.heappop(heap)
        deadline = heap[0][0] if heap else None
        deadline = sooner(deadline, self.history.next_deadline())
        deadline = sooner(deadline, self.memory.next_deadline())
        deadline = sooner(deadline, self.disk.next_deadline())
        deadline = sooner(deadline, self.paging.next_deadline())
        deadline = sooner(deadline, self.repeats.due)
        deadline = sooner(deadline, self.repeated_warnings.due)
        if self.holding:
            deadline = sooner(deadline, self.bind_waits.next_deadline())
        if waits:
            return deadline
        if (over := vhosts.removals.next()) is not None:
            deadline = sooner(deadline, self._wall.when(over))
        deadline = sooner(deadline, vhosts.expiries.next())
        return sooner(deadline, self.ack_timeouts.next(vhosts.removals.shortest_ack))

    def _queues_have_work(self) -> bool:
        """Messages to deliver or to remove, or a queue that may go."""
        vhosts = self.vhosts
        if vhosts.pending or vhosts.removals.waiting:
            return True
        return bool(vhosts.leaving.stirred and vhosts.leaving and vhosts.deciding)

    def acks_wait(self, now: float) -> float | None:
        """After input of nothing but acks: until when they may wait for `end_tick`; inf: it is not needed.
        None: it is due, since more follows from them."""
        vhosts = self.vhosts
        if self.dirty or self.resuming or self.unconfirmed or vhosts.pending or vhosts.leaving:
            return None
        if vhosts.removals.waiting or vhosts.removals.in_pieces:
            return None
        until = self.history.wait(now)
        if until is None:
            return None
        vhosts.removals.since = None  # the tick that comes begins with later input
        sample = self.memory.next_deadline()
        return until if sample is None else min(until, sample)

    def take_dirty(self) -> list[Connection]:
        """Connections with output, a changed `paused_reading`, or `wants_close`, since the last call."""
        dirty, self.dirty = self.dirty, []
        return dirty

    # -- called by connections

    def arm(self, when: float, connection: Connection) -> None:
        """Call the connection's `timer` at `when`, unless its `deadline` has changed by then."""
        heapq.heappush(self._timers, (when, next(self._order), connection))

    def let_in(self, connection: Connection, vhost: str) -> None:
        """Count a connection that has logged in. Raises NotAllowed if the limit of clients, of the virtual
        host or of the user is reached."""
        if not connection.is_management:
            if self.clients_max is not None and self.clients >= self.clients_max:
                raise NotAllowed(
                    f"connection refused: the limit of {self.clients_max} clients is reached"
                    " (broker.max_connections)"
                )
            self.admission.check(connection.user, vhost)
            self.admission.enter(connection, vhost)
            self.clients += 1
            self.vhosts.churn.connection_created += 1
        connection.let_in = True

    def forget(self, connection: Connection) -> None:
        """Remove a connection whose socket is closed."""
        self.connections.pop(connection, None)
        if connection.let_in and not connection.is_management:
            connection.let_in = False
            self.admission.leave(connection)
            self.clients -= 1
            self.vhosts.churn.connection_closed += 1
        self.resuming.pop(connection, None)
        if 2 * len(self._timers) > _STALE_TIMERS + 3 * len(self.connections):
            # A deadline may be hours away, and keeps a closed connection in memory until then.
            self._timers[:] = [t for t in self._timers if t[2].deadline == t[0] and not t[2].gone]
            heapq.heapify(self._timers)

    # -- for the owner

    def close_connections(
        self, code: int, text: str, now: float, *, keep: Callable[[Connection], bool] | None = None
    ) -> None:
        """Send connection.close with `text` to all connections, except those for which `keep` is true. For
        demotion and shutdown.

        Their messages are requeued and their exclusive queues deleted before this returns. If there are very
        many, the next ticks do the rest (`Requeueing`, `Leaving`).
        """
        self.clock(now, 0)
        for connection in list(self.connections):
            if keep is None or not keep(connection):
                connection.now = now
                connection.close(code, text)

    def fence_output(self) -> None:
        """Fence output until `resume_output`. Logged-in clients get nothing, not even queued output. Nothing
        is delivered, and no queue is deleted because its clients left. Management connections are not
        affected."""
        self.output_fenced = True
        self.vhosts.deciding = False

    def resume_output(self) -> None:
        """Send the fenced output, and delete the queues whose clients left meanwhile."""
        self.output_fenced = False
        self.vhosts.decide_again()
        for connection in self.connections:
            connection.sent(0)

    def pause_input(self) -> None:
        """Pause input until `resume_input`. Nothing is read from logged-in clients, and no new message is
        delivered to them. Pending output still goes out. Management connections are not affected."""
        self.input_paused = True
        for connection in self.connections:
            connection.update_paused()

    def resume_input(self) -> None:
        """Resume input."""
        if self.input_paused:
            self.input_paused = False
            for connection in self.connections:
                connection.update_paused()

    def drop_fenced_output(self) -> None:
        """Discard the fenced output. The caller closes those connections next."""
        if self.output_fenced:
            for connection in self.connections:
                connection.drop_output()
            self.output_fenced = False

    def _follow_directory(self, now: float) -> None:
        """After users changed: close the connections of deleted users, and update the tags of the others."""
        directory = self.directory
        self._directory_seen = directory.generation
        for connection in list(self.connections):
            if connection.access is None:
                continue
            user = directory.users.get(connection.user)
            if user is not None:
                connection.tags = user.tags
            else:
                self._force_close(connection, f"user '{connection.user}' is deleted", now)

    def _close_clients_of(self, vhost: VirtualHost) -> None:
        """Close the clients of a virtual host before its deletion. Their messages are requeued, and they get
        no basic.cancel for each queue."""
        for connection in list(self.connections):
            if connection.vhost is vhost:
                self._force_close(connection, f"vhost '{vhost.name}' is deleted", self.now)

    def _force_close(self, connection: Connection, gone: str, now: float) -> None:
        connection.log(f"closed: {gone}")
        connection.now = now
        connection.close(320, f"CONNECTION_FORCED - {gone}")

    def _watch(self, now: float) -> None:
        """Sample memory and disk. Log a changed alarm and tell the publishers."""
        blocked = self.blocked
        if self.disk.due(now, self._received):
            self._watch_disk(now)
        if self.memory.due(now):
            self._watch_memory(now)
        if self.blocked is not blocked:
            for connection in list(self.connections):
                connection.block(self.blocked)

    def _watch_disk(self, now: float) -> None:
        self._received = 0
        if self.disk.sample(now):
            left, limit = self.disk.last, self.disk.limit
            if self.disk.raised:
                self.warn(codes.DISK_ALARM.say(free=left, limit=limit))
            else:
                self.log(codes.DISK_ALARM_OVER.say(free=left, limit=limit))

    def _watch_memory(self, now: float) -> None:
        for connection in self.connections:
            if connection.buffered:
                connection.sent(0)  # no new output; this asks the transport for its unsent bytes
        if self.memory.sample(now, self.vhosts, self.connections):
            used, most = self.memory.used, self.memory.limit
            parts = ", ".join(f"{name} {octets}" for name, octets in self.memory.parts.items())
            if self.memory.raised:
                self.warn(codes.MEMORY_ALARM.say(used=used, parts=parts, limit=most))
            else:
                self.log(codes.MEMORY_ALARM_OVER.say(used=used, parts=parts, limit=most))
        for connection in self.memory.overdue(now, self.connections):
            connection.log(f"closed with 506 {_UNFINISHED}: {connection.unfinished} octets")
            connection.now = now
            connection.close(506, _UNFINISHED)
