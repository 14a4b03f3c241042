"""Makes folders. An error names what is in the way of a folder, and says what it is.

For a file, a broken link or a loop of links in the place of a folder, the kernel says only "File exists".
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def in_the_way(path: str | Path) -> OSError | None:
    """The error of what keeps `path` from being a folder, at it or above it; None if nothing does. `path`
    need not exist. Returns the error and does not raise it."""
    for each in (str(path), *map(str, Path(path).parents)):
        try:
            if stat.S_ISDIR(os.stat(each).st_mode):
                return None
            return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each)
        except FileNotFoundError:
            if os.path.islink(each):
                why = f"is a symbolic link to {os.readlink(each)}, which does not exist"
                return FileNotFoundError(errno.ENOENT, why, each)
        except OSError as error:
            above = error.errno == errno.ENOTDIR or (error.errno == errno.ELOOP and not os.path.islink(each))
            if not above:
                return error
    return None


def make_folders(path: str, mode: int = 0o777) -> None:
    """Like `os.makedirs`, but the folder may exist. Raises OSError, which names what is in the way."""
    if (fault := in_the_way(path)) is not None:
        raise fault
    os.makedirs(path, mode, exist_ok=True)
