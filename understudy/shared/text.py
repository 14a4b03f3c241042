"""Makes text from others fit for a reply or a terminal. Pure functions."""

from __future__ import annotations

import os
import traceback


def short(text: str) -> str:
    """The beginning of the text, as much as fits into an AMQP short string. Characters that cannot be encoded
    become question marks."""
    return text.encode(errors="replace")[:255].decode(errors="ignore")


def shown(text: str) -> str:
    """The text on one line. Escapes all characters that a terminal might obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def origin(error: BaseException) -> list[str]:
    """The call chain to the place where the error was raised, as `file.py:line`, outermost first."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in frames]
