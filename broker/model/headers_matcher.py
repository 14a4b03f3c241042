"""Which bindings of a headers exchange a message matches, without a look at all of them.

Owner: `Exchange`. Bindings that ask for the same are one group, and are looked at once. A group is found by a
header that it asks for: one that wants all of them by its rarest one, one that wants any by each.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import getsizeof
from typing import TYPE_CHECKING

from broker.model.definition_octets import INDEX, MEMBER, PLACE

if TYPE_CHECKING:
    from broker.model.binding import Binding, BindingKey

X_MATCH = ("all", "any", "all-with-x", "any-with-x")

_Place = tuple[str, object]
"""A header and what stands for its value; None for any value."""
_Group = tuple[bool, frozenset[_Place]]
"""Is any one of them enough; and which it asks for."""


class HeadersMatcher:
    """`looks`: groups that the last `match` has looked at."""

    def __init__(self) -> None:
        self._groups: dict[_Group, dict[BindingKey, Binding]] = {}
        self._group_of: dict[BindingKey, _Group] = {}
        self._found_by: dict[_Group, tuple[_Place, ...]] = {}
        self._index: dict[_Place, dict[_Group, None]] = {}
        self.looks = 0

    def add(self, binding: Binding) -> int:
        group = _group(binding.arguments)
        members = self._groups.get(group)
        if members is not None:
            self._group_of[binding.key] = self._group_of[next(iter(members))]  # one object for all of them
            members[binding.key] = binding
            return MEMBER
        self._group_of[binding.key] = group
        self._groups[group] = {binding.key: binding}
        any_, asked = group
        places = sorted(asked, key=lambda place: (len(self._index.get(place, ())), place[0]))
        self._found_by[group] = chosen = tuple(places if any_ else places[:1])
        for place in chosen:
            self._index.setdefault(place, {})[group] = None
        return _octets(group, chosen)

    def remove(self, binding: Binding) -> int:
        group = self._group_of.pop(binding.key, None)
        if group is None:
            return 0
        members = self._groups[group]
        del members[binding.key]
        if members:
            return MEMBER
        del self._groups[group]
        chosen = self._found_by.pop(group)
        for place in chosen:
            found = self._index[place]
            del found[group]
            if not found:
                del self._index[place]
        return _octets(group, chosen)

    def match(self, routing_key: str, headers: Mapping[str, object]) -> list[Binding]:
        found: dict[_Group, None] = {(False, frozenset()): None}
        for name, value in headers.items():
            found.update(self._index.get((name, None), ()))
            if value is not None:
                found.update(self._index.get((name, _token(value)), ()))
        self.looks = len(found)
        matched: list[Binding] = []
        for group in found:
            members = self._groups.get(group)
            if members and headers_match(next(iter(members.values())).arguments, headers):
                matched += members.values()
        return matched


def _octets(group: _Group, chosen: tuple[_Place, ...]) -> int:
    """What a group takes with its first member, about, and where it is found."""
    asked = group[1]
    return 2 * MEMBER + INDEX * (1 + len(chosen)) + getsizeof(asked) + PLACE * len(asked)


def _wanted(arguments: Mapping[str, object]) -> tuple[bool, list[tuple[str, object]]]:
    """Is any one enough; and the headers that are asked for."""
    how = arguments.get("x-match", "all")
    with_x = how in ("all-with-x", "any-with-x")
    wanted = [(k, v) for k, v in arguments.items() if k != "x-match" and (with_x or not k.startswith("x-"))]
    return how in ("any", "any-with-x"), wanted


def _group(arguments: Mapping[str, object]) -> _Group:
    any_, wanted = _wanted(arguments)
    return any_, frozenset((k, None if v is None else _token(v)) for k, v in wanted)


def headers_match(arguments: Mapping[str, object], headers: Mapping[str, object]) -> bool:
    """Does a message with `headers` match a binding's `arguments`?

    `x-match` says all (the default) or any; keys that begin with `x-` count only in the `-with-x` forms. A
    binding value of None asks for the key's presence only.
    """
    any_, wanted = _wanted(arguments)
    hits = (k in headers and (v is None or _same(v, headers[k])) for k, v in wanted)
    return any(hits) if any_ else all(hits)


def _same(wanted: object, got: object) -> bool:
    """Equal in value and kind: True is not 1 in a field table, while text may come as str or bytes."""
    if isinstance(wanted, str) and isinstance(got, bytes):
        return wanted.encode() == got
    if isinstance(wanted, bytes) and isinstance(got, str):
        return wanted == got.encode()
    return isinstance(wanted, bool) == isinstance(got, bool) and wanted == got


def _token(value: object) -> object:
    """Equal for values that are the same, and fit for a key."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return (bool, value) if isinstance(value, bool) else _fixed(value)


def _fixed(value: object) -> object:
    if isinstance(value, list):
        return (list, *map(_fixed, value))
    if isinstance(value, dict):
        return (dict, frozenset((k, _fixed(v)) for k, v in value.items()))
    return bytes(value) if isinstance(value, bytearray) else value
