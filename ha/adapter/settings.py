"""Settings of the high-availability half of a node. Owner: whoever builds a `Node` (daemon, simulation,
tests).

The daemon fills this from its configuration file; nothing here reads files or environment. Durations are
seconds as floats.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ha.core.tuning import Tuning

REPLICATE_LEVELS = ("none", "configuration", "all")
LOSS_POLICIES = ("continue", "block")


@dataclass(slots=True, frozen=True)
class HaSettings:
    """One node's view of its pair. `brokers` lists every member, this node included; empty: standalone."""

    brokers: list[tuple[str, int]] = field(default_factory=list)
    replicate: str | None = None
    """Default level of queues and exchanges that do not say `x-replicate`; None: `all` with brokers, else
    `none`.
    """
    on_backup_loss: str = "continue"
    """`continue`: confirm alone once the exclusion is recorded; `block`: hold confirms until a backup is
    back.
    """
    min_backups: int = 0
    """With fewer backups in sync than this, confirms are held, whatever `on_backup_loss` says."""
    ack_timeout: float = 2.0
    """A backup in sync that has not acknowledged for this long is excluded."""
    lease: float = 3.0
    """How long proof of being primary stays good; a link heartbeat goes out every third of it."""
    backup_timeout: float = 5.0
    """After a promotion: how long a member of the record may take to reconnect and catch up."""
    dequeue_lag: float = 0.01
    """Longest time a dequeue may wait to be sent in a range with others."""
    reconnect_grace: float = 10.0
    """After a promotion: how long queues of owners that have not come back live on."""
    username: str = "ha"
    password: str = "ha"
    authority: str = "manual"

    @property
    def default_level(self) -> str:
        """The effective `ha.replicate`."""
        return self.replicate or ("all" if self.brokers else "none")

    @property
    def heartbeat(self) -> float:
        """Seconds between link heartbeats: a third of the lease, and often enough for `ack_timeout`."""
        return min(self.lease, self.ack_timeout) / 3

    def problem(self) -> str | None:
        """What is wrong with these settings, in one line that names the key, or None."""
        if self.replicate is not None and self.replicate not in REPLICATE_LEVELS:
            return f"ha.replicate must be one of {', '.join(REPLICATE_LEVELS)}, not {self.replicate!r}"
        if self.on_backup_loss not in LOSS_POLICIES:
            return f"ha.on_backup_loss must be one of {', '.join(LOSS_POLICIES)}, not {self.on_backup_loss!r}"
        if self.authority != "manual":
            return f"ha.authority must be manual, not {self.authority!r}"
        if self.min_backups < 0:
            return f"ha.min_backups must not be negative, not {self.min_backups}"
        for key in ("ack_timeout", "lease", "backup_timeout", "reconnect_grace"):
            if getattr(self, key) <= 0:
                return f"ha.{key} must be more than 0 seconds"
        if self.dequeue_lag < 0:
            return "ha.dequeue_lag must not be negative"
        return None

    def tuning(self) -> Tuning:
        """The same numbers as the core wants them."""
        return Tuning(
            block_on_loss=self.on_backup_loss == "block",
            min_backups=self.min_backups,
            ack_timeout=self.ack_timeout,
            backup_timeout=self.backup_timeout,
            heartbeat=self.heartbeat,
            peer_patience=min(0.5, self.ack_timeout / 2),
        )
