"""A pair of real broker processes for tests, on loopback: the smallest `Cluster`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pika
import pika.exceptions

from tests.failover.nodes.cluster import PATIENCE, Cluster, kinds, local_places, read_ledgers, understudy

__all__ = ["FAULTS", "PATIENCE", "Pair", "channel_of", "kinds", "read_ledgers", "understudy"]

FAULTS = (pika.exceptions.AMQPError, OSError)
"""What a plain client is told when its broker goes."""


class Pair(Cluster):
    """Nodes `left` and `right` on free ports."""

    def __init__(self, folder: Path, *settings: str) -> None:
        super().__init__(folder, local_places(("left", "right")), *settings)
        self.both = self.list

    def whole(self) -> Self:
        """Start both, promote left, and wait for the ready backup."""
        self.start("left", "right")
        answer = self.ask("left", "promote")
        assert answer["ok"], answer
        self.wait_for("right", "ready")
        return self


@contextmanager
def channel_of(pair: Pair, name: str) -> Iterator[Any]:
    """One channel of a plain client of that node."""
    address = pair.addresses[name]
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(address.host, address.port, socket_timeout=2, stack_timeout=5)
    )
    try:
        yield connection.channel()
    finally:
        with suppress(*FAULTS):
            connection.close()
