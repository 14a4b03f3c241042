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


class PatternFault(ValueError):
    """What is wrong with a pattern; one line."""


def check_pattern(pattern: str) -> None:
    """Raises PatternFault for what is no regular expression."""
    if isinstance(found := _compiled(pattern), str):
        raise PatternFault(found)


def matches(pattern: str, name: str) -> bool:
    """Is the pattern found anywhere in `name`? An empty one matches nothing but an empty name; one that is no
    regular expression, or reaches the match limit, matches nothing."""
    if not pattern:
        return not name
    compiled = _compiled(pattern)
    if isinstance(compiled, str):
        return False
    try:
        return compiled.search(name.encode(errors="surrogateescape")) is not None
    except pcre2.LibraryError:
        return False


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
