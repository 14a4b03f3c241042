"""A crash between any two file operations, and in the middle of any: nothing that was durable is ever lost.

A scenario runs on a virtual disk until the machine ends at operation k, for every k; then the node starts
again, is checked, and goes on until a second crash. Invariants 2, 9 and 19 as far as one node's disk has to
hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from broker.model.values import ORIGIN, Position
from broker.store.node_files import NodeFiles
from broker.store.segment_log import StoredBatch
from tests.broker.store.batches import batch, open_store, payload, recovered, stored
from tests.simulation.virtual_disk import Crash, VirtualDisk

Loss = Callable[[VirtualDisk, int], None]

LOSSES: dict[str, Loss] = {
    "process killed": lambda disk, seed: disk.kill(),
    "power lost, unsynced gone": lambda disk, seed: disk.power_loss(),
    "power lost, unsynced in part": lambda disk, seed: disk.power_loss(Random(seed)),
    "now the one, now the other": lambda disk, seed: disk.power_loss() if seed % 2 else disk.kill(),
}
SEEDS = 6


class History:
    """What the scenario has done so far, by the scenario's own account."""

    def __init__(self) -> None:
        self.appended = 0
        self.durable = ORIGIN

    def check(self, found: list[StoredBatch]) -> None:
        """A prefix of what was appended, as long as what was durable at least; the next life goes on from
        it."""
        assert found == [stored(n) for n in range(1, len(found) + 1)]
        assert self.durable.n <= len(found) <= self.appended
        self.appended = len(found)
        self.durable = Position(1, len(found)) if found else ORIGIN


def live(disk: VirtualDisk, history: History, *, compact: bool) -> None:
    """One process life: recover, perhaps compact, append ten batches in groups, two groups in a segment."""
    store, driver, found = open_store(disk, segment_bytes=150, compact=compact)
    history.check(found)
    first = history.appended + 1
    for n in range(first, first + 10):
        history.appended = n
        store.append(*batch(n))
        if n % 3 == 0:
            driver.write()
            history.durable = store.durable
            driver.sync()
            history.durable = store.durable
    store.close()
    history.durable = store.durable
    assert history.durable == Position(1, first + 9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("compact", [False, True])
def test_a_crash_at_any_file_operation_loses_nothing_durable(loss: str, compact: bool) -> None:
    calm = VirtualDisk()
    live(calm, History(), compact=compact)
    for first in range(calm.operations + 1):
        for seed in range(SEEDS if "part" in loss or "now" in loss else 1):
            disk, history, random = VirtualDisk(), History(), Random(first * 100 + seed)
            for crash_at in (first, random.randrange(5, 40)):
                disk.crash_at = disk.operations + crash_at
                disk.crash_random = random if seed % 2 else None
                try:
                    live(disk, history, compact=compact)
                except Crash:
                    pass
                LOSSES[loss](disk, random.randrange(10**9))
            live(disk, history, compact=compact)


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


def test_a_crash_in_the_middle_of_compaction_leaves_the_old_or_the_new() -> None:
    def compact(disk: VirtualDisk) -> None:
        log, _ = recovered(disk)
        log.rewrite([(Position(1, 3), payload(99))])

    def prepared() -> VirtualDisk:
        disk = VirtualDisk()
        store, driver, _ = open_store(disk, segment_bytes=60)
        for n in (1, 2, 3):
            store.append(*batch(n))
            driver.run()
        disk.kill()
        return disk

    calm = prepared()
    before = calm.operations
    compact(calm)
    outcomes = set()
    for crash_at in range(before, calm.operations):
        for seed in range(8):
            disk = prepared()
            disk.crash_at = crash_at
            with pytest.raises(Crash):
                compact(disk)
            disk.power_loss(Random(seed) if seed else None)
            _, _, found = open_store(disk)
            new = [StoredBatch(Position(1, 3), b"".join(payload(99)))]
            assert found in ([stored(n) for n in (1, 2, 3)], new)
            outcomes.add(found == new)
    assert outcomes == {True, False}
