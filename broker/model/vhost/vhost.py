"""A virtual host: one name space of queues and exchanges, as its clients see it.

Owner: `VirtualHosts`, which holds what all of them share. Channels make all their calls on this class. Its
bases are `Enqueueing`, `Definitions` and `Topology`, so a channel sees one object.
"""

from __future__ import annotations

from broker.errors import AccessRefused, PreconditionFailed
from broker.model.history.records import ConsumerSeen
from broker.model.queue.consumer import Consumer
from broker.model.queue.queue import Queue
from broker.model.routing.publish_route import PublishRoute
from broker.model.values import Reason, Scope
from broker.model.vhost.definitions import Removed
from broker.model.vhost.enqueueing import Enqueueing, Published

__all__ = ["PublishRoute", "Published", "Removed", "VirtualHost"]


class VirtualHost(Enqueueing):
    """See the module. `generation` (of `Topology`) grows with every change of queues, exchanges or bindings.

    While `serving` is False, contents are replicas, and only history may change anything.
    """

    # -- consumers

    def consume(self, queue: Queue, consumer: Consumer) -> Scope:
        """Register a consumer and schedule its queue. Returns the scope touched, mostly NONE.

        Raises AccessRefused if exclusive use forbids it, PreconditionFailed if the queue has its maximum of
        consumers. With a single active consumer, exclusive use is refused, as in RabbitMQ.
        """
        if len(queue.consumers) + len(queue.browsers) >= self.shared.consumer_max:
            raise PreconditionFailed(
                f"queue '{queue.name}' in vhost '{self.name}' has {len(queue.consumers)} consumers, and may "
                "have no more (broker.consumer_max_per_queue)"
            )
        exclusive = consumer.exclusive and not consumer.browses
        alone = exclusive and (queue.consumers or queue.rules.single_active)
        if alone or queue.exclusive_consumer:
            raise AccessRefused(f"queue '{queue.name}' in vhost '{self.name}' in exclusive use")
        if consumer.browses:
            queue.browsers[consumer] = (0, 0)
            queue.schedule()
            return Scope.NONE
        queue.consumers.add(consumer)
        self.shared.used(queue)
        queue.schedule()
        if queue.consumer_seen:
            return Scope.NONE
        queue.consumer_seen = True
        if not queue.auto_delete:
            return Scope.NONE
        self._record(ConsumerSeen(queue.uuid, queue.scope))
        self._changed()
        return queue.scope

    def cancel(self, queue: Queue, consumer: Consumer) -> None:
        """For basic.cancel or a closed channel. May delete an auto-delete queue. Idempotent.

        Unacknowledged messages stay with the channel, which requeues them when it closes, before the cancel.
        """
        queue.browsers.pop(consumer, None)
        if consumer not in queue.consumers:
            return
        queue.consumers.remove(consumer)
        self.expiries.used(queue)
        queue.consumer_left(consumer)
        if queue.consumers and (queue.consumers.ranked or queue.rules.single_active or queue.rules.group):
            queue.schedule()  # what waited for this one
        if queue.auto_delete and not queue.consumers and not queue.deleted and self.serving:
            self.end_left(queue, Reason.QUEUE_UNUSED)

    def connection_closed(self, owner: object) -> None:
        """Delete the exclusive queues of `owner`. Call it after its channels have requeued and cancelled."""
        owned = self._owned.pop(owner, ())
        if self.serving:
            for queue in owned:
                self.end_left(queue, Reason.OWNER_GONE)

    def end_left(self, queue: Queue, reason: Reason) -> None:
        """The queue's clients have left: delete it now, in its turn, or when this node may decide again. Its
        refused messages become dead letters first."""
        whole = self.shared
        if not whole.deciding:
            queue.owner = None
            whole.left.append(queue)
        elif not queue.dying and whole.leaving.may_end():
            self._end_queue(queue, reason)
        else:
            whole.leaving.add(queue, reason)
            self._changed()

    def forget_owners(self) -> None:
        """This node no longer serves: no queue is deleted with a connection any more."""
        self._owned.clear()

    def end(self) -> None:
        """The virtual host is about to be deleted: delete its queues one by one, each with its own
        history."""
        for queue in list(self.queues.values()):
            self._end_queue(queue)
