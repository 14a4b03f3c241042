"""The numbers that the core goes by: a plain value, filled by the adapter from its settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from ha.core.compatibility import Compatibility


@dataclass(slots=True, frozen=True)
class Tuning:
    """Times in seconds, sizes in bytes."""

    members: int = 0
    """Nodes that may be part of the cluster, this one included."""
    block_on_loss: bool = False
    min_backups: int = 0
    ack_timeout: float = 2.0
    least_rate: int = 8 << 20
    """Bytes a second that a link and a disk move at least: a large batch may take as long, beyond
    `ack_timeout`, as long as its bytes move."""
    backup_timeout: float = 5.0
    heartbeat: float = 2.0 / 3
    lease: float = 3.0
    """Length of the leadership lease."""
    failover_timeout: float = 5.0
    """Length of the owner's lease at the authority, if that keeps one. In a pair that decides by itself: for
    how long the other node may be silent."""
    peers_decide: bool = False
    """The pair decides by itself which node serves, so that a silent node must be noticed in time."""
    snapshot_chunk: int = 1 << 18
    """About how much of a snapshot is read and sent in a tick: publishers are never held for long."""
    definitions_chunk: int = 500
    """Records of definitions, at most, that are made and sent to a joiner in a tick."""
    joiner_window: int = 4 << 20
    """Link bytes sent to a joiner and not yet acknowledged, above which no more snapshot is sent."""
    short_lag: int = 1 << 20
    """A joiner with fewer unacknowledged bytes than this may be guarded: confirms begin to wait for it."""
    short_delay: float = 0.05
    """So may one that makes each batch durable within this time, however many are on their way."""
    joiner_max: int = 256 << 20
    """A joiner with more unacknowledged bytes than this, or bytes that wait to be sent until it has the
    definitions, is dropped: it cannot keep up; it may try again."""
    contents_window: int = 1 << 20
    """Link bytes on their way above which no more of a large message is sent ahead of its batch; its client
    is not read from while a backup lags as much behind it."""
    contents_piece: int = 16 << 10
    """Octets of a large message that are worth a frame of the link: smaller parts of it wait for more."""
    contents_max: int = 256 << 20
    """Octets of large messages that are on their way ahead, above which no other one goes ahead."""
    wide_run: int = 8
    """Queues of a run from which on the backups remember its targets."""
    checkpoint_every: float = 5.0
    """Time between two consistency checkpoints while a backup is in sync."""
    checkpoint_queues: int = 500
    """Most queues that a consistency checkpoint lists: the next one goes on with the others."""
    checkpoint_most: int = 100_000
    """Most messages that a consistency checkpoint lists; a queue with more is in none."""
    peer_patience: float = 0.5
    """How long a promotion waits for the answer of a peer."""
    authority_patience: float = 2.0
    """How long an operator waits for the answer of the authority; a commit that is asked for goes on."""
    compatibility: Compatibility = field(default_factory=dict)
    """What the configuration of a primary and of its backups must agree on."""

    @property
    def silence(self) -> float:
        """Seconds after which a silent primary is left: it may still serve."""
        limit = self.ack_timeout + 2 * self.heartbeat
        return min(limit, self.failover_timeout) if self.peers_decide else limit

    @property
    def wanted(self) -> int:
        """Backups that must be in sync before anything is confirmed."""
        return max(self.min_backups, 1 if self.block_on_loss else 0)
