"""What is logged of queues that no longer exist. Called by Node and ReplicaVhost."""

from __future__ import annotations

from collections.abc import Sequence

from ha.adapter import codes
from understudy.shared.codes import Coded

NAMED = 3
"""Of many, so many are named."""


def ended_words(titles: Sequence[str]) -> Coded:
    """For queues that waited for their clients after a failover, and ended."""
    return codes.QUEUES_ABANDONED.say(names=_named(titles))


def forgotten_words(titles: Sequence[str]) -> Coded:
    """For queues that were promoted without all numbers of producers, or ids, that they had."""
    return codes.QUEUES_FORGOT.say(names=_named(titles))


def _named(titles: Sequence[str]) -> str:
    names = [repr(title) for title in titles[:NAMED]]
    if more := len(titles) - len(names):
        names.append(f"and {more} more")
    return ", ".join(names)


def gone_words(title: str, count: int, *, there: bool, ended: bool) -> Coded:
    """For a queue that the joined primary does not have. `there`: it has another queue of that name; `ended`:
    its history contains the end of this one."""
    if not there:
        how = "is not on the primary"
    else:
        how = "was deleted on the primary and declared again" if ended else "is another one on the primary"
    return codes.QUEUE_GONE.say(queue=title, how=how, messages=count)
