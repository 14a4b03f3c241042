"""How a link ended: what a promotion is judged by. Owner: Backup, which makes one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class LinkEnd:
    """How the last link ended: the evidence a promotion is judged by."""

    primary: str
    primary_id: str
    clean: bool
    """By FIN or RST, that is, the other kernel answered; False: silence."""
    excluded: bool
    last_ack: float
    """The last one before which the primary cannot have excluded this node: see `AckTimes`."""
    closed_at: float
    epoch: int
    heard_at: float = 0.0
    """When the primary was heard last."""
    handed_over: bool = False
    """The primary has stepped down in favour of this node, which had all that it had."""
    asked_again: bool = False
    """A primary was asked to take this node in since: to do so, it excludes the link that was."""

    def proves_the_end(self, ack_timeout: float) -> bool:
        """The primary closed it, or died, before it could have excluded this node."""
        return self.clean and not self.asked_again and self.closed_at - self.last_ack < ack_timeout

    def went_silent_in_sync(self, ack_timeout: float) -> bool:
        """It ended by silence, and by the time the primary was heard last, it cannot have excluded this
        node."""
        return (
            not self.clean
            and not self.excluded
            and not self.asked_again
            and self.heard_at - self.last_ack < ack_timeout
        )
