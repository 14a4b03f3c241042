"""Ids of messages, for queues that do not take an id again (`x-dedup-window`).

The id is the header `x-dedup-id`, or else the property `message-id`. A message without one is always new.
Channels and links call `keys_of` before they publish, and give `Enqueueing`, which calls the rest, what they
have read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.errors import PreconditionFailed
from broker.model.history.recent_ids import HEADER, LONGEST_ID, RecentIds, key_of
from broker.model.history.records import IdsNoted, QueueIds
from broker.model.octets import as_octets
from broker.model.queue.arguments import field_type
from broker.model.queue.queue import Queue
from broker.model.values import Scope
from broker.model.vhost.duplicates import Part

if TYPE_CHECKING:
    from broker.model.history.history import History
    from broker.model.queue.removals import MessageFormat

LONG = "x-message-id"
"""The header that has a `message-id` of AMQP 1.0 that fits no property of 0-9-1."""

Keys = list[bytes | None]
"""Of the messages of a run. None: it has no id."""


# -- ids


def _octets_of(form: MessageFormat, raw: bytes) -> bytes | None:
    """The id of a message. Raises PreconditionFailed."""
    value = form.value(raw, HEADER)
    if value is None:
        value = form.property_of(raw, "message_id") or form.value(raw, LONG)
        return _as_octets(value) or None
    octets = _as_octets(value)
    if octets is None:
        told = f"not of type {field_type(value)}"
    elif not 0 < len(octets) <= LONGEST_ID:
        told = f"not of {len(octets)}"
    else:
        return octets
    raise PreconditionFailed(f"{HEADER} is a text of 1 to {LONGEST_ID} octets, {told}")


def _as_octets(value: object) -> bytes | None:
    return as_octets(value) if isinstance(value, str) else value if isinstance(value, bytes) else None


def keys_of(form: MessageFormat, raws: Sequence[bytes]) -> tuple[Keys, PreconditionFailed | None]:
    """The hashes of the ids, up to the first message whose id no queue with a window takes; and why."""
    keys: Keys = []
    try:
        for raw in raws:
            octets = _octets_of(form, raw)
            keys.append(None if octets is None else key_of(octets))
    except PreconditionFailed as fault:
        return keys, fault
    return keys, None


def keys_in(form: MessageFormat, raws: Sequence[bytes]) -> Keys:
    """The hashes of the ids. One that is at fault counts as none."""
    keys: Keys = []
    for raw in raws:
        try:
            octets = _octets_of(form, raw)
        except PreconditionFailed:
            octets = None
        keys.append(None if octets is None else key_of(octets))
    return keys


# -- what is new


def without_known(
    parts: list[Part] | None, queues: tuple[Queue, ...], keys: Keys, wall_ms: int
) -> list[Part] | None:
    """Of these `parts` of a run (None: all of it, for all `queues`), those that are new by their ids too."""
    known = {}
    for queue in queues:
        window, recent = queue.rules.dedup, queue.recent or _NOTHING
        if window is not None and (found := recent.known_in(_lacked(queue, parts, keys), window, wall_ms)):
            known[queue] = found
    if not known:
        return parts
    cut: list[Part] = []
    for part in parts or [Part(0, len(keys), queues)]:
        begin, lacking = part.begin, part.queues
        for at in range(part.begin, part.end):
            here = tuple([queue for queue in part.queues if queue not in known or at not in known[queue]])
            if here != lacking:
                if at > begin:
                    cut.append(Part(begin, at, lacking))
                begin, lacking = at, here
        cut.append(Part(begin, part.end, lacking))
    return cut


_NOTHING = RecentIds()


def _lacked(queue: Queue, parts: list[Part] | None, keys: Keys) -> Keys:
    """The ids of the messages that the queue never had by their numbers."""
    if parts is None:
        return keys
    found: Keys = [None] * len(keys)
    for begin, end, queues in parts:
        if queue in queues:
            found[begin:end] = keys[begin:end]
    return found


# -- notes


def note(queue: Queue, keys: Keys, wall_ms: int, scope: Scope, history: History) -> None:
    """The serving queue has taken messages with these ids. `scope`: of their run."""
    window = queue.rules.dedup
    fresh = [key for key in keys if key is not None]
    if window is None or not fresh:
        return
    recent = queue.recent
    if recent is None:
        recent = queue.recent = RecentIds()
    first, floor = recent.next, recent.floor_after(len(fresh), window, wall_ms)
    stored = bool(scope & Scope.STORE) or not queue.content_scope & Scope.STORE
    recent.note(first, floor, wall_ms, fresh, stored=stored)
    if scope:
        history.append(IdsNoted(queue.uuid, first, floor, wall_ms, fresh, scope))


def take_noted(queue: Queue, record: IdsNoted) -> None:
    """On a backup or a recovering node."""
    stored = Scope.STORE in record.scope or Scope.STORE not in queue.content_scope
    if queue.recent is None:
        queue.recent = RecentIds()
    queue.recent.note(record.first, record.floor, record.wall_ms, record.keys, stored=stored)


def take_ids(recent: RecentIds | None, record: QueueIds) -> RecentIds | None:
    """What is known once this record is taken. None: nothing."""
    if record.begin or recent is None:
        recent = RecentIds(record.following, record.floor)
    recent.add(record.ids)
    return recent if recent.next > 1 else None


def records_of(queue: bytes, recent: RecentIds | None, scope: Scope) -> list[QueueIds]:
    """All that is known of the ids of one queue."""
    whole = recent or _NOTHING
    return [
        QueueIds(queue, not at, whole.next, whole.floor, ids, scope) for at, ids in enumerate(whole.parts())
    ]


def forget(queue: Queue, history: History) -> None:
    """The serving queue has no window any more."""
    if queue.recent is not None:
        queue.recent = None
        if queue.content_scope:
            history.append(QueueIds(queue.uuid, True, 1, 1, [], queue.content_scope))
