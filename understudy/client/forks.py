"""What a fork leaves to the child: nothing. A publisher or consumer belongs to the process that made it.

Role: tells each one that lives, in the child and before anything else runs there, to let go of its connection
and its ledger. Two processes on one connection would break each other's frames, and two writers of one ledger
would prove nothing; and as long as a child holds the socket, the broker does not hear that the parent died.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

REFUSAL = "was made before a fork, and belongs to the parent: make one in each process"


class Owned(Protocol):
    """What one process owns."""

    def abandon(self) -> None:
        """In a child: close every descriptor, without a word to anybody; and refuse from then on."""


_owned: WeakSet[Owned] = WeakSet()


def mind(owned: Owned) -> None:
    """Abandon it in the children of this process, for as long as it lives."""
    _owned.add(owned)


def _abandon_all() -> None:
    for owned in tuple(_owned):
        owned.abandon()


os.register_at_fork(after_in_child=_abandon_all)
