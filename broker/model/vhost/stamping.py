"""What was declared while the broker was in no pair gets its level of replication when it serves one.

Called by `VirtualHosts.activate`, before anything serves: so no route remembers the scope of before, no
backup has joined, and each one gets the level with the definitions that its stream begins with. All that
there is is told anew in the first batch of the epoch: to whoever applies it, an exchange of another level is
another exchange, without bindings, and a queue has had a consumer only if that follows.
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
    """Give each queue and exchange of level `unset` what the hooks would give it, were it declared now; how
    many got one. Bindings follow their ends."""
    stamped = 0
    for vhost in vhosts:
        holders: list[Queue | Exchange] = [*vhost.exchanges.values(), *vhost.queues.values()]
        given = sum(_stamp(holder, hooks) for holder in holders if holder.replicate == UNSET)
        if given:
            vhost._changed()
        stamped += given
    return stamped


def _stamp(holder: Queue | Exchange, hooks: Hooks) -> bool:
    """False: it is `unset` still, the broker being in no pair."""
    declared = holder.declaration()
    if isinstance(declared, QueueDeclare):
        declared.scope = hooks.queue_scope(declared)
    else:
        declared.scope = hooks.exchange_scope(declared)
    holder.set_scope(declared.scope, declared.replicate)
    return declared.replicate != UNSET
