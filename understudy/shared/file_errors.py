"""Errors of files, as text for a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from understudy.shared.text import shown


def of_file(error: OSError, known: str | Path | None = None) -> str:
    """An error of a file as text: the file and the reason. Without the file if the error names none, or the
    `known` one, which the sentence already has."""
    told = error.filename is None or str(error.filename) == str(known)
    where = "" if told else f"{shown(str(error.filename))}: "
    return f"{where}{error.strerror or error}"


@contextmanager
def named(path: str | Path) -> Iterator[None]:
    """Adds this file to an OSError that names none, as errors of descriptors do."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
