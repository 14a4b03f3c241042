"""Does a copy hold a message, in memory and on disk? Learns as copies grow, and reads nothing twice.

What is remembered is only where to look; each question is answered by looking there now. A message that is
not where it was is searched for everywhere before it is called missing.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

from broker.model.history.records import RawRun
from broker.model.queue.message_run import PagedOut
from broker.model.queue.queue import Mode, Queue
from broker.model.queue.replica import ReplicaContents
from tests.simulation.harness.inspection import entries, key_of, queue_of
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.machines.virtual_disk import VirtualDisk

KEY = re.compile(rb"<([a-z][a-z0-9-]*:[0-9]+)>")
LONGEST = 40
"""No key is longer."""


class Holdings:
    """Of one machine, through its lives."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._disk = KeysOnDisk(machine.disk)
        self._life = 0
        self._queues: dict[bytes, QueueIndex] = {}

    @property
    def disk(self) -> KeysOnDisk:
        """Of the disk that the machine has now: a rotten one may have been replaced."""
        if self._disk.disk is not self.machine.disk:
            self._disk = KeysOnDisk(self.machine.disk)
        return self._disk

    def ids_of(self, queue: str, key: str) -> list[tuple[int, int]]:
        """(epoch, sequence) of what `in_memory` has found; of a message that is there now."""
        found = queue_of(self.machine, queue)
        known = self._queues.get(found.uuid) if found is not None else None
        return list(known.ids_of(key)) if known is not None else []

    def in_memory(self, queue: str, key: str) -> bool:
        if self._life != self.machine.life:
            self._life, self._queues = self.machine.life, {}
        found = queue_of(self.machine, queue)
        if found is None:
            return False
        index = self._queues.get(found.uuid)
        if index is None:
            index = self._queues[found.uuid] = QueueIndex()
        if index.holds(found, key):
            return True
        # While a queue is fetched again, the copy that is not trusted is kept aside.
        aside = self.machine.running.replica._aside.get(found.uuid)
        return aside is not None and any(key_of(raw) == key for _, _, raw in aside.entries())


class QueueIndex:
    """Where in one queue each key was seen: its ids. A resend in doubt has several."""

    def __init__(self) -> None:
        self._ids: dict[str, list[tuple[int, int]]] = {}
        self._top: dict[int, int] = {}

    def holds(self, queue: Queue, key: str) -> bool:
        if self._there(queue, key):
            return True
        self._learn(queue)
        if self._there(queue, key):
            return True
        return any(key_of(raw) == key for _, _, raw in entries(queue))

    def ids_of(self, key: str) -> list[tuple[int, int]]:
        return self._ids.get(key, [])

    def _there(self, queue: Queue, key: str) -> bool:
        look = _in_replica if queue.mode is Mode.REPLICA else _in_active
        return any(look(queue, epoch, sequence) for epoch, sequence in self._ids.get(key, ()))

    def _note(self, epoch: int, sequence: int, key: str) -> None:
        known = self._ids.setdefault(key, [])
        if (epoch, sequence) not in known:
            known.append((epoch, sequence))

    def _learn(self, queue: Queue) -> None:
        """From the newest back to what is known."""
        if queue.mode is Mode.REPLICA:
            self._learn_replica(queue.replica)
            return
        epoch = queue.ids.epoch
        top = newest = self._top.get(epoch, 0)
        waiting = [*queue.ready, *queue.backlog.entries()]
        for some in (reversed(waiting), reversed(queue._unacked.get(epoch, {}).values())):
            for sequence, envelope, raw in some:
                if envelope.epoch != epoch or sequence <= top:
                    break
                newest = max(newest, sequence)
                self._note(epoch, sequence, key_of(raw))
        self._top[epoch] = newest

    def _learn_replica(self, replica: ReplicaContents) -> None:
        for epoch, held in replica._epochs.items():
            top = newest = self._top.get(epoch, 0)
            for run in reversed(held.runs):
                if run.last <= top:
                    break
                newest = max(newest, run.last)
                if run.raws is not None:
                    for sequence, key in enumerate(_keys(run.raws), run.first):
                        self._note(epoch, sequence, key)
            self._top[epoch] = newest


def _keys(raws: RawRun | PagedOut | list[bytes]) -> list[str]:
    if isinstance(raws, RawRun):
        found = KEY.findall(raws.blob)
        if len(found) == len(raws.lengths):
            return [key.decode() for key in found]
    if not isinstance(raws, list):
        raws = raws.split()
    return [key_of(raw) for raw in raws]


def _in_active(queue: Queue, epoch: int, sequence: int) -> bool:
    if sequence in queue._unacked.get(epoch, ()):
        return True
    ready = queue.ready
    at = bisect_left(ready, (epoch, sequence), key=lambda entry: (entry[1].epoch, entry[0]))
    if at < len(ready):
        return ready[at][0] == sequence and ready[at][1].epoch == epoch
    return any(
        run.epoch == epoch and any(first <= sequence <= last for first, last in run.live_ranges())
        for run in queue.backlog.runs()
    )


def _in_replica(queue: Queue, epoch: int, sequence: int) -> bool:
    held = queue.replica._epochs.get(epoch)
    at = bisect_right(held.firsts, sequence) - 1 if held is not None else -1
    if held is None or at < 0:
        return False
    run = held.runs[at]
    if not run.left or not run.head <= sequence <= run.last:
        return False
    return run.gone is None or not run.gone[sequence - run.first]


class KeysOnDisk:
    """Which messages' bytes are in the store files of a disk for good."""

    def __init__(self, disk: VirtualDisk) -> None:
        self.disk = disk
        self._files: dict[str, tuple[bytearray, int, set[bytes]]] = {}

    def has(self, key: str) -> bool:
        raw = key.encode()
        if any(raw in keys for _, _, keys in self._files.values()) and self._same():
            return True
        self._read()
        return any(raw in keys for _, _, keys in self._files.values())

    def _same(self) -> bool:
        """Are the files those that were read, however they have grown?"""
        kept = self.disk._kept
        return all(
            path in kept and kept[path].synced is medium for path, (medium, _, _) in self._files.items()
        )

    def _read(self) -> None:
        kept = self.disk._kept
        for path in [path for path in self._files if path not in kept]:
            del self._files[path]
        for path, inode in kept.items():
            if "/store/" not in path:
                continue
            medium, done, keys = self._files.get(path, (inode.synced, 0, set[bytes]()))
            if medium is not inode.synced:
                medium, done, keys = inode.synced, 0, set()
            if len(medium) > done:
                keys.update(KEY.findall(medium, max(0, done - LONGEST)))
            self._files[path] = medium, len(medium), keys
