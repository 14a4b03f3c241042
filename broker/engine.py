"""The broker without I/O: connections, ticks, timers, completion. Owner: the shell, a node or a simulation.

A driver hands bytes to connections, calls `timers` when `next_deadline` has come, calls `end_tick` once
after each burst of those, and writes what the connections of `take_dirty` give. The order inside `end_tick`
is the broker's promise: deliveries, then one history batch to all sinks (store, link, ledger), then the
confirms and replies that the gates allow, so that nothing is confirmed that the sinks have not been given.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from itertools import count

from broker import codes
from broker.amqp091.codec.message_format import MESSAGE_FORMAT
from broker.amqp091.publishing.publish import PublishMemo
from broker.amqp091.server.connection import ServerConnection
from broker.connection import Connection, Holder, Services
from broker.disk_alarm import DiskAlarm
from broker.errors import NotAllowed
from broker.hooks import Hooks
from broker.memory_alarm import MemoryAlarm
from broker.model.history.batch import BatchSink
from broker.model.history.completion import Completion, Gate
from broker.model.queue.removals import HAND, LOOKED, STEPS, WORK_AT_ONCE
from broker.model.queue.requeueing import PIECE
from broker.model.vhost.directory import Directory
from broker.model.vhost.vhost import VirtualHost
from broker.model.vhost.vhosts import VirtualHosts
from broker.paging import Paging
from broker.peer import Peer
from broker.repeats import Repeats
from broker.security.access import Door
from broker.security.authenticator import Authenticator
from broker.security.logins import Logins
from broker.settings import BrokerSettings
from broker.wall_clock import WallClock
from understudy.shared.codes import Coded

_TIMERS_KEPT = 64
"""Deadlines that outnumber the connections by half, and by this many halves besides, are looked through for
those of connections that are gone."""

_COMINGS = 20
"""Lines of the log in a second that tell of clients of one user which come from one host, and as many that
tell of those which go. The others are counted."""

_QUEUE = 125
"""Steps that the end of a queue takes, about."""
SEND = 100
"""Steps of a share for each message that a tick may send and that is encoded anew, which takes 55 us."""

_UNFINISHED = "RESOURCE_ERROR - unfinished messages keep the memory alarm on"

_LOGGER = logging.getLogger("understudy.broker")


class Broker:
    """One broker: its virtual hosts, connections and the order of a tick.

    `sinks` receive each tick's batch in the order store, link, ledger; `gates` are whom confirms wait for.
    Both are plain lists for the owner to change between ticks. `vhost`: the virtual host `/`.
    """

    def __init__(
        self, settings: BrokerSettings, hooks: Hooks, vhosts: VirtualHosts, *,
        log: Callable[[str], None] | None = None, warn: Callable[[Coded], None] | None = None,
        authenticator: Authenticator | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings
        self.hooks = hooks
        self.vhosts = vhosts
        self.vhost = vhosts.root
        vhosts.removals.format = MESSAGE_FORMAT
        vhosts.ending = self._vhost_ends
        vhosts.warn = lambda sentence: self.log(sentence)
        vhosts.consumer_max = settings.consumer_max_per_queue
        vhosts.steps = min(STEPS, max(HAND, 4 * settings.share))
        requeueing = vhosts.removals.requeueing
        requeueing.piece = requeueing.left = min(PIECE, max(1, settings.share // 3))
        vhosts.removals.work = min(WORK_AT_ONCE, max(1, settings.share // LOOKED))
        vhosts.leaving.at_once = max(1, settings.share // _QUEUE)
        self.sends = self._sends_each = max(1, settings.share // SEND)
        """Messages that may still be sent in this tick, of those that are encoded anew for each consumer: all
        AMQP 1.0 connections share them."""
        self.history = vhosts.history
        self.sinks: list[BatchSink] = vhosts.history.sinks
        self.gates: list[Gate] = []
        self.completion = Completion(self.gates)
        self.authenticator = authenticator or Authenticator(
            settings.users, allow_plain_without_tls=settings.allow_plain_without_tls
        )
        self.authenticator.stored = lambda name: self.directory.users.get(name)
        self.log: Callable[[str], None] = log or _LOGGER.info
        self.warn: Callable[[Coded], None] = warn or (lambda said: self.log(said.sentence))
        self.clients_log = Repeats[str](logging.getLogger("understudy.clients").info, each=_COMINGS)
        """What is counted there is told by the next tick after its second: no tick is made for it."""
        """Who comes and goes."""
        self.protocols: dict[bytes, Callable[[Services, Peer, float], Connection]] = {}
        """Others than AMQP 0-9-1, by the eight octets that a client begins with."""
        self.repeats = Repeats(self.log)
        """Sentences that peers may cause any number of times."""
        self.logins = Logins(self.authenticator, self.repeats.say)
        self.clients_max: int | None = None
        """The most clients that are let in; None: any number. Peers and operators do not count."""
        self.clients = 0
        self.connections: dict[Connection, None] = {}
        """In order of arrival: what is done to all of them is done in the same order in every run."""
        self.publish_memo = PublishMemo()
        self.dirty: list[Connection] = []
        """Connections with output; they add themselves once per `take_output`."""
        self.resuming: dict[Connection, None] = {}
        """Connections that go on in the next tick: their output was taken after back-pressure stopped them,
        or their turn has ended with input left."""
        self.holding: dict[Holder, None] = {}
        """Channels with confirms or replies that are not out yet, and what is like them elsewhere."""
        self.memory = MemoryAlarm(settings.memory_limit)
        self.disk = DiskAlarm(settings.disk_free_limit)
        self.paging = Paging()
        self._received = 0
        """Octets of input since the disk was looked at."""
        self.withheld = False
        """Nothing that confirms or delivers may leave for now: see `withhold`."""
        self.input_held = False
        """Nothing is read from clients, or delivered to them, for now: see `hold_input`."""
        self.heed: Callable[[float], None] = lambda now: None
        """Told of each new instant before its input is handled: its owner may want to withhold."""
        self.now = 0.0
        self._wall = WallClock()
        self._heeded = 0
        """The generation of the directory that the connections follow."""
        self._timers: list[tuple[float, int, Connection]] = []
        self._order = count()

    @property
    def directory(self) -> Directory:
        """Stored users and what they may do, as this node has it now: one that follows knows them as well."""
        return self.vhosts.directory

    @property
    def blocked(self) -> bool:
        """An alarm is on: publishers are not read from."""
        return self.memory.raised or self.disk.raised

    @property
    def pausing(self) -> bool:
        """Publishers are not read from: an alarm is on, or what is to leave memory cannot so fast."""
        return self.blocked or self.paging.behind

    @property
    def alarms(self) -> list[str]:
        """Those that are on: `memory`, `disk`."""
        return [name for name, alarm in (("memory", self.memory), ("disk", self.disk)) if alarm.raised]

    @property
    def block_reason(self) -> str:
        """In RabbitMQ's words."""
        return "low on " + " & ".join(self.alarms)

    # -- driving

    def accept(self, peer: Peer, now: float) -> ServerConnection:
        """A client connected."""
        self.clock(now, 0)
        connection = ServerConnection(self, peer, now, self.publish_memo)
        self.connections[connection] = None
        return connection

    def succeed(self, connection: Connection, header: bytes, now: float) -> Connection | None:
        """A client began with `header`, which is not 0-9-1's: who speaks with it from now on; None: nobody
        can."""
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
        """Input of `octets` arrived at `now`: the virtual hosts' wall clock follows."""
        if now != self.now:
            self.now = now
            self.vhosts.wall_ms = self._wall.at(now)
            if self.vhosts.removals.since is None:
                self.vhosts.removals.since = self.vhosts.wall_ms
            self.heed(now)
        self.memory.received += octets
        self._received += octets

    def wall_at(self, now: float) -> int:
        """What messages are dated by, in milliseconds."""
        return self._wall.at(now)

    def go_on_from(self, now: float, wall_ms: float) -> None:
        """Messages are dated by this clock from now on, which is made to follow the machine's slowly."""
        self._wall.put(now, wall_ms)
        self.vhosts.wall_ms = self._wall.at(now)

    def end_tick(self, now: float, wall_ms: int) -> None:
        """Dispatch, flush history to the sinks, release what the gates allow. Never raises for what peers
        did."""
        self.now = now
        self.vhosts.wall_ms = self._wall.follow(now, wall_ms)
        if self._heeded != self.directory.generation:
            self._heed_directory(now)
        self.sends = self._sends_each
        if self.resuming:
            self._resume()
        if not self.withheld and not self.input_held:
            self.vhosts.dispatch()
            self.vhosts.expire(now)
        self.vhosts.removals.end_tick()
        self.history.flush(now, wall_ms)
        if self.holding:
            self.release()
        if self.paging.due(now) and self.paging.step(now, self.vhosts):
            for connection in list(self.connections):
                connection.update_paused()
        if self.repeats.due is not None:
            self.repeats.flush(now)
        if self.clients_log.due is not None:
            self.clients_log.flush(now)
        if self.memory.due(now) or self.disk.due(now, self._received):
            self._watch(now)

    def _resume(self) -> None:
        """Connections go on. Those whose turn had ended share one turn: once it is used up, the others wait,
        and are the first in the next tick. So do those that wait to send."""
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
        """Send what the gates allow. `end_tick` calls it; so may one who moved a gate after its
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

    def timers(self, now: float) -> None:
        """Handshake limits, held handshakes, heartbeats, closes that nobody answered. Then call
        `end_tick`."""
        self.clock(now, 0)
        heap = self._timers
        while heap and heap[0][0] <= now:
            when, _, connection = heapq.heappop(heap)
            if connection.deadline == when and not connection.gone:
                connection.timer(now)

    def next_deadline(self) -> float | None:
        """When `timers` and `end_tick` want to be called next, on the clock of `now`; may be past: at
        once."""
        waits, vhosts = self.withheld or self.input_held, self.vhosts
        if self.resuming or ((vhosts.pending or vhosts.removals.waiting) and not waits):
            return self.now
        if vhosts.removals.in_pieces:
            return self.now
        if vhosts.leaving.stirred and vhosts.leaving and vhosts.deciding and not waits:
            return self.now
        heap = self._timers
        while heap and (heap[0][2].gone or heap[0][2].deadline != heap[0][0]):
            heapq.heappop(heap)
        deadline = heap[0][0] if heap else None
        expiry = None if waits else vhosts.expiries.next()
        over = None if waits else vhosts.removals.next()
        removal = None if over is None else self._wall.when(over)
        watches = (self.memory.next_deadline(), self.disk.next_deadline(), self.paging.next_deadline())
        for other in (self.history.next_deadline(), *watches, self.repeats.due, expiry, removal):
            if other is not None and (deadline is None or other < deadline):
                deadline = other
        return deadline

    def take_dirty(self) -> list[Connection]:
        """Connections with output, a changed `paused_reading`, or a wish to close, since the last call."""
        dirty, self.dirty = self.dirty, []
        return dirty

    # -- called by connections

    def arm(self, when: float, connection: Connection) -> None:
        """Call the connection's `timer` at `when`, unless it has changed its `deadline` by then."""
        heapq.heappush(self._timers, (when, next(self._order), connection))

    def let_in(self, connection: Connection) -> None:
        """It has logged in, and may come in. Raises NotAllowed if it is one client too many."""
        if not connection.is_management:
            if self.clients_max is not None and self.clients >= self.clients_max:
                raise NotAllowed(
                    f"connection refused: the limit of {self.clients_max} clients is reached"
                    " (broker.max_connections)"
                )
            self.clients += 1
        connection.let_in = True

    def forget(self, connection: Connection) -> None:
        """The connection's socket is gone."""
        self.connections.pop(connection, None)
        if connection.let_in and not connection.is_management:
            connection.let_in = False
            self.clients -= 1
        self.resuming.pop(connection, None)
        if 2 * len(self._timers) > _TIMERS_KEPT + 3 * len(self.connections):
            # A deadline may be hours off, and holds what is gone until then.
            self._timers[:] = [t for t in self._timers if t[2].deadline == t[0] and not t[2].gone]
            heapq.heapify(self._timers)

    # -- for the owner

    def close_connections(
        self, code: int, text: str, now: float, *, keep: Callable[[Connection], bool] | None = None
    ) -> None:
        """connection.close, with `text` as it is, to everybody but those that `keep` names: demotion,
        shutdown.

        What they held is requeued and their exclusive queues end before this returns. Where these are very
        many, the rest follows in the next ticks (`Requeueing`, `Leaving`).
        """
        self.clock(now, 0)
        for connection in list(self.connections):
            if keep is None or not keep(connection):
                connection.now = now
                connection.close(code, text)

    def withhold(self) -> None:
        """Until `resume_output`: clients that are let in get nothing, what is queued for them included;
        nothing is delivered, and no queue ends because its clients go. Management connections go on.
        """
        self.withheld = True
        self.vhosts.deciding = False

    def resume_output(self) -> None:
        """What was withheld may leave, and what was left undecided is decided."""
        self.withheld = False
        self.vhosts.decide_again()
        for connection in self.connections:
            connection.sent(0)

    def hold_input(self) -> None:
        """Until `take_input`: clients that are let in are not read from, and nothing new is delivered to
        them; what is due to them goes out. Management connections go on.
        """
        self.input_held = True
        for connection in self.connections:
            connection.update_paused()

    def take_input(self) -> None:
        """Clients are read from again."""
        if self.input_held:
            self.input_held = False
            for connection in self.connections:
                connection.update_paused()

    def drop_withheld(self) -> None:
        """What was withheld is never to leave: those who waited for it are to be closed next."""
        if self.withheld:
            for connection in self.connections:
                connection.drop_output()
            self.withheld = False

    def _heed_directory(self, now: float) -> None:
        """Users were stored or deleted: who is no more is sent away, the others have the tags of now."""
        directory = self.directory
        self._heeded = directory.generation
        for connection in list(self.connections):
            if connection.access is None:
                continue
            user = directory.users.get(connection.user)
            if user is not None:
                connection.tags = user.tags
            else:
                self._send_away(connection, f"user '{connection.user}' is deleted", now)

    def _vhost_ends(self, vhost: VirtualHost) -> None:
        """Its clients are closed first: what they held is requeued, and nobody is told of each queue."""
        for connection in list(self.connections):
            if connection.vhost is vhost:
                self._send_away(connection, f"vhost '{vhost.name}' is deleted", self.now)

    def _send_away(self, connection: Connection, gone: str, now: float) -> None:
        connection.log(f"closed: {gone}")
        connection.now = now
        connection.close(320, f"CONNECTION_FORCED - {gone}")

    def _watch(self, now: float) -> None:
        """Look at memory and disk; tell the log and the publishers what has changed."""
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
                self.log(f"disk: {left} octets free, above the limit of {limit}")

    def _watch_memory(self, now: float) -> None:
        for connection in self.connections:
            if connection.buffered:
                connection.sent(0)  # nothing more, but its transport is asked what is left
        if self.memory.sample(now, self.vhosts, self.connections):
            used, most = self.memory.used, self.memory.limit
            parts = ", ".join(f"{name} {octets}" for name, octets in self.memory.parts.items())
            if self.memory.raised:
                self.warn(codes.MEMORY_ALARM.say(used=used, parts=parts, limit=most))
            else:
                self.log(f"memory: {used} octets ({parts}), below the limit of {most}")
        for connection in self.memory.overdue(now, self.connections):
            connection.log(f"closed with 506 {_UNFINISHED}: {connection.unfinished} octets")
            connection.now = now
            connection.close(506, _UNFINISHED)
