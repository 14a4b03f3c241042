"""Reads JSON strictly: each fault is one line with its place, and a repeated key is a fault.

The place is line and column if the text is not JSON, otherwise a JSON pointer (RFC 6901).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

from understudy.shared.text import shown


class DefinitionsError(ValueError):
    """A fault of a definitions file, in one line with its place. Nothing has been changed."""


def pointer(steps: Iterable[str | int]) -> str:
    """`steps` as a JSON pointer."""
    return "".join("/" + shown(str(step)).replace("~", "~0").replace("/", "~1") for step in steps)


class _Twice(dict[str, Any]):
    """An object with a repeated key. A plain dict would silently keep one of the two values."""

    key = ""


def read_json(raw: bytes) -> Any:
    """The document in `raw`. Raises DefinitionsError."""
    twice: list[_Twice] = []

    def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        twice.append(marked := _Twice(found))
        marked.key = next(k for k, number in Counter(k for k, _ in pairs).items() if number > 1)
        return marked

    try:
        document = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=to_object, parse_constant=_constant)
        if twice:
            where, key = next(_marked(document, ()))
            raise DefinitionsError(f"{pointer(where) or '/'}: has the key {key!r:.60} twice")
        return document
    except DefinitionsError:
        raise
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DefinitionsError(f"line {line}: not UTF-8") from None
    except json.JSONDecodeError as error:
        if not raw.strip():
            raise DefinitionsError("it is empty") from None
        ends = not error.doc[error.pos :].strip() or error.msg.startswith("Unterminated")
        cut = "; is it cut short?" if ends else ""
        raise DefinitionsError(
            f"line {error.lineno} column {error.colno}: not JSON: {error.msg}{cut}"
        ) from None
    except RecursionError:
        raise DefinitionsError("nested too deeply") from None
    except ValueError:
        raise DefinitionsError("a number has too many digits") from None


def _constant(word: str) -> NoReturn:
    raise DefinitionsError(f"not JSON: {word} is not a JSON number")


def _marked(value: object, where: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, _Twice):
        yield where, value.key
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for step, item in items:
        yield from _marked(item, (*where, step))
