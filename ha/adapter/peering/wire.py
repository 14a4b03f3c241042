"""How to reach a peer by its number: over a connection that it has opened here, or that this node has opened
there. What is sent to a peer that is gone is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from understudy.shared.octets import cut

if TYPE_CHECKING:
    from ha.adapter.ha_hooks import HaHooks
    from ha.adapter.peering.peerings import Peerings

CHANNEL = 1
"""The one channel of a connection of a peer."""


class WiredNode(Protocol):
    """The node, as far as its peers concern it."""

    hooks: HaHooks
    peerings: Peerings


def send_pieces(node: WiredNode, peer: int, method: int, parts: list[bytes], head: bytes = b"") -> None:
    """Send `parts`, as if joined, in as many methods as it takes, each of which begins with `head`."""
    inbound = node.hooks.peers.get(peer)
    if inbound is not None:
        for piece in cut(parts, inbound.extension_room - len(head)):
            inbound.send_extension(CHANNEL, method, head + piece)
        return
    client = node.peerings.sender(peer)
    if client is not None:
        for piece in cut(parts, client.extension_room - len(head)):
            client.send_extension(method, head + piece)


def close(node: WiredNode, peer: int, code: int, text: str) -> None:
    """Close the connection of a peer."""
    inbound = node.hooks.peers.get(peer)
    if inbound is not None:
        inbound.close(code, text)
    else:
        _close_own(node, peer, code, text)


def expel(node: WiredNode, peer: int, code: int, text: str) -> None:
    """Close the connection of a peer for what it sent. If the peer opened it, the log gets a line."""
    inbound = node.hooks.peers.get(peer)
    if inbound is not None:
        inbound.expel(code, text)
    else:
        _close_own(node, peer, code, text)


def _close_own(node: WiredNode, peer: int, code: int, text: str) -> None:
    client = node.peerings.client(peer)
    if client is not None:
        client.close(code, text)
