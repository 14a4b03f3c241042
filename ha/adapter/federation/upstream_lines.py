"""UpstreamLines: the connections to one upstream: one to each of its addresses. Owner: Agents.

All agents of that upstream share them. What comes goes to the ends of links that have joined.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ha.adapter.federation.plain.channels import Answer, ChannelClosed, Deliveries
from ha.adapter.inbox import Arrived, DialFailed, DialOpen, FramesArrived, Inbox, PeerLost
from ha.adapter.peering.addresses import is_near, split_address
from ha.adapter.peering.dial_faults import dial_failure
from ha.adapter.peering.peering import PeeringKind
from ha.core.errors import LinkError
from ha.core.federation.agent import LinkAgent
from ha.core.federation.plain.agent import PlainAgent
from ha.core.federation.plain.giver import PlainGiver
from ha.core.federation.plain.taker import PlainTaker
from ha.core.federation.wire import stream_of

if TYPE_CHECKING:
    from broker.model.vhost.federation_entries import Upstream
    from ha.adapter.federation.plain.channels import Event, PlainChannels
    from ha.adapter.federation.ports import FederationNode
    from ha.core.federation.agent_end import AgentEnd
    from ha.core.federation.ports import LinkWire

NO_LOGIN = "the configuration of this broker has no federation.logins.{name}"
IN_CLEAR = (
    "federation.logins.{name}.password would go there in the clear: set federation.logins.{name}.tls, or, on "
    "a network that you trust, auth.allow_plain_without_tls"
)
RIGHTS = "federation.logins.{name}: that user needs the tag federation there, and permissions"
PLAIN_RIGHTS = "federation.logins.{name}: that user needs to be known there, with this password"
LOST = "the connection is lost"


class UpstreamLines:
    """`entry`: where the upstream is, `name` its name; `channels`: of plain brokers."""

    def __init__(
        self, node: FederationNode, wire: LinkWire, channels: PlainChannels, name: str, entry: Upstream, *,
        gives: bool = False,
    ) -> None:  # fmt: skip
        self.entry = entry
        self._name = name
        self._channels = channels
        self._gives = gives
        self._giving: UpstreamLines | None = None
        """Other connections, for those that give to a plain broker: under an alarm it reads nothing more from
        a connection that publishes, and so no acks of what others take."""
        self._node = node
        self._wire = wire
        self._inbox = Inbox()
        self._ends: list[AgentEnd] = []
        self._open: dict[int, str] = {}
        """Address of each connection that is logged in, by peer."""
        self._heard: dict[str, tuple[str, bool]] = {}
        """By address: why the last login there failed, and whether somebody refused it."""
        self._fault = self._dial()
        """Why there are none, in a sentence; "" if there may be."""

    def _dial(self) -> str:
        node, entry = self._node, self.entry
        login = node.settings.federated.logins.get(entry.login)
        if login is None:
            return NO_LOGIN.format(name=entry.login)
        brokers = [split_address(address) for address in entry.addresses]
        clear = login.tls or node.broker.settings.allow_plain_without_tls
        if not clear and not all(is_near(host) for host, _ in brokers):
            return IN_CLEAR.format(name=entry.login)
        kind = PeeringKind.PLAIN if entry.plain else PeeringKind.FEDERATION
        node.peerings.add(brokers, replace(login, vhost=entry.vhost), self._inbox, kind)
        node.peerings.due(node.now)
        return ""

    def close(self) -> None:
        self._node.peerings.remove(self._inbox)
        if self._giving is not None:
            self._giving.close()

    def join(self, end: AgentEnd, now: float) -> None:
        """That end of a link hears what comes, and first what is known."""
        if self.entry.plain and not self._gives and isinstance(end, PlainGiver):
            if self._giving is None:
                self._giving = UpstreamLines(
                    self._node, self._wire, self._channels, self._name, self.entry, gives=True
                )
            self._giving.join(end, now)
            return
        self._ends.append(end)
        for address, (why, refused) in self._heard.items():
            end.failed(address, why, refused=refused)
        for peer, address in self._open.items():
            end.opened(peer, address, now)
        if self._fault:
            for address in self.entry.addresses:
                end.failed(address, self._fault, refused=True)

    def leave(self, end: AgentEnd) -> None:
        if self._giving is None or not isinstance(end, PlainGiver):
            self._ends.remove(end)
            return
        self._giving.leave(end)
        if not self._giving.used:
            self._giving.close()
            self._giving = None

    @property
    def used(self) -> bool:
        return bool(self._ends)

    def hear(self, now: float) -> None:
        """Hand on what came."""
        if self._giving is not None:
            self._giving.hear(now)
        for item in self._inbox.take():
            match item:
                case DialOpen(peer=peer, address=address):
                    self._opened(peer, address, now)
                case DialFailed():
                    self._failed(item)
                case Arrived(peer=peer, method=method, payload=payload):
                    self._method(peer, method, payload, now)
                case FramesArrived(peer=peer, frames=frames):
                    self._frames(peer, frames, now)
                case PeerLost(peer=peer, refusal=refusal):
                    self._lost(peer, now, refusal)
                case _:
                    pass

    def _opened(self, peer: int, address: str, now: float) -> None:
        self._open[peer] = address
        self._heard.pop(address, None)
        if self.entry.plain:
            self._channels.opened(peer, self._name, self.entry.vhost)
        for end in self._ends:
            end.opened(peer, address, now)

    def _failed(self, dial: DialFailed) -> None:
        login = self.entry.login
        why = dial_failure(dial, f"federation.logins.{login}.handshake_timeout")
        if dial.refusal.startswith("403 "):
            why += f" ({(PLAIN_RIGHTS if self.entry.plain else RIGHTS).format(name=login)})"
        refused = bool(dial.refusal or dial.distrust)
        self._heard[dial.address] = why, refused
        for end in self._ends:
            end.failed(dial.address, why, refused=refused)

    def _lost(self, peer: int, now: float, refusal: str = "") -> None:
        if address := self._open.pop(peer, ""):
            self._heard[address] = LOST, False
        for end in self._ends:
            end.lost(peer, now, refusal)
        self._channels.lost(peer)

    def _method(self, peer: int, method: int, payload: bytes, now: float) -> None:
        try:
            stream, rest = stream_of(payload)
            for end in self._ends:
                if end.stream == stream and isinstance(end, LinkAgent):
                    end.method(peer, method, rest, now)
        except LinkError as error:
            self._wire.close(peer, error.code, f"FRAME_ERROR - {error}")
            self._lost(peer, now)

    def _frames(self, peer: int, frames: list[tuple[int, int, bytes]], now: float) -> None:
        address = self._open.get(peer)
        if address is None:
            return  # it was closed for what it sent before
        ends = {end.stream: end for end in self._ends if isinstance(end, PlainAgent)}
        try:
            for event in self._channels.hear(peer, frames):
                if event.stream in ends:
                    _hand_on(ends[event.stream], peer, event, now)
        except LinkError as error:
            self._wire.close(peer, error.code, f"FRAME_ERROR - {error}")
            self._lost(peer, now)
            for end in ends.values():
                end.misled(address, str(error), now)


def _hand_on(end: PlainAgent, peer: int, event: Event, now: float) -> None:
    match event:
        case Deliveries(messages=messages):
            if isinstance(end, PlainTaker):
                end.delivered(peer, messages)
        case Answer(name=name, arguments=arguments):
            end.answered(peer, name, arguments, now)
        case ChannelClosed(code=code, text=text, failed=failed):
            end.closed(peer, code, text, failed, now)
