"""Changes of membership as JSON messages of the exchange `amq.failover`. Clients may bind queues to it in any
virtual host. And what the nodes of the pair say to each other, on `amq.peer`, where administrators may watch.

Called by EffectRunner on the node that serves. The routing key is the event and the name of the node that it
concerns, with a dot between. Each message also lists all addresses, as Qpid's exchange of this name does.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Protocol

from broker.amqp091.codec.frames import HEADER, body_frames, frame
from broker.model.routing.exchange import EVENTS, PEERS
from ha.core.effects import Announce, Publish
from ha.core.wire.peer_message import key_of

if TYPE_CHECKING:
    from broker.model.vhost.vhosts import VirtualHosts
    from ha.adapter.settings import HaSettings
    from ha.core.ha_broker import HaBroker
    from ha.core.role import OwnIdentity

CONTENT_TYPE = b"application/json"
LARGEST = 4096
"""The smallest frame_max there is: no client needs the event framed again."""

_CONTENT = struct.Struct(">HHQH")
_FLAGS = 1 << 15 | 1 << 12 | 1 << 6 | 1 << 5
"""content-type, delivery-mode, timestamp and type, in this order (AMQP 0-9-1, class basic)."""


class Announcer(Protocol):
    """The node, as far as its events go."""

    core: HaBroker
    me: OwnIdentity
    settings: HaSettings
    vhosts: VirtualHosts


def announce(node: Announcer, effect: Announce) -> None:
    """Publish the event, if this node serves. Without a bound queue nothing happens."""
    if not node.vhosts.serving:
        return
    _publish(node, EVENTS, key_of(effect.event, effect.name), effect.event, _document(node, effect))


def show(node: Announcer, effect: Publish) -> None:
    """A message between the nodes of the pair, on `amq.peer`, if this node serves."""
    if node.vhosts.serving:
        _publish(node, PEERS, effect.key, effect.kind, {"node": effect.sender, **effect.body})


def _publish(node: Announcer, exchange: str, key: str, kind: str, document: dict[str, Any]) -> None:
    body = json.dumps(document).encode()
    header = b"".join(
        [
            _CONTENT.pack(60, 0, len(body), _FLAGS),
            _short(CONTENT_TYPE),
            b"\1",
            struct.pack(">Q", node.vhosts.wall_ms // 1000),
            _short(kind.encode()),
        ]
    )
    parts = [frame(HEADER, 1, header), *body_frames(1, body, LARGEST)]
    for vhost in node.vhosts:
        vhost.announce(exchange, key, b"".join(parts), max(map(len, parts)))


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _document(node: Announcer, effect: Announce) -> dict[str, Any]:
    """`brokers`: all addresses of the pair. `in_sync`: names of the linked backups that hold every confirmed
    message. Confirms may wait for other backups, too: lost ones, expected ones, or ones that are joining."""
    core = node.core
    primary = core.primary
    return {
        "event": effect.event,
        "node": effect.name,
        "node_id": effect.node_id,
        "reason": effect.reason,
        "epoch": core.epoch,
        "primary": node.me.name,
        "status": core.status.value,
        "in_sync": primary.in_sync_names() if primary is not None else [],
        "brokers": node.settings.client_addresses,
        "at_ms": node.vhosts.wall_ms,
    }
