"""Peerings: all peerings of a node: one for each broker of its pair, those of queue mirrors, and one to the
witness.

Owner: Node. The driver opens the connections that it wants (`take_wanted`), and reports by `dial_id` how each
went. What comes of them fills the inbox of the peering's owner, and the Node hands it on in its tick.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ha.adapter.peering.peering import Peering, PeeringKind

if TYPE_CHECKING:
    from broker.amqp091.client import ClientConnection
    from ha.adapter.inbox import Inbox
    from ha.adapter.peering.login import PeeringLogin


LOOK = 3.0
"""Seconds after which deadlines are looked up again in any case: this end may have begun to close a
connection."""
NOW = 0.0


@dataclass(slots=True, frozen=True)
class Dial:
    """An outbound TCP connection that the node wants; `dial_id` is never used twice. `timeout`: seconds that
    it may take, and TLS as many again. `tls`: as `peering` has it, the name of the login; "" is the pair's.
    """

    dial_id: int
    host: str
    port: int
    timeout: float
    tls: bool
    peering: str


class Peerings:
    """See the module. `numbers`: numbers peers and dials alike."""

    def __init__(self, node: str, numbers: Inbox) -> None:
        self._node = node
        self._numbers = numbers
        self._all: list[Peering] = []
        self._open: dict[int, Peering] = {}
        self._wanted: list[Dial] = []
        self._look_at = NOW
        """No deadline is earlier."""

    def names(self) -> list[str]:
        """Addresses of the brokers of the pair."""
        return [peering.address for peering in self._all if peering.kind is PeeringKind.PAIR]

    def add(
        self, brokers: list[tuple[str, int]], login: PeeringLogin, inbox: Inbox, kind: PeeringKind
    ) -> None:
        """Keep a connection to each of these brokers; `inbox` gets what comes of them."""
        self._look_at = NOW
        self._all += [Peering(host, port, login, inbox, self._node, kind) for host, port in brokers]

    def remove(self, inbox: Inbox) -> None:
        """End all that fill this inbox."""
        for peering in self._open.values():
            if peering.inbox is inbox and peering.client is not None:
                peering.client.close()
        self._all = [peering for peering in self._all if peering.inbox is not inbox]

    def forget(self, address: str) -> None:
        """That address, of the pair's, is this node: never dial it again."""
        for peering in self._all:
            if peering.address == address and peering.kind is PeeringKind.PAIR:
                peering.never = True

    def client(self, dial_id: int) -> ClientConnection | None:
        """What speaks on that connection, while there is one."""
        peering = self._open.get(dial_id)
        return peering.client if peering is not None else None

    def sender(self, dial_id: int) -> ClientConnection | None:
        """The same, while methods may be sent on it."""
        client = self.client(dial_id)
        return client if client is not None and client.opened and not client.wants_close else None

    def due(self, now: float, *, at_once: bool = False) -> None:
        """Ask for connections for all peerings that have none and are due."""
        for peering in self._all:
            if peering.due(float("inf") if at_once else now):
                peering.dial_id = dial_id = self._numbers.new_peer()
                login = peering.login
                timeout = login.limits.handshake_timeout
                self._wanted.append(Dial(dial_id, peering.host, peering.port, timeout, login.tls, login.name))

    def resume(self, now: float) -> None:
        """Try those of the pair at once that are suspended."""
        self._look_at = NOW
        for peering in self._all:
            if peering.kind is PeeringKind.PAIR:
                peering.next_at = min(peering.next_at, now)
        self.due(now)

    def next_deadline(self, now: float) -> float | None:
        """When to call `timers` next. What an open connection sends and receives only puts it off, so it is
        not looked up again each time."""
        if now >= self._look_at and (self._all or self._open):
            # One that was removed is only in `_open` until its connection is closed.
            times = [peering.next_deadline() for peering in (*self._all, *self._open.values())]
            known = [time for time in times if time is not None]
            self._look_at = min([now + LOOK, *known])
        return self._look_at if self._all or self._open else None

    def timers(self, now: float) -> None:
        self._look_at = NOW
        for peering in list(self._open.values()):
            peering.timers(now)
        self.due(now)

    def take_wanted(self) -> list[Dial]:
        wanted, self._wanted = self._wanted, []
        return wanted

    def status(self) -> list[dict[str, Any]]:
        """Each peering for people, as docs/reference/http-api.md lists it."""
        return [
            {
                "address": peering.address, "of": peering.kind.value,
                "peering": peering.login.name, "vhost": peering.login.vhost, "tls": peering.login.tls,
                "state": peering.state.value, "failures": peering.failures, "error": peering.error,
            }
            for peering in self._all if not peering.never
        ]  # fmt: skip

    # -- what the driver reports

    def dialed(self, dial_id: int, now: float) -> None:
        peering = self._of(dial_id)
        self._look_at = NOW
        if peering is not None:
            peering.dialed(now)
            self._open[dial_id] = peering

    def failed(
        self, dial_id: int, now: float, *, nobody: bool = False, distrust: str = "", unresolved: str = ""
    ) -> None:
        peering = self._of(dial_id)
        self._look_at = NOW
        if peering is not None:
            peering.failed(now, nobody=nobody, distrust=distrust, unresolved=unresolved)

    def received(self, dial_id: int, data: bytes, now: float) -> None:
        peering = self._open.get(dial_id)
        if peering is not None:
            was_open = peering.open
            peering.received(data, now)
            if not (was_open and peering.open):
                self._look_at = NOW

    def closed(self, dial_id: int, clean: bool, now: float, distrust: str = "") -> None:
        peering = self._open.pop(dial_id, None)
        self._look_at = NOW
        if peering is None:
            self.failed(dial_id, now, distrust=distrust)
            return
        peering.closed(clean, now, distrust)

    def _of(self, dial_id: int) -> Peering | None:
        return next((peering for peering in self._all if peering.dial_id == dial_id), None)
