"""An event that a follower's copy of a queue cannot take, as after a bug, or a flipped bit in memory."""

from __future__ import annotations

from collections.abc import Callable

from broker.model.records import Dequeue, EnqueueRun, Record
from broker.model.vhosts import VirtualHosts
from tests.simulation.replacing import as_it_is, replace_on


class Spoilt(Exception):
    """The model would raise something like this."""


def spoil(
    vhosts: VirtualHosts, kind: type[EnqueueRun | Dequeue], queue: bytes = b"", *, silent: bool = False,
    told: Callable[[], object] = bool,
) -> None:  # fmt: skip
    """The next record of that kind (for that queue) is not applied, with an error, or silently."""
    plain = as_it_is(VirtualHosts, "apply")
    armed = [True]

    def apply(record: Record) -> None:
        if not armed or not isinstance(record, kind) or (queue and queue not in queues_of(record)):
            plain(vhosts, record)
            return
        armed.clear()
        replace_on(vhosts, "apply", None)
        told()
        if not silent:
            raise Spoilt("this one is spoilt")

    replace_on(vhosts, "apply", apply)


def queues_of(record: EnqueueRun | Dequeue) -> list[bytes]:
    return record.queues if isinstance(record, EnqueueRun) else [record.queue]
