"""Origins: which messages of other nodes have come to an exchange, as history. Owner: Federation."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from broker.model.vhost.federation_entries import SeenAt
from ha.core.federation.seen import SEGMENT, Seen, SegmentKey
from ha.core.federation.ways import Ways

if TYPE_CHECKING:
    from broker.model.vhost.vhosts import VirtualHosts

_OCTETS = SEGMENT // 8


class Origins:
    """What every way to one exchange shares. `seen`, `ways`: see there."""

    def __init__(self, vhosts: VirtualHosts, vhost: str, exchange: str) -> None:
        self._vhosts = vhosts
        self._key = vhost, exchange
        self.ways = Ways()
        self.seen = Seen(
            (SegmentKey(at.node, at.epoch, at.number), _read(bits)) for at, bits in self._stored().items()
        )

    def settle(self) -> None:
        """In the batch of the messages that have come."""
        vhost, exchange = self._key
        for key, bits in self.seen.changes():
            self._vhosts.put_seen(vhost, SeenAt(exchange, *key), _written(bits) if bits else b"")

    def forget(self) -> None:
        """Nothing comes to this exchange any more."""
        for at in list(self._stored()):
            self._vhosts.put_seen(self._key[0], at, b"")
        self.seen = Seen()

    def _stored(self) -> dict[SeenAt, bytes]:
        return self._vhosts.directory.seen.get(self._key, {})


def _written(bits: int) -> bytes:
    return zlib.compress(bits.to_bytes(_OCTETS, "little"), 1)


def _read(stored: bytes) -> int:
    return int.from_bytes(zlib.decompress(stored), "little")
