"""A virtual host: one name space of queues and exchanges, as its clients see it. The model's front door.

Owner: `VirtualHosts`, which has what all of them share, and is told of what they do. Channels call everything
here. Definitions are in `Definitions`, routing in `Topology`; both are its bases, so that a channel sees one
object.
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

    While `serving` is False, contents are replicas and only history may change anything.
    """

    # -- consumers

    def consume(self, queue: Queue, consumer: Consumer) -> Scope:
        """Register a consumer and schedule its queue. Returns the scope touched, NONE mostly.

        Raises AccessRefused if somebody's exclusive use forbids it, PreconditionFailed if the queue has as
        many as it may have. With a single active consumer nobody uses a queue exclusively, as in RabbitMQ.
        """
        if len(queue.consumers) >= self.whole.consumer_max:
            raise PreconditionFailed(
                f"queue '{queue.name}' in vhost '{self.name}' has {len(queue.consumers)} consumers, and may "
                "have no more (broker.consumer_max_per_queue)"
            )
        alone = consumer.exclusive and (queue.consumers or queue.rules.single_active)
        if alone or queue.exclusive_consumer:
            raise AccessRefused(f"queue '{queue.name}' in vhost '{self.name}' in exclusive use")
        queue.consumers.add(consumer)
        self.whole.used(queue)
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
        """basic.cancel, or the channel closed. May end an auto-delete queue. Idempotent.

        Unacked messages stay the channel's: it requeues them when it closes, before the cancel.
        """
        if consumer not in queue.consumers:
            return
        queue.consumers.remove(consumer)
        self.expiries.used(queue)
        if queue.auto_delete and not queue.consumers and not queue.deleted and self.serving:
            self.end_left(queue, Reason.QUEUE_UNUSED)

    def connection_closed(self, owner: object) -> None:
        """End the exclusive queues of `owner`. Call it after its channels requeued and cancelled."""
        owned = self._owned.pop(owner, ())
        if self.serving:
            for queue in owned:
                self.end_left(queue, Reason.OWNER_GONE)

    def end_left(self, queue: Queue, reason: Reason) -> None:
        """Its clients have left it: it ends, now, in its turn, or when this node may decide again. What they
        have refused becomes dead letters first."""
        whole = self.whole
        if not whole.deciding:
            queue.owner = None
            whole.left.append(queue)
        elif not queue.dying and whole.leaving.may_end():
            self._end_queue(queue, reason)
        else:
            whole.leaving.add(queue, reason)
            self._changed()

    def forget_owners(self) -> None:
        """It serves no more, so nothing ends with a connection."""
        self._owned.clear()

    def end(self) -> None:
        """The virtual host is about to be no more: its queues end, one after the other, each with its own
        history."""
        for queue in list(self.queues.values()):
            self._end_queue(queue)
