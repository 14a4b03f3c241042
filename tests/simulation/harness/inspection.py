"""Looking into a node from outside its logic: what its model holds, what its disk has for good."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from broker.model.history.records import (
    Bind,
    EntryPut,
    Envelope,
    ExchangeDeclare,
    QueueDeclare,
    Record,
)
from broker.model.queue.queue import Queue
from broker.model.values import Scope
from broker.model.vhost.vhost import VirtualHost
from tests.simulation.clients import wire
from tests.simulation.harness.machines.machine import Machine
from tests.simulation.harness.machines.virtual_disk import Inode, VirtualDisk

HELD = tuple[int, int, bytes]
"""Epoch, sequence, raw frames of one message."""
Who = tuple[str, int]
"""Node id and incarnation: one life of one node."""
Ids = dict[int, list[tuple[int, int]]]
"""By epoch: ranges of sequences, first and last."""


def vhost_of(machine: Machine) -> VirtualHost:
    return machine.running.broker.vhosts["/"]


def queues_of(machine: Machine) -> dict[str, Queue]:
    """All queues of all virtual hosts: in the simulation no two have one name."""
    return {name: queue for vhost in machine.running.vhosts for name, queue in vhost.queues.items()}


def queue_of(machine: Machine, name: str) -> Queue | None:
    return next((vhost.queues[name] for vhost in machine.running.vhosts if name in vhost.queues), None)


def identity(machine: Machine) -> Who:
    """Of the process that runs there."""
    me = machine.running.me
    return me.node_id, me.incarnation


def held(machine: Machine, queue: str) -> list[HELD]:
    """All messages of a queue, unacknowledged ones too, in the order of their ids."""
    found = queue_of(machine, queue)
    return [] if found is None else entries(found)


def entries(queue: Queue) -> list[HELD]:
    return [(env.epoch, seq, bytes(raw)) for seq, env, raw in queue.held_entries()]


def ids(queue: Queue) -> Ids:
    """The ids of all that a queue holds."""
    return {epoch: list(found.ranges()) for epoch, found in queue.snapshot().items()}


def astray(machine: Machine) -> bool:
    """Does its copy still hold what a dequeue that it has lost was of?"""
    lost = machine.astray
    queue = machine.running.vhosts.queues_by_uuid.get(lost.queue) if lost is not None else None
    if lost is None or queue is None:
        return False
    held = ids(queue).get(lost.epoch, [])
    return any(a <= last and first <= b for a, b in held for first, last in lost.ranges)


def key_of(raw: bytes) -> str:
    """The `<key>` at the start of the body, which is behind a header frame and the head of a body frame; or
    that it is no message of the workload's.
    """
    start = 8 + int.from_bytes(raw[3:7], "big") + 7 + 1
    if raw[start - 1 : start] != b"<":
        return "an event"
    return bytes(raw[start : raw.index(b">", start)]).decode()


def content_of(raw: bytes) -> tuple[dict[str, Any], bool, bytes]:
    """Its headers, whether it has an expiration, and its body, whatever the frames that this comes in."""
    at, body = 7 + int.from_bytes(raw[3:7], "big") + 1, b""
    while at < len(raw):
        size = int.from_bytes(raw[at + 3 : at + 7], "big")
        body += raw[at + 7 : at + 7 + size]
        at += 7 + size + 1
    flags = int.from_bytes(raw[19:21], "big")
    headers = wire.read_table(raw, 21) if flags & 0x2000 else {}
    return headers, bool(flags & 0x0100), bytes(body)


def definitions(machine: Machine) -> list[str]:
    """Every replicated object, as text. Of arguments the order does not count."""
    return sorted(repr(_ordered(record)) for record in vhost_of(machine).shared.definitions(Scope.LINK))


def ends(machine: Machine) -> dict[tuple[str, bool, int], str]:
    """How far each replicated queue's history went: by UUID, whether it is deleted, and epoch, the last id,
    and which before that a forced promotion has lost."""
    return {
        (record.queue.hex(), record.deleted, epoch): f"{record.queue.hex()}"
        f"{', deleted' if record.deleted else ''}: to {end.last} of epoch {epoch}"
        f"{f', but for {list(end.lacking)}' if end.lacking else ''}"
        for record in vhost_of(machine).shared.ends(Scope.LINK) for epoch, end in record.ends.items()
    }  # fmt: skip


def _ordered(record: Record) -> Record:
    if isinstance(record, QueueDeclare | ExchangeDeclare | Bind):
        return replace(record, arguments=dict(sorted(record.arguments.items())))
    if isinstance(record, EntryPut):
        return replace(record, value=dict(sorted(record.value.items())))
    return record


class Message(NamedTuple):
    """All that one copy of a queue must know of a message as another does: what is delivered, to whom in
    which frames, in which order, and until when. Not whether it was delivered before: who is promoted takes
    that of everything."""

    epoch: int
    sequence: int
    raw: bytes
    exchange: str
    routing_key: str
    persistent: bool
    wall_ms: int
    expiration: int | None
    priority: int
    channel: int
    largest_frame: int


def _message(sequence: int, env: Envelope, raw: bytes) -> Message:
    return Message(
        env.epoch, sequence, raw, env.exchange, env.routing_key, env.persistent, env.wall_ms, env.expiration,
        env.priority, env.channel, env.largest_frame,
    )  # fmt: skip


def replicated(machine: Machine) -> dict[tuple[str, str], list[Message]]:
    """What each replicated queue holds, by name and UUID."""
    return {
        (name, queue.uuid.hex()): [_message(seq, env, bytes(raw)) for seq, env, raw in queue.held_entries()]
        for name, queue in sorted(queues_of(machine).items())
        if queue.scope & Scope.LINK
    }


def medium(disk: VirtualDisk) -> dict[str, bytes]:
    """What would be read from each file after a power cut that spares nothing unsynced."""
    return {path: bytes(inode.synced) for path, inode in disk._kept.items()}


def keeps_transient(machine: Machine) -> bool:
    """Does it say that transient messages of replicated, durable queues are on its disk?"""
    return machine.node is not None and machine.running.last_man.kept_since is not None


@dataclass(slots=True, frozen=True)
class RecordOnDisk:
    """An in-sync record as a disk, or the register, has it."""

    epoch: int
    revision: int
    owner: Who
    in_sync: frozenset[Who]
    incomplete: bool = False
    """The node that keeps it was changing its copy."""
    confirm: str = "all-disks"
    """The weakest level by which anything is confirmed."""

    @property
    def version(self) -> tuple[int, int]:
        return self.epoch, self.revision

    @property
    def everybody(self) -> frozenset[Who]:
        return self.in_sync | {self.owner}


def record_of(body: dict[str, Any]) -> RecordOnDisk:
    owner = body["owner"]
    return RecordOnDisk(
        int(body["epoch"]), int(body["revision"]), (str(owner[0]), int(owner[1])),
        frozenset((str(n), int(i)) for n, i in body["in_sync"]), bool(body.get("incomplete", False)),
        str(body.get("confirm", "all-disks")),
    )  # fmt: skip


class RecordFile:
    """The in-sync record that a machine's disk has for good. Parsed again only when another file is there."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.path = f"/{machine.name}/insync.json"
        self._inode: Inode | None = None
        self.record: RecordOnDisk | None = None

    def changed(self) -> bool:
        """Read it; is another one there than at the last call?"""
        inode = self._machine.disk._kept.get(self.path)
        if inode is self._inode:
            return False
        self._inode = inode
        self.record = _read_record(bytes(inode.synced)) if inode is not None else None
        return True


def _read_record(raw: bytes) -> RecordOnDisk | None:
    """None for a file that is empty, or rotten."""
    try:
        document = json.loads(raw)
        body = document["body"]
        sum_of_body = f"{zlib.crc32(json.dumps(body, sort_keys=True).encode()):08x}"
        return record_of(body) if document["checksum"] == sum_of_body else None
    except (ValueError, KeyError, TypeError):
        return None


def record_on_disk(machine: Machine) -> RecordOnDisk | None:
    file = RecordFile(machine)
    file.changed()
    return file.record
