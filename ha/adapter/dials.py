"""Dials: this node's outbound connections, one per configured broker, kept open and reopened when lost.

Owner: Node. It makes no calls: it fills `inbox` with what peers send, and Node hands that to the core in its
tick.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.amqp091.client import SPEAKS_TLS, ClientConnection, Closed, ExtensionReceived, Opened
from broker.amqp091.server.handshake import PEER_CAPABILITY
from broker.errors import LoginRefused, NotAllowed
from ha.adapter.inbox import Arrived, DialFailed, DialOpen, Inbox, PeerLost
from ha.adapter.peer_check import FOLLOWER_CAPABILITY
from ha.core.mirror.wire import one_line

REDIAL = 0.2
"""Seconds between two attempts at one address."""
REFUSED_REDIAL = 2.0
"""The same after a refused login, or at a listener that takes no link: it takes an operator to change that,
and each attempt is a line in both logs."""
HANDSHAKE = 2.0
"""Seconds a peer may take to let us in."""
PEER = {PEER_CAPABILITY: True}
FOLLOWER = {PEER_CAPABILITY: True, FOLLOWER_CAPABILITY: True}


@dataclass(slots=True, frozen=True)
class Dial:
    """An outbound TCP connection that the node wants; `dial_id` is never used twice."""

    dial_id: int
    host: str
    port: int


@dataclass(slots=True)
class _Address:
    host: str
    port: int
    next_at: float = 0.0
    dial_id: int | None = None
    never: bool = False
    """It is this node itself."""
    inbox: Inbox | None = None
    """Who hears what is said there, if it is not a broker of the pair."""

    @property
    def text(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(slots=True)
class _Open:
    address: _Address
    client: ClientConnection
    told_open: bool = False
    told_lost: bool = False
    turned_away: bool = False


@dataclass(slots=True)
class Dials:
    """All addresses and the connections to them."""

    user: str
    password: str
    name: str
    inbox: Inbox
    addresses: list[_Address] = field(default_factory=list)
    open: dict[int, _Open] = field(default_factory=dict)
    _wanted: list[Dial] = field(default_factory=list)

    @classmethod
    def to(cls, brokers: list[tuple[str, int]], user: str, password: str, name: str, inbox: Inbox) -> Dials:
        return cls(user, password, name, inbox, [_Address(host, port) for host, port in brokers])

    def names(self) -> list[str]:
        """Of the brokers of the pair."""
        return [a.text for a in self.addresses if a.inbox is None]

    def add(self, brokers: list[tuple[str, int]], inbox: Inbox) -> None:
        """Dial these brokers as well. They are not of the pair; `inbox` is for their messages alone."""
        self.addresses += [_Address(host, port, inbox=inbox) for host, port in brokers]

    def remove(self, inbox: Inbox) -> None:
        """Stop dialing that broker."""
        for item in self.open.values():
            if item.address.inbox is inbox:
                item.client.close()
        self.addresses = [address for address in self.addresses if address.inbox is not inbox]

    def due(self, now: float, *, at_once: bool = False) -> None:
        """Ask for connections to all addresses that have none and are due."""
        for address in self.addresses:
            if address.dial_id is None and not address.never and (at_once or now >= address.next_at):
                address.dial_id = self.inbox.new_peer()
                self._wanted.append(Dial(address.dial_id, address.host, address.port))

    def next_deadline(self) -> float | None:
        first: float | None = None
        for address in self.addresses:
            if address.dial_id is None and not address.never and (first is None or address.next_at < first):
                first = address.next_at
        for item in self.open.values():
            deadline = item.client.next_deadline()
            if deadline is not None and (first is None or deadline < first):
                first = deadline
        return first

    def timers(self, now: float) -> None:
        for dial_id, item in list(self.open.items()):
            item.client.timers(now)
            self._events(dial_id, item)
        self.due(now)

    def take_wanted(self) -> list[Dial]:
        wanted, self._wanted = self._wanted, []
        return wanted

    def forget(self, address: str) -> None:
        """That address is this node: never dial it again."""
        for entry in self.addresses:
            if entry.text == address and entry.inbox is None:
                entry.never = True

    # -- what the driver reports

    def dialed(self, dial_id: int, now: float) -> None:
        address = self._of(dial_id)
        if address is None:
            return
        client = ClientConnection(
            self.user,
            self.password,
            now,
            capabilities=PEER if address.inbox is None else FOLLOWER,
            handshake_timeout=HANDSHAKE,
            heartbeat=5,
            client_properties={"connection_name": f"link of {self.name}"},
        )
        self.open[dial_id] = _Open(address, client)

    def failed(
        self, dial_id: int, now: float, *, nobody: bool = False, distrust: str = "", unresolved: str = ""
    ) -> None:
        address = self._of(dial_id)
        if address is not None:
            address.dial_id, address.next_at = None, now + (REFUSED_REDIAL if distrust else REDIAL)
            failed = DialFailed(address.text, nobody=nobody, distrust=distrust, unresolved=unresolved)
            self._of_whom(address).put(failed)

    def received(self, dial_id: int, data: bytes, now: float) -> None:
        item = self.open.get(dial_id)
        if item is not None:
            item.client.receive(data, now)
            self._events(dial_id, item)

    def closed(self, dial_id: int, clean: bool, now: float, distrust: str = "") -> None:
        item = self.open.pop(dial_id, None)
        if item is None:
            self.failed(dial_id, now, distrust=distrust)
            return
        wait = REFUSED_REDIAL if item.turned_away or distrust else REDIAL
        item.address.dial_id, item.address.next_at = None, now + wait
        unspoken = "it closed the connection" if clean else "the connection broke"
        self._lost(dial_id, item, clean, distrust=distrust, unspoken=unspoken)

    def _of_whom(self, address: _Address) -> Inbox:
        return self.inbox if address.inbox is None else address.inbox

    def _events(self, dial_id: int, item: _Open) -> None:
        inbox = self._of_whom(item.address)
        for event in item.client.events():
            match event:
                case Opened():
                    item.told_open = True
                    inbox.put(DialOpen(dial_id, item.address.text))
                case ExtensionReceived(method_id=method_id, payload=payload):
                    inbox.put(Arrived(dial_id, method_id, payload))
                case Closed(code=code, text=text, by_peer=by_peer):
                    # A connection.close, or a heartbeat that failed: only the first is an answer of the peer.
                    item.turned_away = by_peer and code in (LoginRefused.code, NotAllowed.code)
                    item.turned_away = item.turned_away or SPEAKS_TLS in text
                    distrust = SPEAKS_TLS if SPEAKS_TLS in text else ""
                    said = f"{code} {one_line(text)}" if by_peer else ""
                    unspoken = "" if by_peer or distrust else text.removeprefix("FRAME_ERROR - ")
                    self._lost(dial_id, item, by_peer, said, distrust=distrust, unspoken=unspoken)

    def _lost(
        self, dial_id: int, item: _Open, clean: bool, refusal: str = "", *, distrust: str = "",
        unspoken: str = "",
    ) -> None:  # fmt: skip
        if item.told_lost:
            return
        item.told_lost = True
        inbox = self._of_whom(item.address)
        if item.told_open:
            inbox.put(PeerLost(dial_id, clean))
        else:
            inbox.put(DialFailed(item.address.text, refusal, distrust=distrust, unspoken=unspoken))

    def _of(self, dial_id: int) -> _Address | None:
        return next((a for a in self.addresses if a.dial_id == dial_id), None)
