"""What can go wrong with a node's own disk. All of it is fatal to the node; each text says what to do.

Raised by `broker.store` at start (`StoreUnusable`, `StoreLocked`, `StoreCorrupt`) to whoever starts the node,
which prints the one line and ends. While the node runs nothing is raised: `Store.failed` carries the
sentence.
"""

from __future__ import annotations

from typing import ClassVar

from broker import codes
from understudy.shared.codes import Code, Coded

OR_ANEW = (
    "if another node of its pair has everything, move the data directory away and let this node join that "
    "one as a new one; else restore it from a backup"
)
"""What is left for one that cannot be used: of a broker on its own it is the only copy."""


class StoreError(Exception):
    """Base: the data directory cannot be used. `str()` is one line, meant for a person."""

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
    """Bytes that had been synced are not what was written. Names the file and the offset in bytes."""

    entry = codes.STORE_DAMAGED

    def __init__(self, path: str, offset: int, what: str, remedy: str = OR_ANEW) -> None:
        super().__init__(f"{path} is damaged at offset {offset}: {what}; nothing was changed; {remedy}")
        self.path = path
        self.offset = offset


class StoreMisuse(StoreError):
    """The caller broke the order that the store demands: a defect of the program, never of the disk."""
