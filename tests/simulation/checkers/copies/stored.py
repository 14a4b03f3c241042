"""What the store counts as held is what the queues hold and a start must bring back (19): no less, or
messages are lost; no more, or they come back and their space is never given back.
"""

from __future__ import annotations

from broker.model.values import Scope
from broker.store.errors import StoreError
from broker.store.segment_log import SegmentLog
from broker.store.store import SegmentStore
from broker.store.sync import ManualSync
from tests.simulation.harness.inspection import medium, queues_of
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

Ids = set[tuple[str, int, int]]
"""Queue, epoch and sequence."""


def check_stored_19(machine: Machine) -> None:
    """At a quiet point."""
    if machine.store is None or machine.running.vhosts.history.waiting:
        return
    queues = queues_of(machine).values()
    held: Ids = set()
    for queue in queues:
        if queue.scope & Scope.STORE:
            held |= {(queue.name, e.epoch, seq) for seq, e, _ in queue.held_entries() if e.persistent}
    names = {queue.uuid: queue.name for queue in queues}
    live: Ids = set()
    for uuid, epoch, first, last, _ in machine.store.index.ranges():
        live |= {(names.get(uuid, uuid.hex()), epoch, seq) for seq in range(first, last + 1)}
    for wrong, what in ((held - live, "does not count"), (live - held, "counts")):
        if wrong:
            name, epoch, sequence = min(wrong)
            raise Violation(
                19, f"the store of {machine.name} {what} {epoch}-{sequence} of {name}, among {len(wrong)}"
            )


def live_on_disk(machine: Machine, queue: bytes) -> set[tuple[int, int]]:
    """Epoch and sequence of what a start would bring back of a queue, with what the disk has for good now;
    nothing if it does not read."""
    disk, directory = VirtualDisk(), f"/{machine.name}/store"
    for path, data in medium(machine.disk).items():
        if path.startswith(directory):
            disk.place(path, data)
    store = SegmentStore(SegmentLog(disk, directory), ManualSync())
    try:
        for _ in store.recover():
            pass
    except (StoreError, FileNotFoundError):
        return set()
    return {
        (epoch, sequence)
        for uuid, epoch, first, last, _ in store.index.ranges()
        if uuid == queue
        for sequence in range(first, last + 1)
    }
