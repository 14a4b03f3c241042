"""Finds the bindings of a headers exchange that a message matches, without a look at all of them.

Owner: `Exchange`. Bindings that require the same headers form one group, which is checked once. The index
finds a group by its required headers: with `all` by the rarest one, with `any` by each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from sys import getsizeof
from typing import Generic, Protocol, TypeVar

from broker.model.definition_octets import INDEX, MEMBER, PLACE
from broker.model.queue.link import BOUND_FROM, BY


class Bound(Protocol):
    """The part of a binding that matching needs."""

    @property
    def key(self) -> Hashable: ...
    @property
    def arguments(self) -> Mapping[str, object]: ...


B = TypeVar("B", bound=Bound)

PIECE = 200
"""Groups checked in one piece."""
LOOK = 4
"""Steps for checking one group."""
_NO_HEADERS = frozenset(("x-match", BY, BOUND_FROM))
"""Arguments of a binding that ask for no header."""
X_MATCH = ("all", "any", "all-with-x", "any-with-x")

_Place = tuple[str, object]
"""A header name and a token for its value; None for any value."""
_Wanted = tuple[bool, frozenset[_Place]]
"""Whether one of the headers is enough, and the headers that a binding requires."""
_ALL_OF_NOTHING: _Wanted = False, frozenset()


class _Group(Generic[B]):
    """Bindings that require the same headers. `any_`: one of them is enough. `found_by`: the index entries of
    the group."""

    __slots__ = ("any_", "asked", "found_by", "members")

    def __init__(self, wanted: _Wanted, found_by: tuple[_Place, ...]) -> None:
        self.any_, self.asked = wanted
        self.found_by = found_by
        self.members: dict[Hashable, B] = {}

    @property
    def octets(self) -> int:
        """Approximate memory of the group with its first member and its index entries."""
        return 2 * MEMBER + INDEX * (1 + len(self.found_by)) + getsizeof(self.asked) + PLACE * len(self.asked)


class HeadersMatcher(Generic[B]):
    """The `Matcher` of a headers exchange; see the module."""

    def __init__(self) -> None:
        self._groups: dict[_Wanted, _Group[B]] = {}
        self._group_of: dict[Hashable, _Group[B]] = {}
        self._index: dict[_Place, dict[_Group[B], None]] = {}

    def add(self, binding: B) -> int:
        wanted = _wanted(binding.arguments)
        group = self._groups.get(wanted)
        if group is not None:
            self._group_of[binding.key] = group
            group.members[binding.key] = binding
            return MEMBER
        any_, asked = wanted
        places = sorted(asked, key=lambda place: (len(self._index.get(place, ())), place[0]))
        group = _Group(wanted, tuple(places if any_ else places[:1]))
        group.members[binding.key] = binding
        self._group_of[binding.key] = self._groups[wanted] = group
        for place in group.found_by:
            self._index.setdefault(place, {})[group] = None
        return group.octets

    def remove(self, binding: B) -> int:
        group = self._group_of.pop(binding.key, None)
        if group is None:
            return 0
        del group.members[binding.key]
        if group.members:
            return MEMBER
        del self._groups[group.any_, group.asked]
        for place in group.found_by:
            found = self._index[place]
            del found[group]
            if not found:
                del self._index[place]
        return group.octets

    def match(self, routing_key: str, headers: Mapping[str, object]) -> Iterator[tuple[int, Collection[B]]]:
        """Match in pieces. A binding added or removed between two pieces may be found or not."""
        present: dict[_Place, None] = {}
        for name, value in headers.items():
            present[name, None] = None
            if value is not None:
                present[name, _token(value)] = None
        found: dict[_Group[B], None] = {}
        if everything := self._groups.get(_ALL_OF_NOTHING):
            found[everything] = None
        for place in present:
            found.update(self._index.get(place, {}))
        places = frozenset(present)
        groups = list(found)
        for at in range(0, len(groups) or 1, PIECE):
            some = groups[at : at + PIECE]
            matched: list[B] = []
            for group in some:
                if group.any_ or group.asked <= places:  # `any`: the index found one of its headers
                    matched += group.members.values()
            yield LOOK * (len(some) if at else len(some) + 1), matched


def _wanted(arguments: Mapping[str, object]) -> _Wanted:
    """`x-match` is `all` (default) or `any`. Keys that begin with `x-` only count in the `-with-x` forms. A
    value of None requires only that the header is present."""
    how = arguments.get("x-match", "all")
    with_x = how in ("all-with-x", "any-with-x")
    return how in ("any", "any-with-x"), frozenset(
        (k, None if v is None else _token(v))
        for k, v in arguments.items()
        if k not in _NO_HEADERS and (with_x or not k.startswith("x-"))
    )


def _token(value: object) -> object:
    """A hashable token that is equal for equal values."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return (bool, value) if isinstance(value, bool) else _fixed(value)


def _fixed(value: object) -> object:
    if isinstance(value, list):
        return (list, *map(_fixed, value))
    if isinstance(value, dict):
        return (dict, frozenset((k, _fixed(v)) for k, v in value.items()))
    return bytes(value) if isinstance(value, bytearray) else value
