"""Which routing keys a user may publish with, or bind, at one topic exchange. Values only.

As in RabbitMQ, a user without a topic permission for an exchange is limited by its ordinary permission only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote

from broker.model.patterns import matches

Topical = Literal["write", "read"]
TOPICAL: tuple[Topical, ...] = ("write", "read")
_SEPARATOR = "/"
_META = re.compile(r"[^\w]", re.ASCII)


@dataclass(slots=True, frozen=True)
class TopicPermission:
    """Regular expressions for routing keys. `{username}` and `{vhost}` stand for the literal names."""

    write: str
    read: str

    def allows(
        self, what: Topical, key: str, user: str, vhost: str, slow: Callable[[], None] | None = None
    ) -> bool:
        """`slow` is called if the match is slow."""
        pattern = self.write if what == "write" else self.read
        for name, value in (("{username}", user), ("{vhost}", vhost)):
            if name in pattern:
                pattern = pattern.replace(name, _META.sub(_literal, value))
        return matches(pattern, key, slow)


def _literal(found: re.Match[str]) -> str:
    """A character in a pattern that matches itself only. Patterns match octets, and those above ASCII do."""
    character = found[0]
    return f"\\{character}" if character.isascii() else character


def topic_name(user: str, exchange: str) -> str:
    """The name of the directory's entry."""
    return f"{quote(user, safe='@ ')}{_SEPARATOR}{exchange}"


def parts_of_topic(name: str) -> tuple[str, str]:
    """User and exchange of such a name."""
    user, _, exchange = name.partition(_SEPARATOR)
    return unquote(user), exchange
