"""How often each message of a queue with a delivery limit has come back undone.

Owner: a serving queue whose rules have a `delivery_limit`; what follows from a count is the queue's doing.
The counts are this node's, since it began to serve: after a failover or a restart they begin anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.model.history.records import Entry, MessageId, id_of


class Returns:
    """Only messages that have come back at least once are in it."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[MessageId, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def count(self, entry: Entry) -> int:
        """How often it has come back."""
        return self._counts.get(id_of(entry), 0)

    def note(self, entries: Iterable[Entry], limit: int | None) -> list[Entry]:
        """They have come back once more; those that have done so more often than `limit`."""
        over: list[Entry] = []
        for entry in entries:
            times = self._counts[id_of(entry)] = self.count(entry) + 1
            if limit is not None and times > limit:
                over.append(entry)
        return over

    def forget(self, entries: Iterable[Entry]) -> None:
        """They have left the queue."""
        for entry in entries:
            self._counts.pop(id_of(entry), None)

    def clear(self) -> None:
        self._counts.clear()
