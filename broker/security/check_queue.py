"""Password checks that wait for a thread: a short queue in which no address or name can block the others.

Owner: `Logins`. Addresses take turns, the one with the fewest failures first, and so do the names of one
address. When the queue is full, the newest check of the address with the most checks is dropped. A new check
that would wait with as many is not taken. Pure.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from broker.security.pauses import FREE, Pauses
from broker.security.tickets import Work

MOST = 128
"""Maximum number of waiting checks: one thread makes them all within the handshake limit."""
MOST_OF_FAILING = 16
"""Maximum of an address that failed more often than `FREE`."""
BY_TURN = 4
"""Every fourth check goes to the next address in turn, whatever its failures."""

_Names = OrderedDict[str, deque[Work]]


class CheckQueue:
    """Of two addresses with equally many checks, the one with more failures loses one."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._lanes: OrderedDict[str, _Names] = OrderedDict()
        """By address, then by name, in the order of their turns."""
        self._sizes: dict[str, int] = {}
        self._taken = 0

    def __len__(self) -> int:
        return sum(self._sizes.values())

    @property
    def addresses(self) -> list[str]:
        """The waiting addresses, in the order of their turns."""
        return list(self._lanes)

    def add(self, work: Work) -> Work | None:
        """Add a check. Returns the check that was dropped for it, perhaps `work` itself; None if there was
        room."""
        size = self._sizes.get(work.address, 0)
        dropped = None
        if size >= (MOST_OF_FAILING if self._pauses.failures(work.address) > FREE else MOST):
            dropped = self._crowded_out(work.address, work.name)
        elif len(self) >= MOST:
            rank, address = max((self._rank(each), each) for each in self._lanes)
            dropped = self._newest(address) if rank > (size + 1, self._pauses.trouble(work.address)) else None
        else:
            self._append(work)
            return None
        if dropped is None:
            return work
        self.remove(dropped)
        self._append(work)
        return dropped

    def remove(self, work: Work) -> None:
        """Remove a check. Idempotent."""
        names = self._lanes.get(work.address)
        lane = None if names is None else names.get(work.name)
        if lane is None or work not in lane:
            return
        lane.remove(work)
        self._shrunk(work)

    def take(self, free: Callable[[str], bool]) -> Work | None:
        """Remove and return the next check of an address that is `free`."""
        able = [each for each in self._lanes if free(each)]
        if not able:
            return None
        self._taken += 1
        address = able[0] if self._taken % BY_TURN == 0 else min(able, key=self._pauses.trouble)
        names = self._lanes[address]
        lane = next(iter(names.values()))
        work = lane.popleft()
        names.move_to_end(work.name)
        self._lanes.move_to_end(address)
        self._shrunk(work)
        return work

    def _append(self, work: Work) -> None:
        names = self._lanes.setdefault(work.address, OrderedDict())
        names.setdefault(work.name, deque()).append(work)
        self._sizes[work.address] = self._sizes.get(work.address, 0) + 1

    def _shrunk(self, work: Work) -> None:
        names = self._lanes[work.address]
        if not names[work.name]:
            del names[work.name]
        self._sizes[work.address] -= 1
        if not names:
            del self._lanes[work.address], self._sizes[work.address]

    def _rank(self, address: str) -> tuple[int, int]:
        return self._sizes[address], self._pauses.trouble(address)

    def _newest(self, address: str) -> Work:
        """The newest check of the name with the most checks."""
        return max(self._lanes[address].values(), key=len)[-1]

    def _crowded_out(self, address: str, name: str) -> Work | None:
        """A check of another name with more checks, to be dropped for one of `name`; or None."""
        names = self._lanes[address]
        newest = self._newest(address)
        return newest if len(names[newest.name]) > len(names.get(name, ())) + 1 else None
