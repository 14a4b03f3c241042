"""ConfirmTerms: below which level confirms of persistent messages may leave, as the committed record says.

Owner: Primary, one for an epoch. `ha.confirm`, or a policy, may want a level below `all-disks` for some
queues. The record has the weakest level of all that is wanted. No confirm goes by a weaker level than the
committed record has: whoever reads the record after a loss of power knows what the disks may lack.

Lowering: the record is committed first, then confirms go by it. Raising: confirms are strict from that
position on, and the record follows once everything before it is on all disks that count. Makes no calls on
Primary.
"""

from __future__ import annotations

from broker.model.values import ORIGIN, Need, Position


class ConfirmTerms:
    """`granted`: what the committed record has. `asked`: what it may have already, while the authority's
    answer is awaited. `level`: what holds now, by these and by what is wanted; `since`: the last position
    before it."""

    def __init__(self, granted: Need) -> None:
        self.granted = self.asked = self.level = granted
        self.since = ORIGIN
        self.not_before = 0.0
        """When the authority is asked again, after it did not want the change."""

    def floor(self, wanted: Need, *, in_sync: bool) -> Need:
        """What the confirms of persistent messages wait for at least. `in_sync`: a backup is. A primary
        alone waits for its own disk at any level: there is no other copy."""
        floor = max(self.granted, self.asked, wanted)
        return Need.OWN_DISK if floor is Need.MEMORY and not in_sync else floor

    def moves(self, wanted: Need, position: Position) -> bool:
        """Whether another level holds from now on, behind `position`."""
        level = max(self.granted, self.asked, wanted)
        if level is self.level:
            return False
        self.level, self.since = level, position
        return True

    def answered(self, granted: Need) -> None:
        """The authority has answered: the record has this level."""
        self.granted = self.asked = granted

    def due(self, wanted: Need, durable: Position, now: float) -> bool:
        """Whether the record is to change. `durable`: up to there everything is on all disks that count."""
        if wanted is self.granted or now < self.not_before:
            return False
        return wanted < self.granted or (wanted is self.level and durable >= self.since)
