"""ToldDefinitions: the definitions that a primary has sent on this link so far, and which definitions here
are stale.

Owner: ReplicaVhost. Makes no calls; reads the virtual hosts. Each part of the definitions is applied when it
comes. What the primary does not have is known when the last part has come.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.model.history.records import (
    Bind,
    EntryDelete,
    EntryPut,
    ExchangeDeclare,
    ExchangeDelete,
    QueueDeclare,
    QueueEnds,
    Record,
    Unbind,
)
from broker.model.routing.exchange import BindingKey, key_of
from broker.model.values import ROOT, Scope
from broker.model.vhost.directory import VHOST
from broker.model.vhost.vhosts import VirtualHosts
from understudy.shared.codes import Coded


class ToldDefinitions:
    """`names` and `exchanges` are pairs of virtual host and name."""

    def __init__(self) -> None:
        self.queues: set[bytes] = set()
        self.names: set[tuple[str, str]] = set()
        self.exchanges: set[tuple[str, str]] = set()
        self.entries: set[tuple[str, str, str]] = set()
        self.deleted_queues: dict[bytes, QueueEnds] = {}
        """Of queues that its history has deleted."""
        self.dropped: list[Coded] = []
        """On queues that are dropped here."""
        self.unwritten: list[Record] = []
        """What was applied of the part that came last, and is to go to the store."""
        self.deferred: list[Record] = []
        """Users, permissions and policies, for the end: an operator may have changed two of them at once, and
        no node that is promoted in between may have half of that."""
        self._bindings: set[tuple[str, str, BindingKey]] = set()

    def defers(self, record: Record) -> bool:
        """Must it wait for the last part?"""
        if not isinstance(record, EntryPut) or record.kind == VHOST:
            return False
        self.deferred.append(record)
        return True

    def note(self, record: Record) -> None:
        """The primary has this."""
        match record:
            case QueueDeclare():
                self.queues.add(record.uuid)
                self.names.add((record.vhost, record.name))
            case Bind():
                self._bindings.add((record.vhost, record.source, key_of(record)))
            case Unbind():
                self._bindings.discard((record.vhost, record.source, key_of(record)))
            case QueueEnds(deleted=True):
                self.deleted_queues[record.queue] = record
            case ExchangeDeclare():
                self.exchanges.add((record.vhost, record.name))
            case EntryPut():
                self.entries.add((record.kind, record.vhost, record.name))

    def lacks_vhost(self, name: str) -> bool:
        return name != ROOT and (VHOST, "", name) not in self.entries

    def unbound(self, vhosts: VirtualHosts) -> Iterator[Unbind]:
        """Bindings that the primary lacks: replicated ones, and those of its exchanges to its queues."""
        for vhost in vhosts:
            for exchange in vhost.exchanges.values():
                for binding in exchange.bindings.values():
                    if (vhost.name, exchange.name, binding.key) in self._bindings:
                        continue
                    both = exchange.scope & Scope.LINK and binding.queue_uuid in self.queues
                    if binding.scope & Scope.LINK or both:
                        yield binding.unbind_record()

    def others(self, vhosts: VirtualHosts) -> Iterator[Record]:
        """Deletions of exchanges and directory entries that it does not have, and of ends that its history
        does not know."""
        for vhost in vhosts:
            for exchange in vhost.exchanges.values():
                known = exchange.built_in or (vhost.name, exchange.name) in self.exchanges
                if not known and exchange.scope & Scope.LINK:
                    yield ExchangeDelete(exchange.name, exchange.scope, vhost.name)
        for entry in vhosts.directory.entries():
            if (entry.kind, entry.vhost, entry.name) not in self.entries:
                yield EntryDelete(entry.kind, entry.vhost, entry.name, entry.scope)
        for uuid, _ in vhosts.deleted_queues:
            if uuid not in self.deleted_queues:
                yield QueueEnds(uuid, {}, True, Scope.STORE)
