"""The regular expressions of policies and permissions: Perl syntax, from the library that RabbitMQ's Erlang
uses.

Names are matched as octets, as in RabbitMQ: `.` is one octet, and classes are ASCII. PCRE2 gives up at its
match limit, which counts as no match, so no pattern can block the broker. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pcre2

LIMIT = b"(*LIMIT_MATCH=100000)"
"""Steps after which a match is given up, some 0.2 ms. The library's own limit is a hundred times larger, and
a policy is matched against each queue."""

QUICK = b"(*LIMIT_MATCH=1000)"
"""Steps of an ordinary match, some 2 us. A match that takes more is slow."""

HITS = 10
"""Names per evaluation of a policy for which its pattern may reach the limit: some 3 ms."""


class PatternFault(ValueError):
    """Why a pattern is invalid, in one line."""


def check_pattern(pattern: str) -> None:
    """Raises PatternFault if this is not a regular expression."""
    if isinstance(found := _compiled(pattern, LIMIT), str):
        raise PatternFault(found)


def matches(pattern: str, name: str, slow: Callable[[], None] | None = None) -> bool:
    """Whether the pattern matches anywhere in `name`. An empty pattern matches only an empty name. An invalid
    pattern, and one that reaches the match limit, matches nothing. `slow` is called for a slow match."""
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
    """Matches few patterns against very many names. A pattern that reaches the match limit HITS times is
    `given_up`: it matches none of the following names and costs nothing more."""

    __slots__ = ("_hits", "given_up")

    def __init__(self) -> None:
        self._hits: dict[str, int] = {}
        self.given_up: set[str] = set()

    def matches(self, pattern: str, name: str) -> bool:
        """Like the function `matches`, until the pattern is given up."""
        if pattern in self.given_up:
            return False
        found = _found(pattern, name)
        if found is None:
            self._hits[pattern] = hits = self._hits.get(pattern, 0) + 1
            if hits >= HITS:
                self.given_up.add(pattern)
        return found is True


def _found(pattern: str, name: str) -> bool | None:
    """None: the match limit was reached."""
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
    """The compiled pattern, or the fault as text."""
    try:
        octets = _octets(pattern)
        pcre2.compile(octets)  # so that the fault text refers to the pattern alone
        return pcre2.compile(limit + octets)
    except UnicodeEncodeError:
        return "it is not Unicode"
    except pcre2.LibraryError as error:
        return str(error).removeprefix("compilation failed ")
