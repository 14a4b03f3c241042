"""The state of all virtual hosts as records, and as one hash: equal copies have equal hashes (invariants 13,
14)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from broker.model.binding import marks_of
from broker.model.directory import SCOPE
from broker.model.record_codec import encode_record
from broker.model.records import ConsumerSeen, Record
from broker.model.values import Scope

if TYPE_CHECKING:
    from broker.model.vhosts import VirtualHosts


def definitions_of(vhosts: VirtualHosts, scope: Scope | None) -> list[Record]:
    """Entries of the directory (which make the virtual hosts), exchanges, queues, ConsumerSeen, bindings, in
    this order. `/` and built-in exchanges go without saying."""

    def seen(its: Scope) -> bool:
        return scope is None or bool(its & scope)

    queues = [q for q in vhosts.queues_by_uuid.values() if seen(q.scope)]
    found: list[Record] = []
    if seen(SCOPE):
        found += vhosts.directory.entries()
    for vhost in vhosts:
        found += [x.declaration() for x in vhost.exchanges.values() if not x.built_in and seen(x.scope)]
    found += [q.declaration() for q in queues]
    found += [ConsumerSeen(q.uuid, q.scope) for q in queues if q.auto_delete and q.consumer_seen]
    for vhost in vhosts:
        for exchange in vhost.exchanges.values():
            bindings = [b.bind_record() for b in exchange.bindings.values() if seen(b.scope)]
            found += bindings
            if exchange.auto_delete and exchange.bound and not bindings and seen(exchange.scope):
                found += marks_of(exchange)
    return found


def fingerprint_of(vhosts: VirtualHosts, scope: Scope | None) -> str:
    """SHA-256 over the definitions, whatever their order, and the ids of all messages held."""
    parts = sorted(encode_record(record) for record in definitions_of(vhosts, scope))
    for uuid, queue in sorted(vhosts.queues_by_uuid.items()):
        if scope is None or queue.content_scope & scope:
            held = [(epoch, ids.ranges()) for epoch, ids in sorted(queue.snapshot().items())]
            parts.append(uuid + repr(held).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
