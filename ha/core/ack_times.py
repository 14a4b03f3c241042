"""AckTimes: since when a primary may have excluded this node, as far as its acknowledgements tell.

Owner: Backup, one for each link. A primary excludes who has not acknowledged for `ha.ack_timeout`, or has a
batch not on disk for so long, and says so; but with a link that breaks, that word can be lost. An
acknowledgement that comes later than that (this process was paused, or its disk or the line stood still) may
come too late, and proves nothing by being sent. It counts when the link has stood `ha.ack_timeout` longer:
what was on its way, an exclusion too, has been heard by then.

A member that a new primary expects is excluded at a time that was set beforehand, whatever it acknowledges.
"""

from __future__ import annotations

from collections import deque
from math import inf

from broker.model.values import Position


class AckTimes:
    """Times are seconds of the node's clock, but for `sent_at`, which are of the primary's; `begun`: when the
    primary was asked to take this node in.
    """

    def __init__(self, ack_timeout: float, begun: float = 0.0) -> None:
        self.sure = begun
        """The last instant before which there was no exclusion; nor is there one for `ack_timeout` more."""
        self._timeout = ack_timeout
        self._begun = self._last = begun
        self._late = -inf
        """The last acknowledgement that may have come too late."""
        self._complete = inf
        """The first one that said that the copy is complete."""
        self._until = inf
        """When a primary that expects this node excludes it, if it has not included it before."""
        self._owed: deque[tuple[Position, float]] = deque()
        """Batches not acknowledged as durable, and about when they were sent, by this node's clock."""
        self._skews = [(begun, inf), (begun, inf)]
        """This clock less the primary's, as the fastest message had it, and since when: before, and now. What
        is older says nothing: two clocks drift by seconds in a few weeks."""

    def heard(self, sent_at: float, now: float) -> None:
        """Something came, that was sent then."""
        since, skew = self._skews[1]
        if now - since >= 4 * self._timeout:
            self._skews = [self._skews[1], (now, now - sent_at)]
        elif now - sent_at < skew:
            self._skews[1] = since, now - sent_at

    def got(self, position: Position, sent_at: float, now: float) -> None:
        """A batch came: it is owed as long as it is not on disk."""
        self.heard(sent_at, now)
        self._owed.append((position, sent_at + min(self._skews[0][1], self._skews[1][1])))

    def sent(self, now: float, durable: Position, *, complete: bool) -> None:
        """Acknowledged: all up to `durable` is on disk. `complete`: for this, it may include this node."""
        if complete:
            self._complete = min(self._complete, now)
        owed_since = self._owed_since(now)
        while self._owed and self._owed[0][0] <= durable:
            self._owed.popleft()
        if now - min(self._last, owed_since) >= self._timeout:
            self._late = now
        self._last = now
        if now - self._late >= self._timeout:
            self._is_sure(self._owed_since(now))

    def expected(self, rest: float) -> None:
        """The primary has answered: it excludes this node so many seconds after it was asked, and not before
        that, unless it includes it.
        """
        self._until = self._begun + rest
        self.sure = min(self.sure, self._until - self._timeout)

    def included(self) -> None:
        """The primary has answered: it knows that the copy is complete, and older delays do not matter. A
        later delay may still have led to an exclusion."""
        self._until = inf
        if self._late <= self._complete:
            self._late = -inf
            self._is_sure(self._owed_since(self._last))

    def _owed_since(self, now: float) -> float:
        """The oldest batch that is not on disk, if there is one."""
        return self._owed[0][1] if self._owed else now

    def _is_sure(self, at: float) -> None:
        self.sure = max(self.sure, min(at, self._until - self._timeout))
