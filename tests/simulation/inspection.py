"""Looking into a node from outside its logic: what its model holds, what its disk has for good."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from broker.model.values import Scope
from broker.model.vhost import VirtualHost
from tests.simulation.machine import Machine
from tests.simulation.virtual_disk import VirtualDisk

HELD = tuple[int, int, bytes]
"""Epoch, sequence, raw frames of one message."""


def vhost_of(machine: Machine) -> VirtualHost:
    return machine.running.broker.vhosts["/"]


def held(machine: Machine, queue: str) -> list[HELD]:
    """All messages of a queue, unacknowledged ones too, in the order of their ids."""
    found = vhost_of(machine).queues.get(queue)
    return [] if found is None else [(env.epoch, seq, raw) for seq, env, raw in found.held_entries()]


def key_of(raw: bytes) -> str:
    """The `<key>` at the start of the body, which is behind a header frame and the head of a body frame."""
    start = 8 + int.from_bytes(raw[3:7], "big") + 7 + 1
    return bytes(raw[start : raw.index(b">", start)]).decode()


def state(machine: Machine) -> dict[str, list[str]]:
    """Every replicated object and message, as text, for comparison with another copy."""
    vhost = vhost_of(machine)
    found = {"definitions": sorted(repr(record) for record in vhost.definitions(Scope.LINK))}
    for name, queue in sorted(vhost.queues.items()):
        if queue.scope & Scope.LINK:
            found[f"queue {name} {queue.uuid.hex()}"] = [
                f"{epoch}-{sequence} {key_of(raw)} {len(raw)}" for epoch, sequence, raw in held(machine, name)
            ]
    return found


def medium(disk: VirtualDisk) -> dict[str, bytes]:
    """What would be read from each file after a power cut that spares nothing unsynced."""
    return {path: bytes(inode.synced) for path, inode in disk._kept.items()}


@dataclass(slots=True, frozen=True)
class RecordOnDisk:
    """The in-sync record as the primary's disk has it: (node id, incarnation) pairs."""

    epoch: int
    owner: tuple[str, int]
    in_sync: frozenset[tuple[str, int]]


def record_on_disk(machine: Machine) -> RecordOnDisk | None:
    raw = medium(machine.disk).get(f"/{machine.name}/insync.json")
    if not raw:
        return None
    body: dict[str, Any] = json.loads(raw)["body"]
    owner = body["owner"]
    return RecordOnDisk(
        int(body["epoch"]),
        (str(owner[0]), int(owner[1])),
        frozenset((str(n), int(i)) for n, i in body["in_sync"]),
    )
