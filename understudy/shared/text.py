"""Texts of others, made fit for a reply or a terminal. Pure functions."""

from __future__ import annotations

import os
import traceback


def short(text: str) -> str:
    """As much of it as a short string holds. What cannot be encoded is shown as a question mark."""
    return text.encode(errors="replace")[:255].decode(errors="ignore")


def shown(text: str) -> str:
    """On one line, and without what a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def origin(error: BaseException) -> list[str]:
    """The way to where it was raised, as `file.py:line`, outermost first."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{os.path.basename(frame.filename)}:{frame.lineno}" for frame in frames]
