"""Approximate memory of definitions, for the memory alarm. `Topology` adds it up.

The figures are what Python allocates for each object without its contents;
`tests/broker/test_memory_alarm.py` measures them. Arguments are counted value by value: a decoded table takes
up to 20 times its encoded octets.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import getsizeof

QUEUE = 2900
EXCHANGE = 360
BINDING = 310
INDEX = 240
"""A dictionary with few entries."""
MEMBER = 150
"""A binding's place in two dictionaries."""
PLACE = 110
"""A header that bindings of a headers exchange require, with its value."""
TOPIC_NODE = 330
"""One word of a topic pattern in the trie, if no other pattern shares it."""
CONSUMER = 480
_WIDE = "\u0100"
_WIDEST = "\U00010000"


def of_text(text: str) -> int:
    """`getsizeof` of the text, plus its UTF-8 form, which exists after the first use."""
    if text.isascii():
        return 50 + len(text)
    highest = max(text)
    return 75 + len(text) * (1 if highest < _WIDE else 2 if highest < _WIDEST else 4)


def of_table(arguments: Mapping[str, object]) -> int:
    """A table with all its contents. Nobody changes a stored table."""
    return _of(arguments) if arguments else 0


def _of(value: object) -> int:
    match value:
        case str():
            return of_text(value)
        case Mapping():
            return getsizeof(value) + sum([of_text(key) + _of(inner) for key, inner in value.items()])
        case list() | tuple():
            return getsizeof(value) + sum([_of(inner) for inner in value])
        case None | True | False:
            return 0
        case _:
            return getsizeof(value)
