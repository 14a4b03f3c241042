"""What an inbound connection is to the broker, whatever protocol it speaks: output, back-pressure, time.

Owner: `Broker`; driven by the shell (or a simulation) through `receive`, `eof`, `lost`, `take_output` and
`writable`. The base of each protocol's own machine, which never raises for what the peer sends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from broker.heartbeat import Heartbeat
from broker.security.authenticator import Login
from broker.security.tickets import Ticket
from understudy.shared.text import origin, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.authorization import Access
    from broker.hooks import Hooks
    from broker.memory_alarm import MemoryAlarm
    from broker.model.history.completion import Completion
    from broker.model.vhost.directory import Directory
    from broker.model.vhost.vhost import VirtualHost
    from broker.model.vhost.vhosts import VirtualHosts
    from broker.peer import Peer
    from broker.repeats import Repeats
    from broker.security.logins import Logins
    from broker.security.tickets import Answer
    from broker.settings import BrokerSettings


_LONGEST_NAME = 80
"""Characters of a name that a client has given itself."""
_SLOW_MATCH = 4000
"""Steps that a slow match of a pattern counts as: some 0.2 ms, and what the refusal costs."""


class Held(Protocol):
    """What waits for gates, in order."""

    def release(self, completion: Completion, out: list[bytes]) -> list[Callable[[], None]]:
        """Append to `out` what may go; the callbacks to run after it, in order."""

    def __len__(self) -> int: ...


class Holder(Protocol):
    """Whose confirms or replies wait."""

    @property
    def held(self) -> Held: ...
    @property
    def connection(self) -> Connection: ...
    def __hash__(self) -> int: ...


class Services(Protocol):
    """What a connection asks of its broker. `dirty`, `resuming`, `holding`, `sends`: as `Broker` has them."""

    settings: BrokerSettings
    hooks: Hooks
    vhosts: VirtualHosts
    vhost: VirtualHost
    logins: Logins
    memory: MemoryAlarm
    repeats: Repeats[str]
    clients_log: Repeats[str]
    dirty: list[Connection]
    resuming: dict[Connection, None]
    holding: dict[Holder, None]
    sends: int
    withheld: bool
    input_held: bool
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
    def let_in(self, connection: Connection) -> None: ...
    def succeed(self, connection: Connection, header: bytes, now: float) -> Connection | None: ...
    def forget(self, connection: Connection) -> None: ...


class Connection(ABC):
    """`is_management`: the peer claimed, and may claim, to speak the extension class only (link or
    management). `let_in`: it has logged in, and the broker has taken it. `wants_close`: close the socket
    once the output is written. `paused_reading`: do not read for now. `successor`: who speaks with the peer
    instead from now on, if it began in another protocol."""

    __slots__ = (
        "_awaited",
        "_choked",
        "_congested",
        "_dirty",
        "_over",
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
        "deadline",
        "gone",
        "half_received",
        "is_management",
        "let_in",
        "life",
        "login",
        "now",
        "out",
        "paused_reading",
        "peer",
        "peer_address",
        "publishes",
        "settings",
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
        """What a stored user may do; None: everything that its tags allow."""
        self.login: Ticket | None = None
        """Its password is being checked."""
        self.client_properties: dict[str, Any] = {}
        self.is_management = self.publishes = False
        self.now = now
        self.life = Heartbeat(now)
        self.out: list[bytes] = []
        self._pending = 0
        self.buffered = 0
        """Octets that the kernel had not taken when something was last written."""
        self._tail = b""
        """Input that is not served yet: a frame that is not whole, or what output that is stalled keeps
        back."""
        self.half_received = 0
        """Octets that it holds of messages that are not whole yet."""
        self.uncommitted = 0
        """Octets that it holds in transactions."""
        self._writable = True
        self._choked = self._stalled = self._dirty = self._congested = False
        self._rests = self._over = False
        self._awaited = 0
        """Of what it has refused, parts whose dead letters are not made yet."""
        self.spent = 0
        """Steps of work that its input has caused since its turn began: see `BrokerSettings.share`."""
        self._working: list[Iterator[int]] = []
        """What its input has begun and not finished: see `work`."""
        self.wants_close = self.paused_reading = self.clean = self.gone = self.let_in = False
        self.deadline: float | None = None
        self.successor: Connection | None = None

    # -- logging in

    def log_in(self, name: str, password: str, mechanism: str = "PLAIN") -> Answer | None:
        """Who it is, or why not; None: it is being checked, and `login_answered` is called."""
        peer = self.peer
        login = Login(name, password, peer.host, peer.loopback, peer.tls, mechanism)
        found = self.broker.logins.ask(login, self.login_answered, self.now)
        if not isinstance(found, Ticket):
            return found
        self.login = found
        return None

    def withdraw_login(self) -> None:
        """The connection ends: nobody waits for the answer any more."""
        ticket, self.login = self.login, None
        if ticket is not None:
            self.broker.logins.withdraw(ticket)

    # -- of each protocol

    @property
    @abstractmethod
    def running(self) -> bool:
        """Let in, and neither end is closing it."""

    @property
    @abstractmethod
    def withheld(self) -> bool:
        """While the broker withholds output, this connection gets none: it was let in, and is a client's."""

    @abstractmethod
    def receive(self, data: bytes, now: float) -> None:
        """Bytes arrived."""

    @abstractmethod
    def timer(self, now: float) -> None:
        """A deadline of its own has come."""

    @abstractmethod
    def login_answered(self, answer: Answer, now: float) -> None:
        """The password that this connection gave has been checked."""

    @abstractmethod
    def resume(self) -> None:
        """By the broker, at the start of an end_tick: go on where back-pressure stopped, or where its turn
        ended."""

    @abstractmethod
    def block(self, blocked: bool) -> None:
        """An alarm of the broker, of memory or disk, began, or the last one ended."""

    @abstractmethod
    def close(self, code: int, text: str) -> None:
        """Take leave after what is queued, with a reply code of AMQP 0-9-1; text as it is."""

    @abstractmethod
    def let_go(self) -> None:
        """Requeue, cancel, and end what belonged to this connection. Idempotent."""

    @abstractmethod
    def finish(self) -> None:
        """Nothing more is said: `wants_close`."""

    @abstractmethod
    def forgotten(self) -> None:
        """The socket is gone, and the broker knows of it no more."""

    @property
    def certificate(self) -> bytes | None:
        """What the peer has shown of itself, in DER; None: nothing was asked of it."""
        return self.peer.shown()

    def capability(self, name: str) -> bool:
        """Does the peer say that it has this capability? A protocol without any has none of it."""
        return False

    def log_opened(self, protocol: str) -> None:
        """One line for each client that is let in: who it is, by which name, and how it came."""
        if self.is_management:
            return
        told = self.client_properties
        names = [str(told[key])[:_LONGEST_NAME] for key in ("connection_name", "product") if told.get(key)]
        client = f", client {names[0]!r}" if names else ""
        over = " over TLS" if self.peer.tls else ""
        where = f"user {self.user!r}, virtual host {self.vhost.name!r}"
        self._log_client("open", f"open: {where}{client}, {protocol}{over}")

    def log_closed(self, how: str) -> None:
        """The other line: a client that was let in has gone."""
        if self.let_in and not self.is_management:
            self._log_client("closed", f"closed {how}")

    def _log_client(self, kind: str, sentence: str) -> None:
        line = f"connection {self.peer.address}: {sentence}"
        self.broker.clients_log.say((self.peer.host, self.user, kind), line, self.now)

    def log(self, sentence: str, kind: str = "") -> None:
        """Once a second for each host and `kind` of sentence, or the sentence itself: peers may cause it any
        number of times."""
        line = f"connection {self.peer.address}: {sentence}"
        self.broker.repeats.say((self.peer.host, kind or sentence), line, self.now)

    def unexpected(self, error: Exception) -> None:
        """A fault of ours, on one line, with the way to it. Equal ones come once a second: peers may cause
        them."""
        kind = (type(error), *origin(error)[-1:])
        line = f"connection {self.peer.address}: unexpected error: {shown(repr(error))}"
        self.broker.repeats.say(kind, f"{line} at {' > '.join(origin(error))}", self.now)

    # -- output

    def send(self, *parts: bytes) -> None:
        """Queue bytes."""
        self.out += parts
        self.sent(sum(map(len, parts)))

    def sent(self, octets: int) -> None:
        """`octets` were appended to `out`: they count as unsent, and the shell will be told."""
        self._pending += octets
        if not self._dirty:
            self._dirty = True
            self.broker.dirty.append(self)

    def take_output(self) -> list[bytes]:
        """What to write, drained; write it joined."""
        if self.broker.withheld and self.withheld:
            self._dirty = False
            return []
        out, self.out = self.out, []
        self._dirty = False
        if out:
            self.life.sent = self.broker.now
        self._pending = 0
        if self._choked or self._stalled:
            self._ask_to_resume()
        return out

    def drop_output(self) -> None:
        """What was withheld is never sent. Taken whole each time, it begins and ends with whole frames."""
        if self.withheld:
            self.out = []
            self._pending = 0

    def written(self, buffered: int) -> None:
        """The shell's answer to a write, as `buffered` has it. Optional for a driver."""
        self.buffered = buffered

    def writable(self, writable: bool) -> None:
        """Back-pressure from the transport: False stops deliveries to this connection, True resumes (then
        tick)."""
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
        """A delivery did not fit: `resume` is called once output has been taken."""
        self._choked = True

    @property
    def clogged(self) -> bool:
        """The transport holds more than its limit: signs of life would only pile up."""
        return not self._writable

    @property
    def unsent(self) -> int:
        return self._pending + self.buffered

    # -- what it takes

    @property
    @abstractmethod
    def octets(self) -> int:
        """Its own memory and its socket's, about, with its channels or links, and without what is queued."""

    @property
    def unserved(self) -> int:
        return len(self._tail)

    @property
    def unfinished(self) -> int:
        """Octets that it holds until its client sends more."""
        return self.half_received + self.uncommitted + self.unserved

    def receives(self, octets: int) -> int:
        """It holds so many octets more, or fewer, of messages that are not whole; how many now."""
        self.broker.memory.unfinished += octets
        self.half_received += octets
        return self.half_received

    def transacts(self, octets: int) -> int:
        """The same in transactions."""
        self.broker.memory.unfinished += octets
        self.uncommitted += octets
        return self.uncommitted

    # -- taking turns

    @property
    def rests(self) -> bool:
        """Input waits for its next turn."""
        return self._rests

    @property
    def waits_to_send(self) -> bool:
        """It goes on with deliveries once there are `sends` again."""
        return False

    def rest(self) -> None:
        """It has had its share: the rest of its input, which its protocol keeps in `_tail`, waits for its
        next turn, at the next tick."""
        self._stalled = self._rests = True
        self.broker.resuming[self] = None

    @property
    def working(self) -> bool:
        """What its input has begun goes on in its next turns."""
        return bool(self._working)

    def work(self, steps: Iterator[int]) -> None:
        """Do what its input asks for, in pieces that say how many steps they took: now, as far as its turn
        lasts, and in its next turns. Nothing that it has sent besides is served before."""
        self._working.append(steps)
        if len(self._working) == 1:
            self.work_on()

    def work_on(self) -> bool:
        """Go on while another piece like the last one has room in this turn. Is all done?"""
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

    def matched_slowly(self) -> None:
        """A pattern of its user's permissions took many steps to match a name."""
        self.spent += _SLOW_MATCH

    def await_letters(self) -> Callable[[], None]:
        """It has refused more than is made dead letters at once: the rest of its input waits until what is
        returned is called, so that whatever it says next, such as that the queue ends, comes after them."""
        self._awaited += 1
        self.spent = self.settings.share + 1
        self.rest()
        return self._letters_made

    def await_held_back(self) -> None:
        """What it has sent may have come to full queues that hold what they refuse until they can send it on:
        the rest of its input waits for that."""
        held_back = self.vhost.removals.held_back
        while held_back:
            queue, _ = held_back.popitem()
            queue.after_dying(self.await_letters())

    def _letters_made(self) -> None:
        self._awaited -= 1
        if not self._awaited and self._rests:
            self.broker.resuming[self] = None

    def _waits_on(self, data: bytes) -> bool:
        """Input arrived. Does it have to wait for the next turn, behind what waits already?"""
        if self._rests:
            self._tail += data
            self.update_paused()
        return self._rests

    def _go_on(self, feed: Callable[[bytes], None]) -> None:
        """Its turn has come, if input waits and may be served: `feed` serves the tail."""
        if not self._stalled or (self._rests and (self._awaited or self._held_back)):
            return
        if not self._rests:
            self.spent = 0
        self._stalled = self._rests = False
        feed(self._tail)
        self.update_paused()
        if self._over and not self._rests:
            self.eof(self.broker.now)

    # -- back-pressure on publishers

    @property
    def filled(self) -> bool:
        """So much input waits unserved that no more is to be read."""
        return True

    @property
    def _held_back(self) -> bool:
        """Nothing is to be taken from it for now, as memory and the broker's owner have it."""
        held_back = (self.broker.pausing and self.publishes) or (self.broker.input_held and self.withheld)
        return held_back or self._congested

    def note_publish(self) -> None:
        """The peer publishes: an alarm of memory or disk stops reading from it."""
        if not self.publishes:
            self.publishes = True
            self.update_paused()

    def congest(self, congested: bool) -> None:
        """See `hooks.Sender`."""
        self._congested = congested
        self.update_paused()

    def update_paused(self) -> None:
        """Read no more, or again, as memory, the client's own reading and the broker's owner have it."""
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
        """Close the socket without a word: the peer would not understand, or is not there."""
        self.log(why)
        self.let_go()
        self.finish()

    def eof(self, now: float) -> None:
        """The peer will send no more (FIN); a half-open AMQP connection has no use, so it ends, once what
        arrived before is served."""
        self.broker.clock(now, 0)
        if self._rests and not self.wants_close:
            self._over = True
            return
        self.now, self.clean = now, True
        if not self.wants_close:
            if self.running:
                self.log("closed by the client without a close")
            self.let_go()
            self.finish()

    def lost(self, now: float) -> None:
        """The socket is gone: requeue what it held, end its exclusive queues. Idempotent; then tick."""
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
