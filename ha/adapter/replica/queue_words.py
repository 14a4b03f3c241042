"""Log sentences on queues that no longer exist. Called by Node and ReplicaVhost."""

from __future__ import annotations

from collections.abc import Sequence

NAMED = 3
"""Of many, so many are named."""


def ended_words(titles: Sequence[str]) -> str:
    """For queues that waited for their clients after a failover, and ended."""
    many, whose = ("1 queue", "its") if len(titles) == 1 else (f"{len(titles)} queues", "their")
    names = [repr(title) for title in titles[:NAMED]]
    if more := len(titles) - len(names):
        names.append(f"and {more} more")
    return f"{many} ended, {whose} clients have not come back: {', '.join(names)}"


def gone_words(title: str, count: int, *, there: bool, ended: bool) -> str:
    """For a queue that the joined primary does not have. `there`: it has another queue of that name; `ended`:
    its history contains the end of this one."""
    dropped = f"deleted, {count} messages to quarantine"
    if not there:
        return f"queue {title!r} is not on the primary: {dropped}"
    how = "was deleted on the primary and declared again" if ended else "is another one on the primary"
    return f"queue {title!r} {how}: the one here is {dropped}"
