"""Which parts of a numbered run the queues of its route have had. Pure functions."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from broker.model.history.marks import new_parts
from broker.model.history.records import Numbering
from broker.model.queue.queue import Queue


class Part(NamedTuple):
    """Messages `begin` up to `end` of a run, and the queues that never had them."""

    begin: int
    end: int
    queues: tuple[Queue, ...]


def after(numbering: Numbering, count: int) -> Numbering:
    """The numbering of the messages behind the first `count`."""
    return numbering._replace(first=numbering.first + count) if count else numbering


def new_to(queue: Queue, numbering: Numbering, raws: list[bytes]) -> list[bytes]:
    """Those of a run that the queue never had."""
    parts = new_parts(queue.marks.get(numbering.producer), numbering.first, len(raws))
    return [raw for begin, end in parts for raw in raws[begin:end]]


def new_in(queues: tuple[Queue, ...], numbering: Numbering, count: int) -> list[Part] | None:
    """The parts of a run of `count` messages, in order. None: all of it is new to all queues."""
    name, _, first = numbering
    for queue in queues:
        mark = queue.marks.get(name)
        if mark is not None and first <= (mark if isinstance(mark, int) else mark.last):
            break
    else:
        return None
    lacking = [(queue, new_parts(queue.marks.get(name), first, count)) for queue in queues]
    cuts = {0, count}
    for _, stretches in lacking:
        for begin, end in stretches:
            cuts.add(begin)
            cuts.add(end)
    ends = sorted(cuts)
    parts: list[Part] = []
    for begin, end in pairwise(ends):
        those = [queue for queue, stretches in lacking if _covers(stretches, begin, end)]
        parts.append(Part(begin, end, tuple(those)))
    if len(parts) == 1 and len(parts[0].queues) == len(queues):
        return None
    return parts


def _covers(stretches: list[tuple[int, int]], begin: int, end: int) -> bool:
    return any(low <= begin and end <= high for low, high in stretches)
