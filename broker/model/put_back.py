"""Messages that come back to their places among others: a search for each stretch of them. Pure.

Owners: `Queue` and `PriorityReady`, of the deques that they hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from broker.model.records import Entry, id_of

_STRETCHES = 64
"""Into a deep deque each costs as much as a merge does for some hundred entries."""


def put_back(ready: deque[Entry], back: list[Entry]) -> None:
    """All of `back` into `ready`; both are sorted by id, and have none in common.

    What comes back in a few stretches costs a search each, however deep the queue is; what lies scattered
    costs a merge of all up to the last of its places.
    """
    done = 0
    for _ in range(_STRETCHES):
        if done == len(back):
            return
        first = id_of(back[done])
        at = bisect_left(ready, first, key=id_of) if ready and id_of(ready[0]) < first else 0
        end = bisect_left(back, id_of(ready[at]), done, key=id_of) if at < len(ready) else len(back)
        ready.rotate(-at)
        ready.extendleft(back[done:end][::-1])
        ready.rotate(at)
        done = end
    rest = back[done:]
    if rest:
        newest = id_of(rest[-1])
        while ready and id_of(ready[0]) < newest:
            rest.append(ready.popleft())
        rest.sort(key=id_of)
        ready.extendleft(rest[::-1])
