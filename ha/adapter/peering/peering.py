"""Peering: this node's relation to one broker over one route. It logs in there as a client, and the broker
there need not know of it.

Owner: Peerings. It has a connection or is suspended, and then tries again by itself: at first soon, later
each `redial_most`. So neither a dead network nor a dead broker needs anybody's attention. It makes no calls:
it fills the inbox of its owner with what comes.
"""

from __future__ import annotations

import enum
from zlib import crc32

from broker.amqp091.client import (
    SPEAKS_TLS,
    ClientConnection,
    Closed,
    ExtensionReceived,
    FramesReceived,
    Opened,
)
from broker.amqp091.server.handshake import (
    FEDERATION_CAPABILITY,
    FOLLOWER_CAPABILITY,
    MANAGEMENT_CAPABILITY,
    PEER_CAPABILITY,
)
from broker.errors import LoginRefused, NotAllowed
from ha.adapter.inbox import Arrived, DialFailed, DialOpen, FramesArrived, Inbox, PeerLost
from ha.adapter.peering.login import PeeringLogin
from ha.core.mirror.wire import one_line

REDIAL = 0.2
"""Seconds until the second attempt, at most. The pause doubles with each, up to the peering's limit."""
REFUSED_REDIAL = 2.0
"""The least after a refused login, or at a listener that takes no link: it takes an operator to change that,
and each attempt is a line in the log there."""
MOST_REFUSED_REDIAL = 30.0
"""The most, where the broker is not one of this pair: its log is another operator's. The pause doubles up to
that with each refusal."""
PLAIN_CAPABILITIES = (
    "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
)  # fmt: skip
"""Of a client that any broker accepts."""


class PeeringKind(enum.Enum):
    """What a peering is for."""

    PAIR = "pair"
    """To a node of the pair."""
    MIRROR = "mirror"
    """This node follows queues there."""
    FEDERATION = "federation"
    """Exchanges here take messages from there."""
    PLAIN = "amqp"
    """The same, of a broker that knows plain AMQP only."""
    WITNESS = "witness"
    """The broker there keeps the record of the pair."""

    @property
    def connection(self) -> str:
        """What it is called in the other broker's list of connections."""
        if self is PeeringKind.FEDERATION or self is PeeringKind.PLAIN:
            return "federation"
        return "authority" if self is PeeringKind.WITNESS else "link"

    @property
    def capabilities(self) -> dict[str, bool]:
        """What this node claims to be at the login."""
        if self is PeeringKind.WITNESS:
            return {MANAGEMENT_CAPABILITY: True}
        if self is PeeringKind.PLAIN:
            return dict.fromkeys(PLAIN_CAPABILITIES, True)
        own = {PeeringKind.MIRROR: FOLLOWER_CAPABILITY, PeeringKind.FEDERATION: FEDERATION_CAPABILITY}
        return {PEER_CAPABILITY: True} | ({own[self]: True} if self in own else {})


class PeeringState(enum.Enum):
    """The state that an operator sees."""

    CONNECTING = "connecting"
    OPEN = "open"
    SUSPENDED = "suspended"
    """It tries again after a pause."""


