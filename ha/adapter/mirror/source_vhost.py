"""SourceVhost: the virtual hosts of a serving node as the source of queue mirrors. Owner: Node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.errors import AccessRefused
from broker.model.history.record_codec import encode_record
from broker.model.history.records import Dequeue, Entry, MessageId, Piece
from broker.model.queue.cut import held_after
from broker.model.queue.message_run import group_runs
from broker.model.queue.origin import origin_of
from ha.core.mirror.ports import Found, SourceStanding

if TYPE_CHECKING:
    from broker.engine import Broker
    from broker.model.vhost.vhost import VirtualHost
    from broker.model.vhost.vhosts import VirtualHosts
    from ha.adapter.ha_hooks import HaHooks
    from ha.core.ha_broker import HaBroker
    from ha.core.role import OwnIdentity


class SourceNode(Protocol):
    """The node, as far as other brokers may know it. `now`: the time of this tick."""

    broker: Broker
    core: HaBroker
    hooks: HaHooks
    me: OwnIdentity
    now: float
    vhost: VirtualHost
    vhosts: VirtualHosts


class SourceVhost:
    """See `ha.core.mirror.ports.SourceModel`."""

    def __init__(self, node: SourceNode) -> None:
        self._node = node
        self._vhost, self._vhosts = node.vhost, node.vhosts
        self._ledger_wanted = node.vhost.history.ledger_wanted

    def standing(self) -> SourceStanding:
        core, me = self._node.core, self._node.me
        refusal = ""
        if not self._vhost.serving:
            primary = core.known_primary()
            refusal = f"it does not serve ({core.status.value})" + (f"; {primary} does" if primary else "")
        elif core.output_fenced:
            refusal = "it cannot prove to be the primary"
        record = core.record
        members = {me.node_id}
        if record is not None:
            members |= {record.owner.node_id, *(who.node_id for who in record.in_sync), *record.names}
        wall_ms = self._node.broker.wall_at(self._node.now)
        return SourceStanding(
            me.node_id, me.name, core.epoch, core.cluster_id or "", frozenset(members), refusal, wall_ms
        )

    def find(self, peer: int, name: str) -> Found | None:
        follower = self._node.hooks.peers.get(peer)
        if follower is None:
            return None
        try:
            follower.check_access("read", "queue", name)
        except AccessRefused as error:
            return Found(b"", error.text)
        vhost = self._vhosts.get(follower.vhost_name)
        queue = vhost.queues.get(name) if vhost is not None else None
        if queue is None:
            return None
        origin = origin_of(queue)
        if queue.exclusive:
            return Found(queue.uuid, f"its queue '{name}' is exclusive to a connection")
        if origin is not None:
            return Found(queue.uuid, f"its queue '{name}' is itself replicated, from {origin.addresses[0]}")
        return Found(queue.uuid)

    def has(self, queue: bytes) -> bool:
        return queue in self._vhosts.queues_by_uuid

    def declared(self, queue: bytes) -> bytes:
        return encode_record(self._vhosts.queues_by_uuid[queue].declaration())

    def last_id(self, queue: bytes) -> MessageId:
        ids = self._vhosts.queues_by_uuid[queue].ids
        return ids.epoch, ids.next - 1

    def total(self, queue: bytes) -> int:
        return self._vhosts.queues_by_uuid[queue].total_count

    def piece(self, queue: bytes, after: MessageId, most: int) -> Piece:
        return held_after(self._vhosts.queues_by_uuid[queue], after, most, self.last_id(queue))

    def encode(self, records: list[Dequeue]) -> list[bytes]:
        return [encode_record(record) for record in records]

    def encode_runs(self, queue: bytes, entries: list[Entry]) -> list[bytes]:
        return [encode_record(run) for run in group_runs(queue, entries)]

    def watch(self, wanted: bool) -> None:
        self._vhost.history.ledger_wanted = wanted or self._ledger_wanted
