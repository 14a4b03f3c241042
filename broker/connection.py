"""The protocol-independent part of an inbound connection: output, back-pressure, turns, time.

Owner: `Broker`. The shell (or a simulation) drives it through `receive`, `eof`, `lost`, `take_output` and
`writable`. Base of each protocol's own machine, which never raises because of a peer's input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from broker.authorization import demand, demand_topic
from broker.errors import InternalError
from broker.heartbeat import Heartbeat
from broker.model.statistics import Counts
from broker.security.access import Door
from broker.security.authenticator import Login
from broker.security.certificate_user import EXTERNAL, user_of
from broker.security.tickets import Ticket
from understudy.shared.text import origin, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.admission import Admission
    from broker.authorization import Access
    from broker.bind_waits import BindWaits
    from broker.hooks import Hooks
    from broker.memory_alarm import MemoryAlarm
    from broker.model.history.completion import Completion
    from broker.model.queue.consumer import Consumer
    from broker.model.vhost.directory import Directory
    from broker.model.vhost.vhost import VirtualHost
    from broker.model.vhost.vhosts import VirtualHosts
    from broker.peer import Peer
    from broker.repeats import Repeats
    from broker.security.identity import Kind, What
    from broker.security.logins import Logins
    from broker.security.tickets import Answer
    from broker.security.topic_permissions import Topical
    from broker.settings import BrokerSettings


_LONGEST_NAME = 80
"""Maximum characters of a name that a client gives itself."""
_LARGE = 32768
"""Octets of an incomplete message, or frame, that make it large."""
_SLOW_MATCH = 4000
"""Steps charged for a slow pattern match: some 0.2 ms, plus the cost of the refusal."""


class Held(Protocol):
    """Output that waits for gates, in order."""

    def release(self, completion: Completion, out: list[bytes]) -> list[Callable[[], None]]:
        """Append to `out` what the gates allow. Returns the callbacks to run afterwards, in order."""

    def __len__(self) -> int: ...


class Holder(Protocol):
    """A channel or link with pending confirms or replies."""

    @property
    def held(self) -> Held: ...
    @property
    def connection(self) -> Connection: ...
    def __hash__(self) -> int: ...


class Services(Protocol):
    """What a connection needs from its broker. `dirty`, `resuming`, `holding`, `unconfirmed`, `sends`: see
    `Broker`."""

    settings: BrokerSettings
    hooks: Hooks
    vhosts: VirtualHosts
    vhost: VirtualHost
    logins: Logins
    admission: Admission
    memory: MemoryAlarm
    repeats: Repeats[str]
    clients_log: Repeats[str]
    dirty: list[Connection]
    resuming: dict[Connection, None]
    holding: dict[Holder, None]
    bind_waits: BindWaits
    unconfirmed: dict[Consumer, Callable[[], bool]]
    completion: Completion
    sends: int
    output_fenced: bool
    input_paused: bool
    now: float

    @property
    def directory(self) -> Directory: ...
    @property
    def blocked(self) -> bool: ...
    @property
    def pausing(self) -> bool: ...
    @property
    def block_reason(self) -> str: ...
    def clock(self, now: float, octets: int) -> None: ...
    def arm(self, when: float, connection: Connection) -> None: ...
    def let_in(self, connection: Connection, vhost: str) -> None: ...
    def switch_protocol(self, connection: Connection, header: bytes, now: float) -> Connection | None: ...
    def forget(self, connection: Connection) -> None: ...


class Connection(ABC):
    """An inbound connection, in any protocol.

    - `is_management`: the peer uses, and may use, only the extension class (link or management).
    - `let_in`: it has logged in, and the broker counts it.
    - `wants_close`: close the socket once the output is written.
    - `paused_reading`: do not read now.
    - `successor`: the connection that replaces this one, if the peer began another protocol.
    """

    __slots__ = (
        "_awaited",
        "_choked",
        "_congested",
        "_dirty",
        "_eof_pending",
        "_pending",
        "_rests",
        "_stalled",
        "_tail",
        "_working",
        "_writable",
        "access",
        "broker",
        "buffered",
        "clean",
        "client_properties",
        "counts",
        "deadline",
        "gone",
        "half_received",
        "is_management",
        "let_in",
        "life",
        "login",
        "mechanism",
        "now",
        "only_acked",
        "out",
        "paused_reading",
        "peer",
        "peer_address",
        "publishes",
        "received_count",
        "received_octets",
        "sent_count",
        "sent_octets",
        "settings",
        "since",
        "spent",
        "successor",
        "tags",
        "uncommitted",
        "user",
        "vhost",
        "wants_close",
    )  # fmt: skip

    def __init__(self, broker: Services, peer: Peer, now: float) -> None:
        self.broker = broker
        self.peer = peer
        self.peer_address = peer.address
        self.settings: BrokerSettings = broker.settings
        self.vhost: VirtualHost = broker.vhost
        self.user = ""
        self.tags: frozenset[str] = frozenset()
        self.access: Access | None = None
        """The rights of a stored user. None: everything that its tags allow."""
        self.login: Ticket | None = None
        """The pending check of its password."""
        self.client_properties: dict[str, Any] = {}
        self.is_management = self.publishes = False
        self.now = now
        self.since = broker.vhosts.wall_ms
        """When it was accepted, in milliseconds since 1970."""
        self.counts = Counts()
        """Its messages, where no channels count them; and samples of its octets."""
        self.mechanism = ""
        """How it logged in."""
        self.received_count = self.received_octets = self.sent_count = self.sent_octets = 0
        """Reads and writes of the socket, and their octets."""
        self.life = Heartbeat(now)
        self.out: list[bytes] = []
        self._pending = 0
        self.buffered = 0
        """Octets that the kernel had not taken at the last write."""
        self._tail = b""
        """Input that is not served yet: an incomplete frame, or frames kept back because output is
        stalled."""
        self.half_received = 0
        """Octets of incomplete messages that it holds."""
        self.uncommitted = 0
        """Octets that it holds in transactions."""
        self._writable = True
        self._choked = self._stalled = self._dirty = self._congested = False
        self._rests = self._eof_pending = False
        self._awaited = 0
        """Refusals whose dead letters are not made yet."""
        self.spent = 0
        """Steps of work that its input has caused in this turn: see `BrokerSettings.share`."""
        self._working: list[Iterator[int]] = []
        """Work that its input has begun and not finished: see `work`."""
        self.only_acked = False
        """The last input was a few acks, and nothing else."""
        self.wants_close = self.paused_reading = self.clean = self.gone = self.let_in = False
        self.deadline: float | None = None
        self.successor: Connection | None = None

    # -- logging in

    def log_in(self, name: str, password: str, mechanism: str = "PLAIN") -> Answer | None:
        """Check a login. Returns the answer, or None while the check runs; then `login_answered` is
        called."""
        peer, self.mechanism = self.peer, mechanism
        login = Login(name, password, peer.host, peer.loopback, peer.tls, mechanism, self.protocol)
        found = self.broker.logins.ask(login, self.login_answered, self.now)
        if not isinstance(found, Ticket):
            return found
        self.login = found
        return None

    @property
    def offers_external(self) -> bool:
        """Whether the client may log in by its certificate: not where peers show those of nodes."""
        if not self.settings.external or not self.peer.tls or self.peer.door is Door.PEERS:
            return False
        return self.certificate is not None

    @property
    def certified_user(self) -> str:
        """The user that the client's certificate names; empty for none."""
        return user_of(self.certificate or b"", self.settings.external)

    def log_in_by_certificate(self, name: str) -> Answer:
        """Check a login by SASL EXTERNAL. `name`: the `certified_user`."""
        peer, self.mechanism = self.peer, EXTERNAL
        login = Login(
            name, "", peer.host, peer.loopback, peer.tls, EXTERNAL, self.protocol, certified=True
        )  # fmt: skip
        found = self.broker.logins.ask(login, self.login_answered, self.now)
        if isinstance(found, Ticket):
            raise InternalError("a certificate was checked like a password")
        return found

    def withdraw_login(self) -> None:
        """The connection ends: cancel the login check."""
        ticket, self.login = self.login, None
        if ticket is not None:
            self.broker.logins.withdraw(ticket)

    # -- protocol-specific

    @property
    @abstractmethod
    def protocol(self) -> str:
        """`amqp091` or `amqp10`."""

    @property
    @abstractmethod
    def running(self) -> bool:
        """Logged in, and neither end is closing the connection."""

    @property
    @abstractmethod
    def is_client(self) -> bool:
        """A logged-in client: it gets no output while output is fenced, and is not read while input is
        paused."""

    @abstractmethod
    def receive(self, data: bytes, now: float) -> None:
        """Bytes arrived."""

    @abstractmethod
    def timer(self, now: float) -> None:
        """A deadline of this connection has come."""

    @abstractmethod
    def check_acks(self, now: float) -> None:
        """Close what has kept a message unacknowledged for too long."""

    @abstractmethod
    def login_answered(self, answer: Answer, now: float) -> None:
        """The check of its password has ended."""

    @abstractmethod
    def resume(self) -> None:
        """The broker calls this at the start of `end_tick`: go on where back-pressure or the end of the turn
        stopped."""

    @abstractmethod
    def block(self, blocked: bool) -> None:
        """The first alarm (memory or disk) was raised, or the last one cleared."""

    @abstractmethod
    def close(self, code: int, text: str) -> None:
        """Send a close after the queued output, with an AMQP 0-9-1 reply code and `text` unchanged."""

    @abstractmethod
    def let_go(self) -> None:
        """Requeue, cancel, and delete what belonged to this connection. Idempotent."""

    @abstractmethod
    def finish(self) -> None:
        """Send nothing more: sets `wants_close`."""

    @abstractmethod
    def forgotten(self) -> None:
        """The socket is closed, and the broker has forgotten the connection."""

    @property
    def open_channels(self) -> int:
        """Open channels, or sessions of AMQP 1.0, which count for the limit of their user."""
        return 0

    @property
    def certificate(self) -> bytes | None:
        """The peer's certificate in DER; None: the listener asked for none."""
        return self.peer.shown()

    def capability(self, name: str) -> bool:
        """Whether the peer claims this capability. False in a protocol without capabilities."""
        return False

    def log_opened(self, protocol: str) -> None:
        """Log one line for each logged-in client: user, client name, protocol."""
        if self.is_management:
            return
        told = self.client_properties
        names = [str(told[key])[:_LONGEST_NAME] for key in ("connection_name", "product") if told.get(key)]
        client = f", client {names[0]!r}" if names else ""
        over = " over TLS" if self.peer.tls else ""
        where = f"user {self.user!r}, virtual host {self.vhost.name!r}"
        self._log_client("open", f"open: {where}{client}, {protocol}{over}")

    def log_closed(self, how: str) -> None:
        """Log that a logged-in client has disconnected."""
        if self.let_in and not self.is_management:
            self._log_client("closed", f"closed {how}")

    def _log_client(self, kind: str, sentence: str) -> None:
        line = f"connection {self.peer.address}: {sentence}"
        self.broker.clients_log.say((self.peer.host, self.user, kind), line, self.now)

    def log_refused(self, user: str, cause: str) -> None:
        """Log a refused login. `cause`: "" for an unknown name or a wrong password."""
        why = cause or "no such user, or a wrong password"
        self.log(f"login refused for user {user[:80]!r}: {why}", "login refused")

    def log(self, sentence: str, kind: str = "") -> None:
        """Log at most once a second for each host and `kind` (default: the sentence), because peers may cause
        it any number of times."""
        line = f"connection {self.peer.address}: {sentence}"
        self.broker.repeats.say((self.peer.host, kind or sentence), line, self.now)

    def unexpected(self, error: Exception) -> None:
        """Log an unexpected error of this program in one line, with its origin. Equal errors are logged once
        a second, because peers may cause them."""
        kind = (type(error), *origin(error)[-1:])
        line = f"connection {self.peer.address}: unexpected error: {shown(repr(error))}"
        self.broker.repeats.say(kind, f"{line} at {' > '.join(origin(error))}", self.now)

    def arrives(self, octets: int, now: float) -> None:
        """So many octets of input have arrived."""
        self.now = self.life.received = now
        self.received_count += 1
        self.received_octets += octets
        self.broker.clock(now, octets)

    # -- output

    def send(self, *parts: bytes) -> None:
        self.out += parts
        self.sent(sum(map(len, parts)))

    def sent(self, octets: int) -> None:
        """`octets` were appended to `out`. Count them as unsent, and mark the connection for the shell."""
        self._pending += octets
        if not self._dirty:
            self._dirty = True
            self.broker.dirty.append(self)

    def take_output(self) -> list[bytes]:
        """Take all output; write it joined."""
        if self.broker.output_fenced and self.is_client:
            self._dirty = False
            return []
        out, self.out = self.out, []
        self._dirty = False
        if out:
            self.life.sent = self.broker.now
            self.sent_count += 1
            self.sent_octets += self._pending
        self._pending = 0
        if self._choked or self._stalled:
            self._ask_to_resume()
        return out

    def drop_output(self) -> None:
        """Discard fenced output. Output is always taken completely, so it begins and ends with whole
        frames."""
        if self.is_client:
            self.out = []
            self._pending = 0

    def written(self, buffered: int) -> None:
        """The shell reports the bytes still in its buffer after a write. Optional for a driver."""
        self.buffered = buffered

    def writable(self, writable: bool) -> None:
        """Back-pressure from the transport: False stops deliveries to this connection, True resumes them at
        the next tick."""
        self._writable = writable
        if writable:
            self.buffered = 0
            self._ask_to_resume()

    def _ask_to_resume(self) -> None:
        if self._writable and self.running:
            self._choked = False
            self.broker.resuming[self] = None

    @property
    def delivery_budget(self) -> int:
        """Octets that may still be delivered now; 0 or less for none."""
        return self.settings.unsent_max - self._pending if self._writable else 0

    def choke(self) -> None:
        """A delivery did not fit. `resume` is called once output has been taken."""
        self._choked = True

    @property
    def clogged(self) -> bool:
        """The transport holds more than its limit, so heartbeats would only pile up."""
        return not self._writable

    @property
    def unsent(self) -> int:
        return self._pending + self.buffered

    # -- memory

    @property
    @abstractmethod
    def octets(self) -> int:
        """Approximate memory of the connection, its socket, channels and links, without queued data."""

    @property
    def unserved(self) -> int:
        return len(self._tail)

    @property
    def unfinished(self) -> int:
        """Octets that it holds until its client sends more."""
        return self.half_received + self.uncommitted + self.unserved

    @property
    def sends_much(self) -> bool:
        """The client sends large messages: to read more at once costs less."""
        return self.half_received + self.unserved >= _LARGE

    def receives(self, octets: int) -> int:
        """Change the octets held of incomplete messages by `octets`. Returns the new total."""
        self.broker.memory.unfinished += octets
        self.half_received += octets
        return self.half_received

    def transacts(self, octets: int) -> int:
        """The same for octets held in transactions."""
        self.broker.memory.unfinished += octets
        self.uncommitted += octets
        return self.uncommitted

    # -- turns

    @property
    def rests(self) -> bool:
        """Input waits for the next turn."""
        return self._rests

    @property
    def waits_to_send(self) -> bool:
        """The connection goes on with deliveries once the broker has `sends` again."""
        return False

    def rest(self) -> None:
        """End the turn. The rest of the input, which the protocol keeps in `_tail`, waits for the next
        tick."""
        self._stalled = self._rests = True
        self.broker.resuming[self] = None

    @property
    def working(self) -> bool:
        """Work begun by its input continues in its next turns."""
        return bool(self._working)

    def work(self, steps: Iterator[int]) -> None:
        """Run work that the input asks for, in pieces that yield their steps: now, as long as the turn lasts,
        and in the next turns. Input that arrives later is served after it."""
        self._working.append(steps)
        if len(self._working) == 1:
            self.work_on()

    def work_on(self) -> bool:
        """Continue while this turn has room for a piece like the last one. Returns whether all work is
        done."""
        working = self._working
        while working:
            now = working[0]
            for steps in now:
                self.spent += steps
                if self.spent + steps > self.settings.share and working:
                    self.spent = max(self.spent, self.settings.share + 1)
                    self.rest()
                    return False
            if working and working[0] is now:
                del working[0]
        return True

    @property
    def vhost_name(self) -> str:
        return self.vhost.name

    def check_access(self, what: What, kind: Kind, name: str) -> None:
        """See `broker.hooks.ExtensionPeer`."""
        demand(self, what, kind, name)

    def check_topic(self, what: Topical, exchange: str, key: str) -> None:
        """See `broker.hooks.ExtensionPeer`."""
        demand_topic(self, what, exchange, key)

    def matched_slowly(self) -> None:
        """A permission pattern of its user took many steps to match a name."""
        self.spent += _SLOW_MATCH

    def await_dead_letters(self) -> Callable[[], None]:
        """Stop serving input until the returned callback is called. For a client that refused more messages
        than become dead letters at once: so its next method, such as queue.delete, comes after them."""
        self._awaited += 1
        self.spent = self.settings.share + 1
        self.rest()
        return self._dead_letters_made

    def await_refused(self) -> None:
        """Stop serving input until full queues have dead-lettered the messages that they rejected."""
        held_back = self.vhost.removals.held_back
        while held_back:
            queue, _ = held_back.popitem()
            queue.after_dying(self.await_dead_letters())

    def _dead_letters_made(self) -> None:
        self._awaited -= 1
        if not self._awaited and self._rests:
            self.broker.resuming[self] = None

    def _waits_on(self, data: bytes) -> bool:
        """Input arrived. Returns whether it must wait for the next turn, behind input that waits already."""
        if self._rests:
            self._tail += data
            self.update_paused()
        return self._rests

    def _go_on(self, feed: Callable[[bytes], None]) -> None:
        """Serve the tail through `feed` if input waits and may be served."""
        if not self._stalled or (self._rests and (self._awaited or self._held_back)):
            return
        if not self._rests:
            self.spent = 0
        self._stalled = self._rests = False
        feed(self._tail)
        self.update_paused()
        if self._eof_pending and not self._rests:
            self.eof(self.broker.now)

    # -- back-pressure on publishers

    @property
    def filled(self) -> bool:
        """So much input waits that nothing more should be read."""
        return True

    @property
    def _held_back(self) -> bool:
        """Memory, disk or the broker's owner forbids input from this connection now."""
        held_back = (self.broker.pausing and self.publishes) or (self.broker.input_paused and self.is_client)
        return held_back or self._congested

    def note_publish(self) -> None:
        """The peer publishes: from now on an alarm stops reading from it."""
        if not self.publishes:
            self.publishes = True
            self.update_paused()

    def congest(self, congested: bool) -> None:
        """See `hooks.Sender`."""
        self._congested = congested
        self.update_paused()

    def update_paused(self) -> None:
        """Pause or resume reading, as alarms, stalled output and the broker's owner demand."""
        held_back = self._held_back
        paused = (self._stalled and self.filled) or (held_back and self.running)
        if self._rests and not held_back:
            self.broker.resuming[self] = None
        if paused is not self.paused_reading:
            self.paused_reading = paused
            self.life.received = self.now
            self.sent(0)

    # -- time

    def arm(self, when: float) -> None:
        """Ask for `timer` at `when` at the latest."""
        if self.deadline is None or when < self.deadline:
            self.deadline = when
            self.broker.arm(when, self)

    # -- the end

    def abandon(self, why: str) -> None:
        """Close the socket without a close method, because the peer would not understand it or is not
        there."""
        self.log(why)
        self.let_go()
        self.finish()

    def eof(self, now: float) -> None:
        """The peer has sent FIN. A half-open AMQP connection has no use, so it ends once its earlier input is
        served."""
        self.broker.clock(now, 0)
        if self._rests and not self.wants_close:
            self._eof_pending = True
            return
        self.now, self.clean = now, True
        if not self.wants_close:
            if self.running:
                self.log("ended by the client without an AMQP close")
            self.let_go()
            self.finish()

    def lost(self, now: float) -> None:
        """The socket is closed: requeue its messages and delete its exclusive queues. Idempotent; end the
        tick afterwards."""
        if self.gone:
            return
        self.broker.clock(now, 0)
        self.gone, self.now = True, now
        if not self.wants_close:
            self.log_closed("by a reset")
        self.let_go()
        self.finish()
        self.out = []
        self.broker.forget(self)
        self.forgotten()
