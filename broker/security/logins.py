"""Pending logins: known answers come at once; an argon2id check waits for a thread.

Owner: `Broker`. Handshakes and HTTP call it on the broker's one thread. Pure: a driver (the shell's
`LoginThreads`, or a test) takes checks with `take`, makes them anywhere, and returns the results to
`checked`. Without a driver, checks are made synchronously.

Configured plain passwords (`ha.password` among them) and remembered right passwords never wait, whatever the
load. Equal checks are made once for all callers. An address that keeps failing waits longer for its next
check (`Pauses`). If the queue is full, a login is refused at once with 320, since it may be right.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from broker.errors import ConnectionForced
from broker.security.authenticator import Authenticator, Check, Login
from broker.security.check_queue import CheckQueue
from broker.security.identity import Identity
from broker.security.pauses import Pauses, address_of
from broker.security.tickets import Answer, Ticket, Work

BUSY = "too many passwords wait to be checked; try again in a second"
SOURCES = 1000
"""Sources whose logins are counted. The one that was silent longest is forgotten."""
_SHOWN = 80
UNCHECKED = "no memory to check a password; try again in a second"


class Source(NamedTuple):
    """Who logged in, or tried to. `name`: its first characters."""

    host: str
    name: str
    protocol: str


@dataclass(slots=True)
class Attempts:
    """Logins that were answered since the start."""

    succeeded: int = 0
    failed: int = 0


class Logins:
    """`wanted`: set by the driver; called when `take` may have work. None: there is no driver. `say`: takes
    kind, sentence and time of a log line, which is logged once a second with a count."""

    def __init__(
        self, authenticator: Authenticator, say: Callable[[Hashable, str, float], None] = lambda *told: None
    ) -> None:
        self.authenticator = authenticator
        self.wanted: Callable[[], None] | None = None
        self._say = say
        self.pauses = Pauses()
        self.attempts: defaultdict[str, Attempts] = defaultdict(Attempts)
        """By protocol: `amqp091`, `amqp10`, `http`."""
        self.sources: OrderedDict[Source, Attempts] = OrderedDict()
        """Those of the last `SOURCES` sources, the newest last."""
        self._queue = CheckQueue(self.pauses)
        self._works: dict[bytes, Work] = {}
        """Waiting and running checks, by digest."""

    @property
    def waiting(self) -> int:
        """Checks not taken yet."""
        return len(self._queue)

    # -- for callers

    def ask(self, login: Login, answer: Callable[[Answer, float], None], now: float) -> Answer | Ticket:
        """The answer, or a ticket. With a ticket, `answer` is called later, unless the ticket is
        withdrawn."""
        found = self.authenticator.begin(login)
        if not isinstance(found, Check):
            return self._counted(login, found)
        if self.wanted is None:
            return self._counted(login, self._at_once(login, found))
        ticket = Ticket(login, answer)
        if not self._enter(ticket, found, now):
            return self._counted(login, self._busy(login, now))
        self.wanted()
        return ticket

    def withdraw(self, ticket: Ticket) -> None:
        """Cancel a ticket. Idempotent."""
        work, ticket.work = ticket.work, None
        if work is None:
            return
        work.tickets.pop(ticket, None)
        if not work.tickets and not work.running:
            self._queue.remove(work)
            del self._works[work.check.digest]

    # -- for the driver

    def take(self, now: float) -> Work | None:
        """The next check to make. None: there is none, or none before `next_deadline`."""
        work = self._queue.take(lambda address: self.pauses.until(address) <= now)
        if work is not None:
            work.running = True
        return work

    def next_deadline(self) -> float | None:
        """When the pause of a waiting address ends; None if nothing waits."""
        return min(map(self.pauses.until, self._queue.addresses), default=None)

    def checked(self, work: Work, matched: bool | None, now: float) -> None:
        """Take the result of a check. None: the check could not be made."""
        del self._works[work.check.digest]
        tickets = list(work.tickets)
        if matched is not None:
            self.authenticator.remember(work.check, matched)
        if matched is False:
            addresses = {work.address, *(address_of(ticket.login.host) for ticket in tickets)}
            for address in sorted(addresses):
                self.pauses.failed(address, now)
        for ticket in tickets:
            if ticket.work is not None:  # an answer may withdraw other tickets
                ticket.work = None
                self._settle(ticket, matched, now)

    # -- internal

    def _at_once(self, login: Login, check: Check) -> Answer:
        found: Answer | Check = check
        while isinstance(found, Check):
            matched = found.verify()
            if matched is None:
                return ConnectionForced(UNCHECKED)
            self.authenticator.remember(found, matched)
            found = self.authenticator.begin(login)
        return found

    def _enter(self, ticket: Ticket, check: Check, now: float) -> bool:
        """Add the ticket to the queue, or to an equal check. Returns False if there is no room."""
        address = address_of(ticket.login.host)
        work = self._works.get(check.digest)
        if work is not None:
            self._join(work, ticket, address, now)
            return True
        work = Work(check, address, ticket.login.name, {ticket: None})
        dropped = self._queue.add(work)
        if dropped is work:
            return False
        self._works[check.digest] = work
        ticket.work = work
        if dropped is not None:
            self._drop(dropped, now)
        return True

    def _join(self, work: Work, ticket: Ticket, address: str, now: float) -> None:
        work.tickets[ticket] = None
        ticket.work = work
        if not work.running and self.pauses.until(work.address) > max(now, self.pauses.until(address)):
            self._move(work, address, now)

    def _move(self, work: Work, address: str, now: float) -> None:
        """Move a check to another address that wants it too, because the first one is paused for its
        failures."""
        self._queue.remove(work)
        before, work.address = work.address, address
        dropped = self._queue.add(work)
        if dropped is work:
            work.address = before
            self._queue.add(work)
        elif dropped is not None:
            self._drop(dropped, now)

    def _drop(self, work: Work, now: float) -> None:
        del self._works[work.check.digest]
        for ticket in list(work.tickets):
            ticket.work = None
            self._answer(ticket, self._busy(ticket.login, now), now)

    def _settle(self, ticket: Ticket, matched: bool | None, now: float) -> None:
        if matched is None:
            self._answer(ticket, ConnectionForced(UNCHECKED), now)
            return
        found = self.authenticator.begin(ticket.login)
        if not isinstance(found, Check):
            self._answer(ticket, found, now)
        elif not self._enter(ticket, found, now):  # the user's password has changed
            self._answer(ticket, self._busy(ticket.login, now), now)

    def _answer(self, ticket: Ticket, found: Answer, now: float) -> None:
        ticket.answer(self._counted(ticket.login, found), now)

    def _counted(self, login: Login, found: Answer) -> Answer:
        source = Source(login.host, login.name[:_SHOWN], login.protocol)
        of_source = self.sources.setdefault(source, Attempts())
        self.sources.move_to_end(source)
        if len(self.sources) > SOURCES:
            self.sources.popitem(last=False)
        for attempts in (self.attempts[login.protocol], of_source):
            if isinstance(found, Identity):
                attempts.succeeded += 1
            else:
                attempts.failed += 1
        return found

    def _busy(self, login: Login, now: float) -> ConnectionForced:
        self.pauses.refused(address_of(login.host), now)
        self._say(BUSY, f"login of {login.name[:80]!r} from {login.host} is not looked at: {BUSY}", now)
        return ConnectionForced(BUSY)
