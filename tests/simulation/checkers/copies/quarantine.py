"""What is in quarantine is what its node held (15): who reads it, or publishes it again, has nothing else."""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterator
from typing import Any

from broker.model.values import Scope
from tests.simulation.harness.inspection import content_of, key_of, medium, queues_of
from tests.simulation.harness.journal import Violation
from tests.simulation.harness.machines.machine import Machine

Id = tuple[bytes, int, int]
"""Queue, epoch, sequence."""


def exports(machine: Machine) -> Iterator[tuple[Id, dict[str, Any], str]]:
    """What its disk has in quarantine for good, each message whole, and the file that it is in."""
    for path, data in medium(machine.disk).items():
        if "/quarantine/" in path:
            for line in data.splitlines():
                try:
                    entry = json.loads(line)
                    queue, epoch, sequence = entry["queue"], int(entry["epoch"]), int(entry["sequence"])
                    one, body = (bytes.fromhex(queue), epoch, sequence), entry["body"]
                except (ValueError, KeyError):
                    continue  # torn, so that its node ended before it dropped anything; or rotten since
                if not body.startswith(("<", "{")):
                    raise Violation(15, f"{path} has a message without its body")
                yield one, entry, path


def quarantined(machine: Machine) -> set[Id]:
    """The ids of all that."""
    return {one for one, _, _ in exports(machine)}


class Contents15and25:
    """15: a message in quarantine is the one that was held under its id, with its body, its frames, its
    route, and the time at which it was enqueued; and it says which queue it was in.
    25: nor does a node hold another message under an id than was ever held under that, on any node: what rots
    on a disk ends its node, or goes.
    """

    def __init__(self) -> None:
        self.checked = 0
        self._held: dict[Id, dict[str, Any]] = {}
        """What would be exported of each; an id is given once."""

    def note(self, machine: Machine) -> None:
        """It begins, ends, or looks for a primary: what it holds now may be exported, or rot."""
        for name, queue in queues_of(machine).items():
            if queue.scope & Scope.LINK:
                for sequence, envelope, raw in queue.held_entries():
                    found = {
                        "name": name, "exchange": envelope.exchange, "routing_key": envelope.routing_key,
                        "persistent": envelope.persistent, "enqueued_ms": envelope.wall_ms,
                        "frames": bytes(raw),
                    }  # fmt: skip
                    known = self._held.setdefault((queue.uuid, envelope.epoch, sequence), found)
                    if known != found:
                        raise Violation(
                            25, f"{machine.name} holds {envelope.epoch}-{sequence} of {name}, and it is not "
                            f"the {key_of(known['frames'])} that was held under that id",
                        )  # fmt: skip

    def look(self, machine: Machine) -> None:
        """It has caught up."""
        for one, entry, path in exports(machine):
            held = self._held.get(one)
            if held is None or path in machine.disk.damaged:
                continue
            self.checked += 1
            wanted = {"body": content_of(held["frames"])[2].decode("utf-8", "replace")} | held
            found = entry | {"frames": binascii.a2b_base64(entry["frames"])}
            for part in wanted:
                if found.get(part) != wanted[part]:
                    raise Violation(
                        15, f"{path} has, of {key_of(held['frames'])}, which was {one[1]}-{one[2]} of "
                        f"{held['name']}, another {part} than was held",
                    )  # fmt: skip
