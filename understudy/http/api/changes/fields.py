"""The fields of a body or a query, as RabbitMQ's management takes them: also numbers and truths in strings,
as `rabbitmqadmin` sends them. Pure; raises Refused (400)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.http.answers import bad

_TRUTHS = {"true": True, "false": False, True: True, False: False}
_DIGITS = 18
"""Of the largest number in a string."""


class Fields:
    """Fields that nobody asks for are ignored, as in RabbitMQ: clients repeat names of the path there."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found

    def has(self, key: str) -> bool:
        return self._found.get(key) is not None

    def any(self, key: str) -> Any:
        """Its value. Refused if there is none."""
        if key not in self._found:
            raise bad(f"key_missing: {key}")
        return self._found[key]

    def truth(self, key: str, default: bool = False) -> bool:
        value = self._found.get(key, default)
        truth = _TRUTHS.get(value) if isinstance(value, str | bool) else None
        if truth is None:
            raise bad(f"{key} must be true or false")
        return truth

    def number(self, key: str, default: int) -> int:
        value = self._found.get(key, default)
        return whole(key, value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.any(key) if default is None else self._found.get(key, default)
        if not isinstance(value, str):
            raise bad(f"{key} must be a string")
        return value

    def table(self, key: str) -> dict[str, Any]:
        """Empty if absent. PHP writes an empty table as a list."""
        value = self._found.get(key) or {}
        if not isinstance(value, dict):
            raise bad(f"{key} must be an object")
        return value

    def words(self, key: str) -> list[str]:
        """A list of words, or words separated by commas; each once, sorted."""
        value = self.any(key)
        if isinstance(value, str):
            value = [word.strip() for word in value.split(",")]
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise bad(f"{key} must be a list of strings")
        return sorted({word for word in value if word})


def whole(key: str, value: object) -> int:
    """A whole number, perhaps in a string."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        return int(value)
    if type(value) is not int:
        raise bad(f"{key} must be a whole number")
    return value