class Peering:
    """`node`: this node's name. `never`: at that address is this very node.

    While it has a socket, or wants one, `dial_id` says which; `client` speaks on it.
    """

    def __init__(
        self, host: str, port: int, login: PeeringLogin, inbox: Inbox, node: str, kind: PeeringKind
    ) -> None:
        self.host, self.port = host, port
        self.login = login
        self.inbox = inbox
        self.kind = kind
        self.never = False
        self.dial_id: int | None = None
        self.client: ClientConnection | None = None
        self.next_at = 0.0
        self.failures = 0
        """Attempts since it was open last."""
        self.error = ""
        """What came of the last attempt; "" if it is open."""
        self._node = node
        self._refusals = 0
        """In succession."""
        self._told_open = self._told_lost = self._turned_away = False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def open(self) -> bool:
        return self._told_open and not self._told_lost

    @property
    def state(self) -> PeeringState:
        if self.open:
            return PeeringState.OPEN
        return PeeringState.SUSPENDED if self.dial_id is None else PeeringState.CONNECTING

    def due(self, now: float) -> bool:
        """Is it time for an attempt?"""
        return self.dial_id is None and not self.never and now >= self.next_at

    def next_deadline(self) -> float | None:
        if self.client is not None:
            return self.client.next_deadline()
        return self.next_at if self.dial_id is None and not self.never else None

    # -- what the driver reports

    def dialed(self, now: float) -> None:
        limits = self.login.limits
        self._told_open = self._told_lost = self._turned_away = False
        self.client = ClientConnection(
            self.login.username,
            self.login.password,
            now,
            vhost=self.login.vhost,
            capabilities=self.kind.capabilities,
            handshake_timeout=limits.handshake_timeout,
            heartbeat=limits.heartbeat,
            client_properties={"connection_name": f"{self.kind.connection} of {self._node}"},
            plain=self.kind is PeeringKind.PLAIN,
        )

    def failed(self, now: float, *, nobody: bool, distrust: str, unresolved: str) -> None:
        self._suspend(now, refused=bool(distrust))
        self.error = distrust or unresolved or ("nobody listens there" if nobody else "nobody answers there")
        self.inbox.put(DialFailed(self.address, nobody=nobody, distrust=distrust, unresolved=unresolved))

    def received(self, data: bytes, now: float) -> None:
        if self.client is not None:
            self.client.receive(data, now)
            self._events()

    def timers(self, now: float) -> None:
        if self.client is not None:
            self.client.timers(now)
            self._events()

    def closed(self, clean: bool, now: float, distrust: str) -> None:
        unspoken = "it closed the connection" if clean else "the connection broke"
        self._lost(clean, distrust=distrust, unspoken=unspoken)
        self.client = None
        self._suspend(now, refused=self._turned_away or bool(distrust))

    # -- inside

    def _suspend(self, now: float, *, refused: bool) -> None:
        self.dial_id = None
        pause = self._pause()
        self.next_at = now + (max(self._pause_of_refused(), pause) if refused else pause)
        self.failures += 1
        self._refusals = self._refusals + 1 if refused else 0

    def _pause_of_refused(self) -> float:
        if self.kind is PeeringKind.PAIR or self.kind is PeeringKind.WITNESS:
            return REFUSED_REDIAL
        return min(REFUSED_REDIAL * 2.0 ** min(self._refusals, 16), MOST_REFUSED_REDIAL)

    def _pause(self) -> float:
        """Up to a quarter shorter, each time another part of it: the nodes that lost a broker together do not
        come back together."""
        most = min(REDIAL * 2.0 ** min(self.failures, 16), self.login.limits.redial_most)
        part = crc32(f"{self._node} {self.address} {self.failures}".encode()) / 2**32
        return most * (1 - part / 4)

    def _events(self) -> None:
        assert self.client is not None and self.dial_id is not None
        for event in self.client.events():
            match event:
                case Opened():
                    self._told_open, self.failures, self._refusals, self.error = True, 0, 0, ""
                    self.inbox.put(DialOpen(self.dial_id, self.address))
                case ExtensionReceived(method_id=method_id, payload=payload):
                    self.inbox.put(Arrived(self.dial_id, method_id, payload))
                case FramesReceived(frames=frames):
                    self.inbox.put(FramesArrived(self.dial_id, frames))
                case Closed(code=code, text=text, by_peer=by_peer):
                    # A connection.close, or a heartbeat that failed: only the first is an answer of the peer.
                    self._turned_away = by_peer and code in (LoginRefused.code, NotAllowed.code)
                    self._turned_away = self._turned_away or SPEAKS_TLS in text
                    distrust = SPEAKS_TLS if SPEAKS_TLS in text else ""
                    said = f"{code} {one_line(text)}" if by_peer else ""
                    unspoken = "" if by_peer or distrust else text.removeprefix("FRAME_ERROR - ")
                    self._lost(by_peer, said, distrust=distrust, unspoken=unspoken)

    def _lost(self, clean: bool, refusal: str = "", *, distrust: str = "", unspoken: str = "") -> None:
        if self._told_lost or self.dial_id is None:
            return
        self._told_lost = True
        self.error = refusal or distrust or unspoken
        if self._told_open:
            self.inbox.put(PeerLost(self.dial_id, clean, refusal))
        else:
            self.inbox.put(DialFailed(self.address, refusal, distrust=distrust, unspoken=unspoken))
