"""A pair of real broker processes for tests, on loopback: the smallest `Cluster`."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from tests.failover.cluster import PATIENCE, Cluster, kinds, local_places, read_ledgers, understudy

__all__ = ["PATIENCE", "Pair", "kinds", "read_ledgers", "understudy"]


class Pair(Cluster):
    """Nodes `left` and `right` on free ports."""

    def __init__(self, folder: Path, *settings: str) -> None:
        super().__init__(folder, local_places(("left", "right")), *settings)
        self.both = self.list

    def whole(self) -> Self:
        """Start both, promote left, and wait for the ready backup."""
        self.start("left", "right")
        code, _, err = self.command("promote", "left")
        assert code == 0, err
        self.wait_for("right", "ready")
        return self
