"""Ways: by which of several ways the messages of each node come to an exchange. Owner: the adapter, one for
each exchange to which messages come.

The first one to bring a message carries that node's messages from then on, and the others stand by: they send
offers (`offers`). A way that stands by carries the messages once an offer of it has not come by the other way
in time, or once that one is gone.
"""

from __future__ import annotations

GRACE = 0.2
"""Seconds for a message that is offered to come by the way that carries it."""


class Ways:
    """A way is known by the name of its cursor. `opened` and `closed` as its link is; `came` for each run
    that comes by it."""

    def __init__(self) -> None:
        self._withheld: dict[str, set[str]] = {}
        """Nodes, by way: of each that is open and can stand by."""
        self._open: set[str] = set()
        self._carries: dict[str, str] = {}
        """The way, by node."""
        self._changed: set[str] = set()

    def opened(self, way: str, *, able: bool) -> None:
        """A link is open. `able`: the other end can withhold messages."""
        self._open.add(way)
        self._changed.discard(way)
        if able:
            self._withheld[way] = set()

    def closed(self, way: str) -> None:
        self._open.discard(way)
        self._withheld.pop(way, None)
        self._changed.discard(way)
        for node in [node for node, other in self._carries.items() if other == way]:
            del self._carries[node]
            for other in self._withheld:
                self._release(other, node)

    def came(self, way: str, node: str, *, again: bool) -> None:
        """Messages of `node` came by `way`; with `again`, some that had come by another."""
        carries = self._carries.get(node)
        if carries == way:
            return
        if carries is None or not again:
            self._carries.setdefault(node, way)
            return
        withheld = self._withheld.get(way)
        if withheld is not None and carries in self._open and node not in withheld:
            withheld.add(node)
            self._changed.add(way)

    def late(self, way: str, node: str) -> None:
        """What is offered there has not come by another way in time: this one carries from now on."""
        self._carries[node] = way
        self._release(way, node)

    def _release(self, way: str, node: str) -> None:
        withheld = self._withheld.get(way)
        if withheld is not None and node in withheld:
            withheld.discard(node)
            self._changed.add(way)

    def stands_by(self, way: str) -> frozenset[str]:
        """The nodes whose messages that way withholds."""
        return frozenset(self._withheld.get(way, ()))

    def change(self, way: str) -> frozenset[str] | None:
        """The same, if it has changed since it was asked."""
        if way not in self._changed:
            return None
        self._changed.discard(way)
        return self.stands_by(way)
