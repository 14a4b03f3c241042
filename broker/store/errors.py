"""Errors of a node's own disk. All are fatal to the node; each text says what to do.

At startup, `broker.store` raises them (`StoreUnusable`, `StoreLocked`, `StoreCorrupt`) to the starter of the
node, which prints the one line and exits. A running node raises none of them: `Store.failed` holds the
sentence.
"""

from __future__ import annotations

from typing import ClassVar

from broker import codes
from understudy.shared.codes import Code, Coded

OR_ANEW = (
    "if another node holds everything, move this data directory away and start the node with an empty one; "
    "otherwise restore an archive"
)
"""What to do about a data directory that cannot be used. On a standalone broker it is the only copy."""


class StoreError(Exception):
    """The data directory cannot be used. `str()` is one line for people."""

    entry: ClassVar[Code] = codes.STORE_UNUSABLE

    @property
    def said(self) -> Coded:
        return self.entry.say(fault=self)


class StoreUnusable(StoreError):
    """The directory or a file in it cannot be created, read or written."""


class StoreLocked(StoreError):
    """Another process holds the data directory."""

    entry = codes.STORE_LOCKED


class StoreCorrupt(StoreError):
    """Synced bytes are not what was written. Names the file and the offset in bytes."""

    entry = codes.STORE_DAMAGED

    def __init__(self, path: str, offset: int, what: str, remedy: str = OR_ANEW) -> None:
        super().__init__(f"{path} is damaged at offset {offset}: {what}; nothing was changed; {remedy}")
        self.path = path
        self.offset = offset


class StoreMisuse(StoreError):
    """A caller broke the store's call order: a bug in the program, never a fault of the disk."""
