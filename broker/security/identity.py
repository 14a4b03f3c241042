"""Who a connection is: names, tags, and how a user proves to be one. Values only; no secrets in any repr."""

from __future__ import annotations

from dataclasses import dataclass, field

HA = "ha"
"""Tag of the peers of a pair: may open the link methods of the extension class."""
ADMINISTRATOR = "administrator"
"""Tag of operators: may open the management methods of the extension class."""


@dataclass(slots=True, frozen=True)
class Identity:
    """A user who has proved who it is."""

    name: str
    tags: frozenset[str] = frozenset()
    stored: bool = False
    """It is a user of the directory, and may do what its permissions say; others may do everything."""

    @property
    def is_administrator(self) -> bool:
        return ADMINISTRATOR in self.tags


@dataclass(slots=True, frozen=True)
class User:
    """One user, as configured or as stored: either a word that the configuration holds anyway, or a hash."""

    name: str
    tags: frozenset[str] = frozenset()
    password: str | None = field(default=None, repr=False)
    password_hash: str | None = field(default=None, repr=False)
    loopback_only: bool = False
    """True for the well-known default words: good only where the peer's own address is loopback."""


def default_users() -> tuple[User, ...]:
    """guest/guest, administrator, and ha/ha, peer of a pair; both from loopback only."""
    return (
        User("guest", frozenset({ADMINISTRATOR}), password="guest", loopback_only=True),
        User("ha", frozenset({HA}), password="ha", loopback_only=True),
    )
