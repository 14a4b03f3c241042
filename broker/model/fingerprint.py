"""The state of a virtual host as records, and as one hash: equal copies have equal hashes (invariants 13,
14)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from broker.model.directory import SCOPE
from broker.model.record_codec import encode_record
from broker.model.records import ConsumerSeen, Record
from broker.model.values import Scope

if TYPE_CHECKING:
    from broker.model.topology import Topology


def definitions_of(topology: Topology, scope: Scope | None) -> list[Record]:
    """Exchanges, queues, ConsumerSeen, entries of the directory, bindings, in this order. Built-in exchanges
    go without saying."""

    def seen(its: Scope) -> bool:
        return scope is None or bool(its & scope)

    exchanges = [x for x in topology.exchanges.values() if not x.built_in and seen(x.scope)]
    queues = [q for q in topology.queues.values() if seen(q.scope)]
    found: list[Record] = [x.declaration() for x in exchanges]
    found += [q.declaration() for q in queues]
    found += [ConsumerSeen(q.uuid, q.scope) for q in queues if q.auto_delete and q.consumer_seen]
    if seen(SCOPE):
        found += topology.directory.entries()
    for exchange in topology.exchanges.values():
        found += [b.bind_record() for b in exchange.bindings.values() if seen(b.scope)]
    return found


def fingerprint_of(topology: Topology, scope: Scope | None) -> str:
    """SHA-256 over the definitions, whatever their order, and the ids of all messages held."""
    parts = sorted(encode_record(record) for record in definitions_of(topology, scope))
    for uuid, queue in sorted(topology.queues_by_uuid.items()):
        if scope is None or queue.content_scope & scope:
            held = [(epoch, ids.ranges()) for epoch, ids in sorted(queue.snapshot().items())]
            parts.append(uuid + repr(held).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
