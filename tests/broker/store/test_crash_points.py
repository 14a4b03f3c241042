"""A crash between or during any file operations on a node's own files never lets a number be used twice.

Invariant 9, as far as one node's disk must hold it. For the store's files see `test_space`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from broker.store.node_files import NodeFiles
from tests.simulation.harness.machines.virtual_disk import Crash, VirtualDisk

Loss = Callable[[VirtualDisk, int], None]

LOSSES: dict[str, Loss] = {
    "process killed": lambda disk, seed: disk.kill(),
    "power lost, unsynced gone": lambda disk, seed: disk.power_loss(),
    "power lost, unsynced in part": lambda disk, seed: disk.power_loss(Random(seed)),
    "now the one, now the other": lambda disk, seed: disk.power_loss() if seed % 2 else disk.kill(),
}
SEEDS = 6


def start_node(disk: VirtualDisk, lives: list[int], epochs: list[int]) -> None:
    """One process life of a node that founds or keeps its cluster and promotes itself once."""
    node = NodeFiles.open(disk, "/data", "n", new_id=lambda: "ab" * 16)
    assert node.identity.incarnation > max(lives, default=0)
    assert node.epoch >= max(epochs, default=0)
    lives.append(node.identity.incarnation)
    node.set_cluster("c" * 32)
    node.raise_epoch(node.epoch + 1)
    assert node.epoch not in epochs
    epochs.append(node.epoch)
    node.record.save({"epoch": node.epoch})
    assert node.record.load() == {"epoch": node.epoch}
    node.close()


@pytest.mark.parametrize("loss", LOSSES)
def test_no_incarnation_or_epoch_is_ever_used_twice(loss: str) -> None:
    calm = VirtualDisk()
    start_node(calm, [], [])
    for crash_at in range(calm.operations + 1):
        for seed in range(SEEDS if "part" in loss or "now" in loss else 1):
            disk = VirtualDisk()
            lives: list[int] = []
            epochs: list[int] = []
            for life in range(3):
                disk.crash_at = disk.operations + (crash_at + 3 * life) % (calm.operations + 1)
                disk.crash_random = Random(seed) if seed % 2 else None
                try:
                    start_node(disk, lives, epochs)
                except Crash:
                    pass
                LOSSES[loss](disk, seed + life)
            start_node(disk, lives, epochs)
