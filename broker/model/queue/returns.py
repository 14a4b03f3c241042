"""Counts how often each message of a queue with a delivery limit has come back unprocessed.

Owner: a serving queue whose rules have a `delivery_limit`; the queue acts on the counts. Counts are local to
this node and begin at zero when it begins to serve, so after every failover or restart.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.model.history.records import Entry, MessageId, id_of


class Returns:
    """Counts for the messages that have come back at least once."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[MessageId, int] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def count(self, entry: Entry) -> int:
        """How often the message has come back."""
        return self._counts.get(id_of(entry), 0)

    def note(self, entries: Iterable[Entry], limit: int | None) -> list[Entry]:
        """Count another return of each message. Returns those with more than `limit` returns."""
        over: list[Entry] = []
        for entry in entries:
            times = self._counts[id_of(entry)] = self.count(entry) + 1
            if limit is not None and times > limit:
                over.append(entry)
        return over

    def forget(self, entries: Iterable[Entry]) -> None:
        """Drop the counts of messages that have left the queue."""
        for entry in entries:
            self._counts.pop(id_of(entry), None)

    def clear(self) -> None:
        self._counts.clear()
