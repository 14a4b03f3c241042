"""Ready messages of a queue with `x-message-group`: those of one group go to one consumer, in order. Pure.

Owner: `Queue`, which uses this in place of a deque. The first message of a group that is free goes to the
next consumer, which is its owner from then on, until the consumer ends; with `shared`, only while it holds
messages of the group. After the end of its owner a group is free once nothing of it is outstanding, so that
no message overtakes another. A message without the header goes to anybody.

Groups belong to the node that serves: after a failover all are free, and their messages are ready, in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from sortedcontainers import SortedDict

from broker.model.history.records import Entry, MessageId, id_of
from broker.model.queue.consumer import Consumer
from broker.model.queue.keyed.sorted_ready import Key, SortedReady, key_of

IDLE_MAX = 65_536
"""Groups without any message whose owner is remembered. Of more, the ones idle for longest are free."""


class Group:
    """`key`: None for the group of one message without the header. `ids`: of its ready messages. `out`: how
    many clients hold. `taken`: it is not free: it has an `owner`, or had one who left messages of it
    outstanding, or basic.get holds some."""

    __slots__ = ("ids", "key", "out", "owner", "taken")

    def __init__(self, key: Key | None) -> None:
        self.key = key
        self.ids: deque[MessageId] = deque()
        self.owner: Consumer | None = None
        self.taken = False
        self.out = 0


class GroupedReady(SortedReady):
    """`read`: the value of a message's group. `shared`: see the module."""

    __slots__ = ("_free", "_groups", "_idle", "_of", "_out", "_owned", "_read", "_shared")

    def __init__(self, read: Callable[[bytes], object], *, shared: bool) -> None:
        super().__init__()
        self._read = read
        self._shared = shared
        self._groups: dict[Key, Group] = {}
        self._free: SortedDict[MessageId, Group] = SortedDict()
        """By their oldest ready message."""
        self._owned: dict[Consumer, SortedDict[MessageId, Group]] = {}
        """The same, for each owner."""
        self._of: dict[Consumer, dict[Group, None]] = {}
        """All groups of each consumer."""
        self._out: dict[MessageId, Group] = {}
        self._idle: OrderedDict[Group, None] = OrderedDict()

    # -- in and out

    def _put(self, entry: Entry) -> None:
        mine, key = id_of(entry), key_of(self._read(entry[2]))
        group = self._groups.get(key) if key is not None else None
        if group is None:
            group = Group(key)
            if key is not None:
                self._groups[key] = group
        self._by_id[mine] = entry
        ids = group.ids
        if ids and mine > ids[-1]:
            ids.append(mine)
            return
        self._idle.pop(group, None)
        self._unlist(group)
        if not ids or mine < ids[0]:
            ids.appendleft(mine)
        else:  # rotating a deque only moves pointers
            at = bisect_left(ids, mine)
            ids.rotate(-at)
            ids.appendleft(mine)
            ids.rotate(at)
        self._list(group)

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Newest first, because each one's place is mostly in front of the others."""
        for entry in sorted(entries, key=id_of, reverse=True):
            self._put(entry)

    def popleft(self) -> Entry:
        if not self._by_id:
            raise IndexError("no message is ready")
        mine, oldest = self._by_id.peekitem(0)
        group = self._first_of(mine, oldest)
        entry = self._take(group)
        self._settle(group)
        return entry

    def _first_of(self, mine: MessageId, entry: Entry) -> Group:
        """The group of the oldest message, which is the first one in it."""
        key = key_of(self._read(entry[2]))
        group: Group = self._free[mine] if key is None else self._groups[key]
        return group

    def clear(self) -> None:
        """Forget the ready messages. Groups keep their owners."""
        self._by_id.clear()
        self._free.clear()
        for owned in self._owned.values():
            owned.clear()
        for group in list(self._groups.values()):
            group.ids.clear()
            self._settle(group)

    def take_for(self, consumer: Consumer | None, *, no_ack: bool) -> Entry | None:
        """Take the oldest message that may go to this consumer, or to a basic.get (None). None if there is
        none."""
        group = self._next_for(consumer)
        if group is None:
            return None
        entry = self._take(group)
        if group.key is None:
            return entry
        if not no_ack:
            group.out += 1
            self._out[id_of(entry)] = group
        if not group.taken and not (no_ack and (self._shared or consumer is None)):
            self._give(group, consumer)
        self._settle(group)
        return entry

    def _next_for(self, consumer: Consumer | None) -> Group | None:
        owned = self._owned.get(consumer) if consumer is not None else None
        if not owned:
            return self._free.peekitem(0)[1] if self._free else None
        if self._free and self._free.peekitem(0)[0] < owned.peekitem(0)[0]:
            free: Group = self._free.peekitem(0)[1]
            return free
        mine: Group = owned.peekitem(0)[1]
        return mine

    def _take(self, group: Group) -> Entry:
        self._unlist(group)
        entry: Entry = self._by_id.pop(group.ids.popleft())
        self._list(group)
        return entry

    # -- owners

    def _give(self, group: Group, consumer: Consumer | None) -> None:
        self._unlist(group)
        group.owner, group.taken = consumer, True
        if consumer is not None:
            self._of.setdefault(consumer, {})[group] = None
        self._list(group)

    def settled(self, entries: Iterable[Entry]) -> bool:
        """Clients no longer hold these messages. Returns whether that set a group free which has ready
        messages."""
        free = False
        for entry in entries:
            group = self._out.pop(id_of(entry), None)
            if group is not None:
                group.out -= 1
                self._settle(group)
                free = free or bool(group.ids and not group.taken)
        return free

    def leave(self, consumer: Consumer) -> None:
        """The consumer has ended."""
        groups = self._of.pop(consumer, {})
        for group in groups:
            self._unlist(group)
            group.owner = None
        self._owned.pop(consumer, None)
        for group in groups:
            self._settle(group)

    def _settle(self, group: Group) -> None:
        """Free it if that is due, and forget it if nothing is left of it."""
        if group.taken and not group.out and (self._shared or group.owner is None):
            self._unlist(group)
            if group.owner is not None:
                del self._of[group.owner][group]
            group.owner, group.taken = None, False
            self._list(group)
        self._idle.pop(group, None)
        if group.ids or group.out or group.key is None:
            return
        if not group.taken:
            self._groups.pop(group.key, None)
            return
        self._idle[group] = None
        if len(self._idle) > IDLE_MAX:
            oldest, _ = self._idle.popitem(last=False)
            if oldest.owner is not None:
                del self._of[oldest.owner][oldest]
            if oldest.key is not None:
                del self._groups[oldest.key]

    # -- the indexes of first messages

    def _unlist(self, group: Group) -> None:
        if group.ids:
            index = self._index(group)
            if index is not None:
                index.pop(group.ids[0], None)

    def _list(self, group: Group) -> None:
        if group.ids:
            index = self._index(group)
            if index is not None:
                index[group.ids[0]] = group

    def _index(self, group: Group) -> SortedDict[MessageId, Group] | None:
        """None while it is taken and has no owner: its messages wait."""
        if not group.taken:
            return self._free
        if group.owner is None:
            return None
        owned = self._owned.get(group.owner)
        if owned is None:
            owned = self._owned[group.owner] = SortedDict()
        return owned
