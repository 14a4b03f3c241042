"""The regular expressions of policies and permissions: Perl syntax, from the library that RabbitMQ's Erlang
uses.

Names are matched as octets, as in RabbitMQ: `.` is one octet, and classes are ASCII. PCRE2 gives up at its
match limit, which counts as no match, so no pattern can block the broker. Whether a pattern matches a name
depends on these two alone, so a promoted or restarted node comes to the same result. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pcre2

LIMIT = b"(*LIMIT_MATCH=3000)(*LIMIT_HEAP=1000)"
"""Steps after which a match is given up, some 0.05 to 0.2 ms, because a policy is matched against each queue;
and KiB that it may take. Patterns in use match names of 80 octets in 900 steps, and of 255 in 1,000."""

QUICK = b"(*LIMIT_MATCH=300)(*LIMIT_HEAP=1000)"
"""Steps of an ordinary match, some 0.005 to 0.02 ms. A match that takes more is slow."""

_OPTIONS = re.compile(
    rb"(?:\(\*(?:UTF|UCP|NO_START_OPT|NO_AUTO_POSSESS|NO_DOTSTAR_ANCHOR|NO_JIT|NOTEMPTY|NOTEMPTY_ATSTART|CR|LF|CRLF"
    rb"|ANYCRLF|ANY|NUL|BSR_ANYCRLF|BSR_UNICODE|LIMIT_(?:MATCH|HEAP|DEPTH|RECURSION)=[0-9]+)\))*"
)
"""What a pattern may set for itself, at its beginning. Of two limits the last one holds, so ours follows."""


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
    """Like the function `matches`. `given_up`: for each pattern, the names for which it reached the limit."""

    __slots__ = ("given_up",)

    def __init__(self) -> None:
        self.given_up: dict[str, list[str]] = {}

    def matches(self, pattern: str, name: str) -> bool:
        found = _found(pattern, name)
        if found is None:
            self.given_up.setdefault(pattern, []).append(name)
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
        # Not to machine code: hardened hosts refuse memory for that, and its steps are counted otherwise.
        pcre2.compile(octets, jit=False)  # so that the fault text refers to the pattern alone
        found = _OPTIONS.match(octets)
        at = 0 if found is None else found.end()
        return pcre2.compile(octets[:at] + limit + octets[at:], jit=False)
    except UnicodeEncodeError:
        return "it is not Unicode"
    except pcre2.LibraryError as error:
        return str(error).removeprefix("compilation failed ")
