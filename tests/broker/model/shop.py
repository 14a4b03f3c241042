"""A virtual host under policies, with a follower and the messages that left it, for the tests of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.model.history.batch import Batch
from broker.model.history.records import Dequeue, EntryDelete, EntryPut
from broker.model.queue.queue import Queue
from broker.model.values import Reason
from broker.model.vhost.vhost import VirtualHost
from tests.broker.model.helpers import OWNER, Everything, Follower, publish, serving


class Shop:
    """A serving virtual host, its follower, and the reasons for which messages left."""

    def __init__(self) -> None:
        self.vhost = serving(1, Everything())
        self.follower = Follower()
        self.left: dict[str, dict[Reason, int]] = {}
        self.vhost.history.sinks += [self.follower, self]

    def batch(self, batch: Batch) -> None:
        for record in batch.records:
            if isinstance(record, Dequeue) and record.queue in self.vhost.shared.queues_by_uuid:
                of_queue = self.left.setdefault(self.vhost.shared.queues_by_uuid[record.queue].name, {})
                count = sum(last - first + 1 for first, last in record.ranges)
                of_queue[record.reason] = of_queue.get(record.reason, 0) + count

    def queue(self, name: str = "q", **arguments: Any) -> Queue:
        named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        return self.vhost.declare_queue(name, owner=OWNER, durable=True, arguments=named)

    def policy(self, definition: Mapping[str, object], name: str = "p", **more: object) -> None:
        said = {"pattern": "^q", "apply-to": "queues", "priority": 0, "definition": definition} | more
        self.vhost.shared.change_directory([EntryPut("policy", "/", name, said)])

    def no_policy(self, name: str = "p") -> None:
        self.vhost.shared.change_directory([EntryDelete("policy", "/", name)])

    def publish(self, count: int = 1, key: str = "q", body: bytes = b"x") -> None:
        publish(self.vhost, key, *[body] * count, persistent=True)

    def pass_time(self, milliseconds: int = 0) -> None:
        self.vhost.shared.wall_ms += milliseconds
        self.tick()

    def tick(self) -> None:
        now = self.vhost.shared.wall_ms / 1000
        self.vhost.shared.dispatch()
        self.vhost.shared.expire(now)
        self.vhost.history.flush(now, 0, force=True)
        assert self.follower.vhost.shared.fingerprint() == self.vhost.shared.fingerprint()

    def promote(self) -> VirtualHost:
        """Promote the follower."""
        promoted = self.follower.vhost
        promoted.shared.wall_ms = self.vhost.shared.wall_ms
        promoted.shared.activate(2)
        promoted.shared.dispatch()
        return promoted
