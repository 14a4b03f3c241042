"""The interface of a ledger, as a node uses it. The writer of files lives in `understudy.ledger`; ha never
imports it.

Called by `Node` and its sinks, on the broker's one thread. Implementations never raise, and block for one
`write(2)` per flush at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from broker.model.history.batch import Batch

PRIMARY = "primary"
BACKUP = "backup"


class LedgerPort(Protocol):
    """A ledger: an append-only file of events, with one writer and one incarnation."""

    view: int
    """The epoch that the writer lives in; the node keeps it up to date."""

    def batch(self, batch: Batch, role: str) -> None:
        """Note the records of one batch. `role`: PRIMARY if it was made here, BACKUP if it was followed."""

    def record(
        self, kind: str, *, queue: str | None = None, epoch: int | None = None, first: int | None = None,
        last: int | None = None, reason: str | None = None, prod: str | None = None,
        pfirst: int | None = None, name: str | None = None, peer: str | None = None, n: int | None = None,
    ) -> None:  # fmt: skip
        """Note one event. Fields that are None are left out; ranges are `first`, `last`, inclusive."""

    def flush(self) -> None:
        """Hand all that was noted to the operating system, in one write. Called before confirms go out."""

    def health(self) -> dict[str, Any]:
        """The state of its file, for `status`; empty for a ledger without a file."""

    def close(self, *, seal: bool = True) -> None:
        """Flush and close. `seal`: the sign of a clean end, its last record."""


class NullLedger:
    """The ledger of a node that does not keep one."""

    def __init__(self) -> None:
        self.view = 0

    def batch(self, batch: Batch, role: str) -> None:
        return None

    def record(self, kind: str, **fields: Any) -> None:
        return None

    def flush(self) -> None:
        return None

    def health(self) -> dict[str, Any]:
        return {}

    def close(self, *, seal: bool = True) -> None:
        return None
