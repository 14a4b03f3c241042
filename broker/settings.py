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
    version: str = "0.1.0"
    product: str = "RabbitMQ"
    """What clients are told that this is, with the version of it: see `handshake.server_properties`."""
    product_version: str = "3.13.7"
    users: tuple[User, ...] = field(default_factory=default_users)
    allow_plain_without_tls: bool = False
    frame_max: int = 131072
    frame_max_before_login: int = 8192
    channel_max: int = 2047
    consumer_max_per_channel: int = 1000
    consumer_max_per_queue: int = 10_000
    transaction_max: int = 32_000
    """Steps that one commit may take: nobody else is served meanwhile. See `turns.steps_of`; a dead letter is
    `transaction.LETTER`."""
    heartbeat: int = 60
    handshake_timeout: float = 10.0
    close_timeout: float = 3.0
    """How long a connection.close of ours waits for its close-ok before the socket is closed."""
    message_max: int = 128 * MIB
    large_message: int = MIB
    """A message of so many octets or more is shown to the hooks while it comes."""
    assembling_max: int = _ASSEMBLING_MAX
    """Most octets of unfinished messages on all channels of one connection, and of uncommitted ones."""
    unsent_max: int = MIB
    """Deliveries to a connection stop while it has more unsent output than this."""
    memory_limit: int | None = None
    """Publishers are paused above this much data and definitions; None: never."""
    disk_free_limit: int | None = None
    """Publishers are paused while less than this is free on the data folder's disk; None: never."""
    share: int = 8_000
    """Steps of work that the input of one connection may cause in a turn, about: a message put into a queue
    is one, some 0.3 us. What is begun is finished. Others have their turns before its next one. As much have
    all those together, in one tick, whose turns have ended with input left."""
