"""What all virtual hosts of a broker share: history, queues by UUID, directory, timers.

Base of `VirtualHosts`, which owns the virtual hosts. Each virtual host sees only this part.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.hooks import Hooks
from broker.model.history.epoch_ends import DeletedQueues
from broker.model.history.history import History
from broker.model.queue.backlog import WINDOW
from broker.model.queue.expiries import Expiries
from broker.model.queue.leaving import Leaving
from broker.model.queue.link_ids import LinkNumbers
from broker.model.queue.queue import Queue
from broker.model.queue.removals import Removals
from broker.model.statistics import PROTOCOLS, Churn, Counts
from broker.model.vhost.directory import Directory
from broker.model.vhost.producers import Producers
from broker.model.vhost.reconnecting import Reconnecting


class Shared:
    """`pending`: queues that asked for dispatch in this tick. `generation` grows with every change of a
    virtual host or of the directory."""

    def __init__(
        self, hooks: Hooks, history: History, new_uuid: Callable[[], bytes], removals: Removals
    ) -> None:
        self.hooks = hooks
        self.history = history
        self.new_uuid = new_uuid
        self.serving = False
        self.deciding = True
        """While False, no queue is deleted because its clients left: they may have gone to another node that
        serves."""
        self.left: list[Queue] = []
        """Queues whose deletion was put off meanwhile."""
        self.leaving = Leaving()
        self.consumer_max = 10_000
        """Maximum consumers of one queue."""
        self.window = WINDOW
        """Messages at the front of each queue that stay in memory."""
        self.generation = 0
        self.link_numbers = LinkNumbers(0)
        self.node = ""
        """The name of this node in a net of federated brokers; "": it is in none."""
        self.directory = Directory()
        self.deleted_queues = DeletedQueues()
        self.queues_by_uuid: dict[bytes, Queue] = {}
        """All queues of all virtual hosts."""
        self.transient_kept = False
        """The store gets transient messages of replicated, durable queues too."""
        self.unkept: dict[Queue, int] = {}
        """Queues whose older transient messages the store may lack, with the sequence from which on it gets
        them."""
        self.pending: list[Queue] = []
        self.expiries = Expiries()
        self.reconnecting = Reconnecting()
        self.producers = Producers()
        self.known_ids = 0
        """Messages that a queue did not take again because of their ids, since the start."""
        self.removals = removals
        self.churn = Churn()
        self.counts: dict[str, Counts] = {protocol: Counts() for protocol in PROTOCOLS}
        """Messages of clients of virtual hosts that are deleted, by protocol."""
        self.warn: Callable[[str], None] = lambda sentence: None
        """Writes a line to the log."""

    def changed(self) -> None:
        self.generation += 1

    def keep_in(self, queue: Queue) -> None:
        """This queue has begun to serve here, perhaps with messages."""
        if self.transient_kept and queue.keep_transient(True) and queue.total_count:
            self.unkept[queue] = queue.ids.next

    def used(self, queue: Queue) -> None:
        """A client declared the queue, got from it or began to consume from it."""
        self.expiries.used(queue)
        self.reconnecting.used(queue)
        if self.left and queue in self.left:
            self.left.remove(queue)
