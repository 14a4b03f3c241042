"""Limits and identity of one broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.pieces import MIB, assembling_max
from broker.security.identity import User, default_users

_ASSEMBLING_MAX = assembling_max(128 * MIB)


@dataclass(slots=True, frozen=True)
class BrokerSettings:
    """Sizes in octets, times in seconds; RabbitMQ's defaults where it has one."""

    name: str = "understudy"
    cluster_name: str = ""
    """As which other brokers know this one and its pair, on the paths of messages; "": by `name`."""
    version: str = "0.1.0"
    product: str = "RabbitMQ"
    """The product and version reported to clients: see `handshake.server_properties`."""
    product_version: str = "3.13.7"
    users: tuple[User, ...] = field(default_factory=default_users)
    allow_plain_without_tls: bool = False
    external: str = ""
    """Where a client's certificate names its user (`certificate_user.SOURCES`); "": SASL EXTERNAL is not
    offered."""
    frame_max: int = 131072
    frame_max_before_login: int = 8192
    channel_max: int = 2047
    consumer_max_per_channel: int = 1000
    consumer_max_per_queue: int = 10_000
    producers_most: int = 10_000
    producers_idle: float = 7 * 86400.0
    consumer_timeout: int = 0
    """Milliseconds that a client may keep a message unacknowledged, if the queue says nothing else; 0 for
    any time."""
    transaction_max: int = 32_000
    """Maximum steps of one commit, because no other client is served meanwhile. See `turns.steps_of`; a dead
    letter counts `transaction.LETTER`."""
    heartbeat: int = 60
    handshake_timeout: float = 10.0
    close_timeout: float = 3.0
    """Seconds to wait for close-ok after connection.close before the socket is closed."""
    message_max: int = 128 * MIB
    large_message: int = MIB
    """Messages of this size or larger are passed to the hooks while they arrive."""
    assembling_max: int = _ASSEMBLING_MAX
    """Maximum octets of incomplete messages on all channels of one connection; also of uncommitted ones."""
    unsent_max: int = MIB
    """Deliveries to a connection stop while it has more unsent output than this."""
    memory_limit: int | None = None
    """Publishers are paused while data and definitions take more than this; None: never."""
    disk_free_limit: int | None = None
    """Publishers are paused while less than this is free on the disk of the data directory; None: never."""
    share: int = 8_000
    """Approximate steps of work that the input of one connection may cause in one turn. Putting a message
    into a queue is one step, some 0.3 us. Work in progress is completed. Other connections get their turns
    before its next one. Per tick, all connections whose turn ended with input left share as many steps."""
