"""A pair that decides by itself, and its witness: `w`, a broker of its own."""

from __future__ import annotations

from typing import Any

from broker.security.identity import ADMINISTRATOR, WITNESS, User
from ha.adapter.witness.place import WitnessPlace
from tests.ha.pair import Host, Pair

NAME, PASSWORD = "shop", "secret"
LEASE = 5.0


class Witnessed(Pair):
    """`a` and `b` are the pair, and `w` its witness."""

    def __init__(self, *, name: str = NAME, password: str = PASSWORD, **settings: Any) -> None:
        super().__init__(3, authority="pair", failover_timeout=LEASE, **settings)
        self.a, self.b, self.w = self.hosts
        self.w.settings |= {"authority": "manual", "witness_for": (NAME,)}
        self.w.users = (
            User(NAME, frozenset({WITNESS}), password=PASSWORD), User("guest", password="guest"),
            User("boss", frozenset({ADMINISTRATOR}), password="guest"),
        )  # fmt: skip
        at = WitnessPlace.at("127.0.0.1", self.w.port, name, password, lease=LEASE)
        for host, role in ((self.a, "primary"), (self.b, "backup")):
            host.settings |= {"role": role, "witness": at}

    def brokers(self, host: Host) -> list[tuple[str, int]]:
        return [] if host is self.w else [("127.0.0.1", other.port) for other in (self.a, self.b)]

    def whole(self) -> None:
        """All run, `a` serves, and `b` is ready."""
        self.start()
        self.until(lambda: (self.a.status, self.b.status) == ("active", "ready"))

    def authority(self, host: Host) -> dict[str, Any]:
        """How the witness stands, as `host` sees it."""
        found = host.running.status()["authority"]
        assert isinstance(found, dict)
        return found
