"""Protects publishers and consumers from forks: each belongs to the process that created it.

Role: makes every live publisher and consumer give up its connection and ledger in a forked child, before any
other code runs there. Two processes on one connection would corrupt each other's frames. Two writers of one
ledger would make it worthless as evidence. And while a child holds the socket open, the broker does not see
that the parent died.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

REFUSAL = "was created before a fork, and belongs to the parent: create one in each process"


class Owned(Protocol):
    """An object that belongs to one process."""

    def abandon(self) -> None:
        """Called in a child process: close every descriptor silently, and refuse all later calls."""


_owned: WeakSet[Owned] = WeakSet()


def mind(owned: Owned) -> None:
    """Abandon `owned` in every child that this process forks while `owned` is alive."""
    _owned.add(owned)


def _abandon_all() -> None:
    for owned in tuple(_owned):
        owned.abandon()


os.register_at_fork(after_in_child=_abandon_all)
