"""Folders that are to be made: what is in the way of one, so that an error names it and says what it is.

The kernel calls a file, a link to nothing and a loop of links in the place of a folder "File exists".
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def in_the_way(path: str | Path) -> OSError | None:
    """What keeps `path`, which need not be there, from being a folder: at it, or above it. Not raised."""
    for each in (str(path), *map(str, Path(path).parents)):
        try:
            if stat.S_ISDIR(os.stat(each).st_mode):
                return None
            return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each)
        except FileNotFoundError:
            if os.path.islink(each):
                why = f"is a symbolic link to {os.readlink(each)}, which is not there"
                return FileNotFoundError(errno.ENOENT, why, each)
        except OSError as error:
            above = error.errno == errno.ENOTDIR or (error.errno == errno.ELOOP and not os.path.islink(each))
            if not above:
                return error
    return None


def make_folders(path: str, mode: int = 0o777) -> None:
    """As `os.makedirs`, of a folder that may be there. Raises OSError, with the name of what is in the
    way."""
    if (fault := in_the_way(path)) is not None:
        raise fault
    os.makedirs(path, mode, exist_ok=True)
