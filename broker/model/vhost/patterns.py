"""The regular expressions of policies and permissions: Perl's, by the library that RabbitMQ's Erlang has.

Names are matched as octets, as there: `.` is one octet, and classes are ASCII's. A match that would take too
long is none: PCRE2 gives up at its match limit, so that no pattern holds up the broker. Pure.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pcre2

LIMIT = b"(*LIMIT_MATCH=100000)"
"""Steps after which a match is given up: some 0.2 ms. The library's own limit is a hundred times that, and a
policy is matched against each queue."""

HITS = 10
"""Names of one evaluation of a policy for which its pattern may reach the limit: some 3 ms."""


class PatternFault(ValueError):
    """What is wrong with a pattern; one line."""


def check_pattern(pattern: str) -> None:
    """Raises PatternFault for what is no regular expression."""
    if isinstance(found := _compiled(pattern), str):
        raise PatternFault(found)


def matches(pattern: str, name: str) -> bool:
    """Is the pattern found anywhere in `name`? An empty one matches nothing but an empty name; one that is no
    regular expression, or reaches the match limit, matches nothing."""
    return _found(pattern, name) is True


class Matching:
    """Matches of few patterns against very many names. A pattern that reaches the match limit HITS times is
    `given_up`: it matches none of the names that follow, and costs nothing any more."""

    __slots__ = ("_hits", "given_up")

    def __init__(self) -> None:
        self._hits: dict[str, int] = {}
        self.given_up: set[str] = set()

    def matches(self, pattern: str, name: str) -> bool:
        """As the function of that name, until the pattern is given up."""
        if pattern in self.given_up:
            return False
        found = _found(pattern, name)
        if found is None:
            self._hits[pattern] = hits = self._hits.get(pattern, 0) + 1
            if hits >= HITS:
                self.given_up.add(pattern)
        return found is True


def _found(pattern: str, name: str) -> bool | None:
    """None: that would take too long to find out."""
    if not pattern:
        return not name
    compiled = _compiled(pattern)
    if isinstance(compiled, str):
        return False
    try:
        return compiled.search(name.encode(errors="surrogateescape")) is not None
    except pcre2.LibraryError:
        return None


@lru_cache(4096)
def _compiled(pattern: str) -> Any:
    """The compiled pattern, or, as a text, why there is none."""
    try:
        octets = pattern.encode(errors="surrogateescape")
        pcre2.compile(octets)  # so that a fault is told of the pattern alone
        return pcre2.compile(LIMIT + octets)
    except UnicodeEncodeError:
        return "it is not Unicode"
    except pcre2.LibraryError as error:
        return str(error).removeprefix("compilation failed ")
