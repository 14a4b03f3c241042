"""Errors of files, in words for a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from understudy.shared.text import shown


def of_file(error: OSError, known: str | Path | None = None) -> str:
    """What the error of a file is, in words: the file, if the error names one and it is not the `known` one
    that the sentence has already, and why."""
    told = error.filename is None or str(error.filename) == str(known)
    where = "" if told else f"{shown(str(error.filename))}: "
    return f"{where}{error.strerror or error}"


@contextmanager
def named(path: str | Path) -> Iterator[None]:
    """An OSError within that names no file, as those of descriptors do not, names this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
