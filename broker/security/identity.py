"""The identity of a connection, and how a user proves it. Values only; no secrets in any repr."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

What = Literal["configure", "write", "read"]
"""What a permission allows."""
Kind = Literal["exchange", "queue"]
HA = "ha"
"""Tag of the peers of a pair: may open the link methods of the extension class."""
WITNESS = "witness"
"""Tag of a pair that has this broker for its witness: may open the witness's methods of that class, and
nothing else."""
MIRROR = "mirror"
"""Tag of brokers of other sites: may open the methods of queue mirrors, for the queues that the user may
read."""
FEDERATION = "federation"
"""Tag of federated brokers: may open the methods of federation links, for the exchanges that the user may
read."""
ADMINISTRATOR = "administrator"
"""Tag of operators: may open the management methods of the extension class."""


@dataclass(slots=True, frozen=True)
class Identity:
    """An authenticated user."""

    name: str
    tags: frozenset[str] = frozenset()
    stored: bool = False
    """A user of the directory, limited by its permissions. Configured users may do everything."""

    @property
    def is_administrator(self) -> bool:
        return ADMINISTRATOR in self.tags


@dataclass(slots=True, frozen=True)
class User:
    """A configured or stored user, with a plain password from the configuration or a hash."""

    name: str
    tags: frozenset[str] = frozenset()
    password: str | None = field(default=None, repr=False)
    password_hash: str | None = field(default=None, repr=False)
    loopback_only: bool = False
    """True for the well-known default passwords: only valid if the peer's address is loopback."""


def default_users() -> tuple[User, ...]:
    """guest/guest, administrator, and ha/ha, peer of a pair; both from loopback only."""
    return (
        User("guest", frozenset({ADMINISTRATOR}), password="guest", loopback_only=True),
        User("ha", frozenset({HA}), password="ha", loopback_only=True),
    )
