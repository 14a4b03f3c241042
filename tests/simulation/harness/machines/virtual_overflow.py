"""An overflow that is always asked to take everything, and forgets with its process."""

from __future__ import annotations

from broker.store.errors import StoreUnusable


class VirtualOverflow:
    """See `broker.model.queue.message_run.Overflow`."""

    failed: str | None = None
    behind = False

    def __init__(self) -> None:
        self.blocks: dict[int, bytes] = {}
        self.number = self.reads = 0
        self.broken = False

    def wanted(self) -> int:
        return 1 << 40

    def put(self, data: bytes) -> int:
        self.number += 1
        self.blocks[self.number] = data
        return self.number

    def get(self, number: int) -> bytes:
        if self.broken:
            raise StoreUnusable("the disk is gone")
        self.reads += 1
        return self.blocks[number]

    def drop(self, number: int) -> None:
        del self.blocks[number]

    def ahead(self, number: int) -> None:
        assert number in self.blocks

    def flush(self) -> None:
        """It is all there."""
