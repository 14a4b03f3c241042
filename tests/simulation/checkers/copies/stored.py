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
    """At a quiet point. Transient messages may be there from when a primary was alone."""
    if machine.store is None or machine.running.vhosts.history.waiting:
        return
    if machine.running.vhosts.transient_kept:
        raise Violation(19, f"{machine.name} keeps transient messages, and is not alone")
    may = machine.running.settings.last_man == "persist"
    live = _live(machine)
    _demand(machine, _held(machine, transient=False) - live, "does not count")
    _demand(machine, live - _held(machine, transient=may), "counts")


def check_kept_19(machine: Machine) -> None:
    """After the tick in which it began to say that all transient messages are on its disk."""
    if machine.store is not None:
        _demand(machine, _held(machine, transient=True) - _live(machine), "does not count")


def _held(machine: Machine, *, transient: bool) -> Ids:
    """What is persistent in stored queues, and what is transient in those that are replicated, too."""
    return {
        (queue.name, envelope.epoch, sequence)
        for queue in queues_of(machine).values()
        if queue.scope & Scope.STORE
        for sequence, envelope, _ in queue.held_entries()
        if envelope.persistent or (transient and queue.content_scope & Scope.LINK)
    }


def _live(machine: Machine) -> Ids:
    names = {queue.uuid: queue.name for queue in queues_of(machine).values()}
    assert machine.store is not None
    return {
        (names.get(uuid, uuid.hex()), epoch, sequence)
        for uuid, epoch, first, last, _ in machine.store.index.ranges()
        for sequence in range(first, last + 1)
    }


def _demand(machine: Machine, wrong: Ids, what: str) -> None:
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
