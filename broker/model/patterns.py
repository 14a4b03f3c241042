"""The regular expressions of policies and permissions: Perl's, by the library that RabbitMQ's Erlang has.

Names are matched as octets, as there: `.` is one octet, and classes are ASCII's. A match that would take too
long is none: PCRE2 gives up at its match limit, so that no pattern holds up the broker. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pcre2

LIMIT = b"(*LIMIT_MATCH=100000)"
"""Steps after which a match is given up: some 0.2 ms. The library's own limit is a hundred times that, and a
policy is matched against each queue."""

QUICK = b"(*LIMIT_MATCH=1000)"
"""Steps of an ordinary match, some 2 us; one that takes more is slow."""

HITS = 10
"""Names of one evaluation of a policy for which its pattern may reach the limit: some 3 ms."""


class PatternFault(ValueError):
    """What is wrong with a pattern; one line."""


def check_pattern(pattern: str) -> None:
    """Raises PatternFault for what is no regular expression."""
    if isinstance(found := _compiled(pattern, LIMIT), str):
        raise PatternFault(found)


def matches(pattern: str, name: str, slow: Callable[[], None] | None = None) -> bool:
    """Is the pattern found anywhere in `name`? An empty one matches nothing but an empty name; one that is no
    regular expression, or reaches the match limit, matches nothing. `slow` is called if the match is slow."""
    if slow is not None and _is_slow(pattern, name):
        slow()
    return _found(pattern, name) is True


def _is_slow(pattern: str, name: str) -> bool:
    quick = _compiled(pattern, QUICK)
    if not pattern or isinstance(quick, str):
        return False
    try:
        quick.search(_octets(name))
    except pcre2.LibraryError:
        return True
    return False


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
    compiled = _compiled(pattern, LIMIT)
    if isinstance(compiled, str):
        return False
    try:
        return compiled.search(_octets(name)) is not None
    except pcre2.LibraryError:
        return None


def _octets(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


@lru_cache(4096)
def _compiled(pattern: str, limit: bytes) -> Any:
    """The compiled pattern, or, as a text, why there is none."""
    try:
        octets = _octets(pattern)
        pcre2.compile(octets)  # so that a fault is told of the pattern alone
        return pcre2.compile(limit + octets)
    except UnicodeEncodeError:
        return "it is not Unicode"
    except pcre2.LibraryError as error:
        return str(error).removeprefix("compilation failed ")
