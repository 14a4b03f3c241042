"""The arguments of operations: read with their types, each once. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.model.octets import as_octets, as_text, is_unicode
from broker.model.values import ROOT
from ha.adapter.management.definitions_view import from_json

LONGEST = 255
"""Octets of a name or routing key in AMQP."""
DEEPEST = 32
"""Levels of tables in a table."""


class Fault(ValueError):
    """An argument is wrong. `str()` is a sentence that names it."""


class Arguments:
    """Call one method for each known key, then `end`."""

    def __init__(self, args: Mapping[str, Any]) -> None:
        self._args = args
        self._known: set[str] = set()

    def _value(self, key: str, default: Any) -> Any:
        self._known.add(key)
        return self._args.get(key, default)

    def text(self, key: str, default: str | None = None) -> str:
        """Any text. Raises Fault, also without a value if there is no default."""
        value = self._value(key, default)
        if not isinstance(value, str) or not is_unicode(value):
            raise Fault(f"{key!r} must be a string")
        return value

    def name(self, key: str, default: str | None = None) -> str:
        """A name as AMQP can carry it."""
        value = self.text(key, default)
        if len(value.encode()) > LONGEST:
            raise Fault(f"{key!r} is longer than {LONGEST} octets")
        return value

    def filled(self, key: str) -> str:
        """A name that is not empty."""
        value = self.name(key)
        if not value:
            raise Fault(f"{key!r} is empty")
        return value

    def vhost(self) -> str:
        return self.name("vhost", ROOT)

    def key(self, name: str, default: str | None = None) -> str:
        """A routing key: a string, or octets as definitions have them (`{"$bytes": base64}`)."""
        value = self._value(name, default)
        if isinstance(value, dict):
            try:
                value = from_json(value)
            except ValueError as error:
                raise Fault(f"{name!r}: {error}") from None
            value = as_text(value) if isinstance(value, bytes) else None
        elif isinstance(value, str) and not is_unicode(value):
            value = None
        if not isinstance(value, str):
            raise Fault(f"{name!r} must be a string")
        if len(as_octets(value)) > LONGEST:
            raise Fault(f"{name!r} is longer than {LONGEST} octets")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise Fault(f"{key!r} must be true or false")
        return value

    def number(self, key: str, least: int, most: int, default: int | None = None) -> int:
        value = self._value(key, default)
        if type(value) is not int or not least <= value <= most:
            raise Fault(f"{key!r} must be a whole number from {least} to {most}")
        return value

    def choice(self, key: str, choices: tuple[str, ...], default: str | None = None) -> str:
        value = self._value(key, default)
        if value not in choices:
            raise Fault(f"{key!r} must be one of {', '.join(choices)}")
        return str(value)

    def words(self, key: str, most: int) -> list[str] | None:
        """A list of strings, at most so many; None if it is empty or absent."""
        value = self._value(key, None) or []
        if (
            not isinstance(value, list)
            or len(value) > most
            or not all(isinstance(word, str) for word in value)
        ):
            raise Fault(f"{key!r} must be a list of at most {most} strings")
        return value or None

    def table(self, key: str) -> dict[str, Any]:
        """A table of arguments or properties; empty if absent. Its values may be written as in definitions
        (`to_json`)."""
        value = self._value(key, None)
        if value is None or value == []:  # PHP's JSON of an empty table
            return {}
        if not isinstance(value, dict):
            raise Fault(f"{key!r} must be an object")
        _check(key, value, 0)
        try:
            return {name: from_json(item) for name, item in value.items()}
        except ValueError as error:
            raise Fault(f"{key!r}: {error}") from None

    def end(self) -> None:
        """Raises Fault if there are other keys."""
        if unknown := sorted(set(self._args) - self._known):
            raise Fault(f"there is no argument {unknown[0][:60]!a}")


def _check(key: str, value: object, depth: int) -> None:
    """Raises Fault for what no field table of AMQP holds."""
    if depth > DEEPEST:
        raise Fault(f"{key!r} has more than {DEEPEST} levels")
    match value:
        case dict():
            for name, item in value.items():
                if not is_unicode(name) or len(name.encode()) > LONGEST:
                    raise Fault(f"{key!r}: a key is longer than {LONGEST} octets, or no text")
                _check(key, item, depth + 1)
        case list():
            for item in value:
                _check(key, item, depth + 1)
        case str() if not is_unicode(value):
            raise Fault(f"{key!r}: a value is no text")
        case bool() | None | str() | float():
            pass
        case int() if -(1 << 63) <= value < 1 << 63:
            pass
        case _:
            raise Fault(f"{key!r}: a number does not fit into 64 bits")
