"""The types of the fields of performatives (part 2, 2.7), checked before the engine reads them.

Role: the engine, which is written in C, treats a field of the wrong type as absent, and passes map keys of
any type to Python. Transfer, flow and disposition need no check: the engine reads them itself, and passes on
only numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from understudy.shared.amqp10.conditions import DECODE, Fault
from understudy.shared.amqp10.values import Array, Described, Symbol

OPEN, BEGIN, ATTACH, DETACH, END, CLOSE = 0x10, 0x11, 0x12, 0x16, 0x17, 0x18


class _Kind(NamedTuple):
    """`wanted`: its name in an error."""

    wanted: str
    fits: Callable[[object], bool]


class _Field(NamedTuple):
    name: str
    kind: _Kind
    required: bool = False


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, Symbol)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_symbols(value: object) -> bool:
    return isinstance(value, Symbol) or (
        isinstance(value, Array) and all(isinstance(each, Symbol) for each in value)
    )


def _is_map(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value)


def _is_terminus(value: object) -> bool:
    return _is_composite(value) and (not value.value or value.value[0] is None or _is_text(value.value[0]))  # type: ignore[attr-defined]


def _is_composite(value: object) -> bool:
    return isinstance(value, Described) and isinstance(value.value, list)


_TEXT = _Kind("a string", _is_text)
_NUMBER = _Kind("a number", _is_number)
_BOOLEAN = _Kind("a boolean", lambda value: isinstance(value, bool))
_SYMBOLS = _Kind("symbols", _is_symbols)
_MAP = _Kind("a map with symbols as keys", _is_map)
_UNSETTLED = _Kind("a map", lambda value: isinstance(value, dict))
_TERMINUS = _Kind("a described list with a string as address", _is_terminus)
_ERROR = _Kind("an error", _is_composite)
_ALIKE = (
    _Field("offered-capabilities", _SYMBOLS),
    _Field("desired-capabilities", _SYMBOLS),
    _Field("properties", _MAP),
)

_FIELDS: dict[int, tuple[str, tuple[_Field, ...]]] = {
    OPEN: ("open", (
        _Field("container-id", _TEXT), _Field("hostname", _TEXT), _Field("max-frame-size", _NUMBER),
        _Field("channel-max", _NUMBER), _Field("idle-time-out", _NUMBER),
        _Field("outgoing-locales", _SYMBOLS), _Field("incoming-locales", _SYMBOLS), *_ALIKE,
    )),
    BEGIN: ("begin", (
        _Field("remote-channel", _NUMBER), _Field("next-outgoing-id", _NUMBER),
        _Field("incoming-window", _NUMBER), _Field("outgoing-window", _NUMBER),
        _Field("handle-max", _NUMBER), *_ALIKE,
    )),
    ATTACH: ("attach", (
        _Field("name", _TEXT, required=True), _Field("handle", _NUMBER, required=True),
        _Field("role", _BOOLEAN, required=True), _Field("snd-settle-mode", _NUMBER),
        _Field("rcv-settle-mode", _NUMBER), _Field("source", _TERMINUS), _Field("target", _TERMINUS),
        _Field("unsettled", _UNSETTLED), _Field("incomplete-unsettled", _BOOLEAN),
        _Field("initial-delivery-count", _NUMBER), _Field("max-message-size", _NUMBER), *_ALIKE,
    )),
    DETACH: ("detach", (
        _Field("handle", _NUMBER, required=True), _Field("closed", _BOOLEAN), _Field("error", _ERROR),
    )),
    END: ("end", (_Field("error", _ERROR),)),
    CLOSE: ("close", (_Field("error", _ERROR),)),
}  # fmt: skip
VERIFIED = frozenset(_FIELDS)


def verify(performative: int, fields: list[object]) -> None:
    """Raises Fault for a field of the wrong type, or a missing field that is required."""
    name, known = _FIELDS[performative]
    for place, field in enumerate(known):
        value = fields[place] if place < len(fields) else None
        if value is None:
            if field.required:
                raise Fault(DECODE, f"{name} without its {field.name}")
        elif not field.kind.fits(value):
            raise Fault(DECODE, f"{name} whose {field.name} is not {field.kind.wanted}")
