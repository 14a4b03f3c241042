"""Inserts returned messages into a sorted deque, with one search for each stretch of consecutive ones. Pure.

Owners: `Queue` and `PriorityReady`, for the deques that they hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import repeat

from broker.model.history.records import Entry, id_of

_STRETCHES = 64
"""Stretches inserted one by one. In a deep deque each costs as much as a merge of some hundred entries."""


def put_back(ready: deque[Entry], back: list[Entry]) -> None:
    """Insert all of `back` into `ready`. Both are sorted by id, without common ids.

    A few stretches cost a search each, however deep the queue is. Scattered messages, or messages close
    together, cost a merge with everything between the first and the last place.
    """
    if not back:
        return
    first, last = id_of(back[0]), id_of(back[-1])
    at = bisect_left(ready, first, key=id_of) if ready and id_of(ready[0]) < first else 0
    end = bisect_left(ready, last, at, key=id_of) if at < len(ready) and id_of(ready[at]) < last else at
    if end - at > len(back):
        back = _stretches_put_back(ready, back)
        if not back:
            return
        at = bisect_left(ready, id_of(back[0]), key=id_of)
        end = bisect_left(ready, last, at, key=id_of)
    ready.rotate(-at)
    if end > at:
        popleft = ready.popleft
        back = back + [popleft() for _ in repeat(None, end - at)]
        back.sort(key=id_of)
    ready.extendleft(back[::-1])
    ready.rotate(at)


def _stretches_put_back(ready: deque[Entry], back: list[Entry]) -> list[Entry]:
    """Insert the first entries as a few stretches. Returns the rest."""
    done = 0
    for _ in range(_STRETCHES):
        if done == len(back):
            break
        first = id_of(back[done])
        at = bisect_left(ready, first, key=id_of) if ready and id_of(ready[0]) < first else 0
        end = bisect_left(back, id_of(ready[at]), done, key=id_of) if at < len(ready) else len(back)
        ready.rotate(-at)
        ready.extendleft(back[done:end][::-1])
        ready.rotate(at)
        done = end
    return back[done:]
