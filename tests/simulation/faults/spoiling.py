"""An event that a follower's copy of a queue cannot take, as after a bug, or a flipped bit in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.model.history.records import Dequeue, EnqueueRun, Record
from broker.model.vhost.vhosts import VirtualHosts
from tests.simulation.harness.coverage.replacing import as_it_is, replace_on


class Spoilt(Exception):
    """The model would raise something like this."""


def spoil(
    vhosts: VirtualHosts, kind: type[EnqueueRun | Dequeue], *queues: bytes, silent: bool = False,
    told: Callable[[Any], object] = bool,
) -> Callable[[], object]:  # fmt: skip
    """The next record of that kind (for one of these queues) is not applied, with an error, or silently;
    unless what this gives is called before."""

    def wanted(record: EnqueueRun | Dequeue) -> bool:
        return not queues or any(queue in queues for queue in queues_of(record))

    plain = as_it_is(VirtualHosts, "apply")
    armed = [True]

    def apply(record: Record) -> None:
        if not armed or not isinstance(record, kind) or not wanted(record):
            plain(vhosts, record)
            return
        disarm()
        told(record)
        if not silent:
            raise Spoilt("this one is spoilt")

    def disarm() -> None:
        if armed:
            armed.clear()
            replace_on(vhosts, "apply", None)

    replace_on(vhosts, "apply", apply)
    return disarm


def queues_of(record: EnqueueRun | Dequeue) -> list[bytes]:
    return record.queues if isinstance(record, EnqueueRun) else [record.queue]
