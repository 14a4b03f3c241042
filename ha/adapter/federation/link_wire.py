"""NodeWire: the connections of this node, as federation links use them. Owner: Federation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.adapter.peering import wire
from ha.core.federation.wire import on_stream

if TYPE_CHECKING:
    from ha.adapter.peering.wire import WiredNode


class NodeWire:
    """See `ha.core.federation.ports.LinkWire`."""

    def __init__(self, node: WiredNode) -> None:
        self._node = node

    def send(self, peer: int, stream: int, method: int, payload: bytes) -> None:
        self.send_pieces(peer, stream, method, [payload])

    def send_pieces(self, peer: int, stream: int, method: int, parts: list[bytes]) -> None:
        wire.send_pieces(self._node, peer, method, parts, on_stream(stream))

    def close(self, peer: int, code: int, text: str) -> None:
        wire.expel(self._node, peer, code, text)
