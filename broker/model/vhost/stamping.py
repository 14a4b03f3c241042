"""Sets the replication level of objects that were declared on a standalone broker, when a pair begins to
serve them.

`VirtualHosts.activate` calls this before anything serves. So no route has cached the old scope, and no backup
has joined: each backup gets the level with the definitions at the start of its stream. The first batch of the
epoch repeats all definitions. A node that applies them treats an exchange with another level as another
exchange, without bindings, and expects a ConsumerSeen for each queue that had a consumer.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.hooks import Hooks
from broker.model.history.records import QueueDeclare
from broker.model.queue.queue import Queue
from broker.model.routing.exchange import Exchange
from broker.model.values import UNSET
from broker.model.vhost.topology import Topology


def stamp_unset(vhosts: Iterable[Topology], hooks: Hooks) -> int:
    """Set each object of level `unset` to the level that the hooks give it now. Returns how many changed.
    Bindings follow their ends."""
    stamped = 0
    for vhost in vhosts:
        holders: list[Queue | Exchange] = [*vhost.exchanges.values(), *vhost.queues.values()]
        given = sum(_stamp(holder, hooks) for holder in holders if holder.replicate == UNSET)
        if given:
            vhost._changed()
        stamped += given
    return stamped


def _stamp(holder: Queue | Exchange, hooks: Hooks) -> bool:
    """False if the object is still `unset`, because the broker is standalone."""
    declared = holder.declaration()
    if isinstance(declared, QueueDeclare):
        declared.scope = hooks.queue_scope(declared)
    else:
        declared.scope = hooks.exchange_scope(declared)
    holder.set_scope(declared.scope, declared.replicate)
    return declared.replicate != UNSET
