"""A net whose lines may be slow: a line's bytes arrive later, in order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from ha.adapter.federation.settings import LOGINS, FederationSettings
from ha.adapter.peering.login import PeeringLimits, PeeringLogin
from tests.ha.federation.nets import LOGIN, USER, Net
from tests.ha.pair import Host


class SlowNet(Net):
    """`octets`: that went over lines, by the two nodes."""

    def __init__(self, **sizes: int) -> None:
        super().__init__(None, **sizes)
        self.octets: Counter[tuple[str, str]] = Counter()
        self._delays: dict[frozenset[str], float] = {}
        self._names = {host.name: node for node, members in self.nodes.items() for host in members}
        self._coming: dict[int, tuple[bytearray, deque[tuple[float, int]]]] = {}
        """Of each stream: when how many of the bytes that are on their way arrive."""

    def delay(self, one: str, other: str, seconds: float) -> None:
        """Of the line between two nodes, one way. A login takes four round trips, so it may take longer."""
        self._delays[frozenset({one, other})] = seconds
        login = PeeringLogin(USER.name, "secret", f"{LOGINS}{LOGIN}", limits=PeeringLimits(10 * seconds + 2))
        for node in (one, other):
            for host in self.nodes[node]:
                host.settings = {"federation": FederationSettings(node, {LOGIN: login})}

    def _deliver(
        self, waiting: bytearray, sender: Host, receiver: Host, receive: Callable[[bytes], None]
    ) -> None:
        ends = self._names[sender.name], self._names[receiver.name]
        before = len(waiting)
        delay = self._delays.get(frozenset(ends), 0.0)
        if delay:
            self._late(waiting, delay, receive)
        else:
            super()._deliver(waiting, sender, receiver, receive)
        self.octets[ends] += before - len(waiting)

    def _late(self, waiting: bytearray, delay: float, receive: Callable[[bytes], None]) -> None:
        _, due = self._coming.setdefault(id(waiting), (waiting, deque()))
        known = sum(count for _, count in due)
        if len(waiting) > known:
            due.append((self.now + delay, len(waiting) - known))
        ready = 0
        while due and due[0][0] <= self.now:
            ready += due.popleft()[1]
        data = bytes(waiting[:ready])
        if data:
            del waiting[:ready]
            receive(data)
