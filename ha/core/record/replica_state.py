"""ReplicaState: how complete this node's copy of the queues is, in memory and on its disk.

Owner: LocalRecord. Pure; the roles report what happens to the copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ReplicaState:
    incomplete: bool = False
    """It was being changed when this node last stopped, or is now: not all of it may be there."""
    resetting: set[bytes] = field(default_factory=set)
    """Queues that are not to be trusted, although the record names this node."""
    ended: set[bytes] = field(default_factory=set)
    """Queues that held messages, and were deleted while a primary that expects this node told it the rest:
    what had moved from there may not be here yet."""
    _mixed: bool = False
    """On the disk, what such a node held and what it was told are mixed: whoever starts from that may not
    have all, or have some of it twice. In memory they are told apart."""
    _told_apart_at: int | None = None
    """It has gone back to the one, or keeps both, and the disk has that too from this mark on."""

    @property
    def spoilt(self) -> int:
        """Queues of a node in the record that keep it from being promoted."""
        return len(self.resetting) + len(self.ended)

    @property
    def incomplete_on_disk(self) -> bool:
        return self.incomplete or self._mixed

    def mix(self) -> None:
        """From now on what it is told goes to the disk beside what it holds."""
        self._mixed, self._told_apart_at = True, None

    def told_apart(self, mark: int) -> None:
        """In memory it is one of them again, or both; the disk has that as soon as it has `mark`."""
        if self._mixed:
            self._told_apart_at = mark

    def synced(self, mark: int) -> bool:
        """The disk has all up to `mark`. Is it told apart there only now?"""
        if self._told_apart_at is None or mark < self._told_apart_at:
            return False
        self._mixed, self._told_apart_at = False, None
        return True

    def complete(self) -> None:
        """All is here, and on disk."""
        self.resetting.clear()
        self.ended.clear()
        self._mixed, self._told_apart_at = False, None
