"""AckTimes: since when a primary may have excluded this node, as far as its acknowledgements tell.

Owner: Backup, one for each link. A primary excludes who has not acknowledged for `ha.ack_timeout`, and says
so; but with a link that breaks, that word can be lost. An acknowledgement that comes later than that after
the one before (this process was paused, or its disk stood still) may come too late, and proves nothing by
being sent. It counts when the link has stood `ha.ack_timeout` longer: what was on its way, an exclusion too,
has been heard by then.
"""

from __future__ import annotations

from math import inf


class AckTimes:
    """Times are seconds of the node's clock; `begun`: when the primary was asked to take this node in."""

    def __init__(self, ack_timeout: float, begun: float = 0.0) -> None:
        self.sure = begun
        """The last acknowledgement before which there was no exclusion."""
        self._timeout = ack_timeout
        self._last = begun
        self._late = -inf
        """The last one that may have come too late."""
        self._complete = inf
        """The first one that said that the copy is complete."""

    def sent(self, now: float, *, counts: bool, complete: bool) -> None:
        """`counts`: for this, the primary excludes nobody. `complete`: for this, it may include this node."""
        if complete:
            self._complete = min(self._complete, now)
        if not counts:
            return
        if now - self._last >= self._timeout:
            self._late = now
        self._last = now
        if now - self._late >= self._timeout:
            self.sure = now

    def included(self) -> None:
        """The primary has answered: it has heard that the copy is complete, and whatever was late before does
        not matter. What was late since may have come after an exclusion all the same.
        """
        if self._late <= self._complete:
            self._late = -inf
            self.sure = self._last
