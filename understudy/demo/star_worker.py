"""One client process of the demo of federation: `python -m understudy.demo.star_worker TASK`. TASK is a JSON
object.

It talks to the demo as the other workers do (`understudy.demo.worker`). A publisher numbers its messages; a
consumer knows which numbers it is to get, and counts what it got, lost, got twice, or got late. An asker does
both, with a service at another node between.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import kombu.entity

from understudy.client import Consumer, Delivery, Publisher
from understudy.demo.worker import Line, reporting

BODY_BYTES = 256
BURST = 25
"""Consecutive messages by one routing key."""
_MOST_TOLD = 2000
"""Numbers in one answer."""
_Exchange: Any = kombu.entity.Exchange  # kombu's own annotations are partial
_Queue: Any = kombu.entity.Queue
_binding: Any = kombu.entity.binding


@dataclass(slots=True, frozen=True)
class Task:
    """`keys`: the routing keys of a publisher, in turns. `publishers`: how many messages each publisher has,
    for a consumer; `wants`: which of the keys its queue is bound for."""

    role: str
    name: str
    addresses: str
    exchange: str
    ledger_dir: str
    keys: list[str]
    messages: int = 0
    rate: float = 0.0
    queue: str = ""
    wants: list[str] = field(default_factory=list)
    publishers: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def is_due(self, number: int) -> bool:
        """Is that message of a publisher for the queue of this consumer?"""
        return key_of(self.keys, number) in self.wants

    def due(self) -> int:
        """How many messages a consumer is to get."""
        return sum(self.is_due(number) for count in self.publishers.values() for number in range(count))


def key_of(keys: Sequence[str], number: int) -> str:
    return keys[number // BURST % len(keys)]


def exchange_of(name: str) -> Any:
    return _Exchange(name, type="topic", durable=True)


def queue_of(exchange: str, name: str, wants: Sequence[str]) -> Any:
    """With its bindings."""
    source = exchange_of(exchange)
    bindings = [_binding(source, routing_key=key) for key in wants]
    return _Queue(name, bindings=bindings, durable=True)


class Books:
    """What a consumer has got. `seen`: by publisher, how often each number came without the flag
    `redelivered`."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.seen: dict[str, Counter[int]] = {name: Counter() for name in task.publishers}
        self.received = 0
        self.redelivered = self.disordered = 0
        self.delays: list[float] = []
        """Seconds on the way, of each."""
        self._last: dict[str, int] = {}

    def take(self, delivery: Delivery) -> None:
        publisher, number, sent = bytes_of(delivery.body).split()[:3]
        name, at = publisher.decode(), int(number)
        seen = self.seen[name]
        if delivery.redelivered and seen[at]:
            self.redelivered += 1
            return
        if not seen[at]:
            self.received += 1
            self.disordered += at < self._last.get(name, -1)
            self._last[name] = max(at, self._last.get(name, -1))
            self.delays.append(time.time() - float(sent))
        seen[at] += 1

    def counts(self) -> dict[str, Any]:
        return {"received": self.received}

    def result(self) -> dict[str, Any]:
        lost = {
            name: [n for n in range(count) if self._task.is_due(n) and not self.seen[name][n]]
            for name, count in self._task.publishers.items()
        }
        twice = {name: [n for n, times in seen.items() if times > 1] for name, seen in self.seen.items()}
        delays = sorted(self.delays)
        return {
            "received": self.received, "redelivered": self.redelivered, "disordered": self.disordered,
            "lost": {name: numbers[:_MOST_TOLD] for name, numbers in lost.items()},
            "twice": {name: numbers[:_MOST_TOLD] for name, numbers in twice.items()},
            "p50_ms": 1000 * delays[len(delays) // 2] if delays else None,
            "worst_ms": 1000 * delays[-1] if delays else None,
        }  # fmt: skip


def bytes_of(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else body


def publish(task: Task, line: Line) -> None:
    """Publish at the rate, and wait for all confirms."""
    declare = [exchange_of(task.exchange)]
    publisher = Publisher(task.addresses, task.name, task.ledger_dir, declare=declare, exactly_once=True)
    counts = publisher.counts
    publisher.connect()
    line.say("ready")
    while not line.go.wait(0.2):
        publisher.poll()
    with publisher, reporting(line, lambda: {"published": counts.published, "confirmed": counts.confirmed}):
        began = time.monotonic()
        for number in range(task.messages):
            while (early := began + number / task.rate - time.monotonic()) > 0:
                publisher.poll(early)
            body = f"{task.name} {number} {time.time():.6f} ".encode().ljust(BODY_BYTES, b".")
            publisher.publish(body, key_of(task.keys, number), task.exchange)
        publisher.flush()
    line.say("done", published=counts.published, confirmed=counts.confirmed, resent=counts.resent)


def consumer_of(task: Task, queue: Any) -> Consumer:
    """It gets nothing that a failover takes back, and that comes again as another message."""
    return Consumer(
        task.addresses, task.queue, task.name, task.ledger_dir, declare=[queue], confirmed_only=True
    )


def consume(task: Task, line: Line) -> None:
    """Consume the queue until told to stop."""
    queue = queue_of(task.exchange, task.queue, task.wants)
    consumer = consumer_of(task, queue)
    consumer.connect()
    line.say("ready")
    books = Books(task)
    with reporting(line, books.counts), consumer:
        for delivery in consumer.deliveries(until=line.stop.is_set):
            books.take(delivery)
    line.say("done", **books.result())


def serve(task: Task, line: Line) -> None:
    """Answer each request with its own body, to the queue that it names."""
    queue = queue_of(task.exchange, task.queue, task.wants)
    publisher = Publisher(task.addresses, f"{task.name}-replies", task.ledger_dir, exactly_once=True)
    consumer = consumer_of(task, queue)
    publisher.connect()
    consumer.connect()
    line.say("ready")
    with publisher, consumer:
        for request in consumer.deliveries(until=line.stop.is_set):
            publisher.publish(bytes_of(request.body), request.properties["reply_to"])
    line.say("done")


def ask(task: Task, line: Line) -> None:
    """Send requests at the rate, and count the replies, until told to stop."""
    declare = [exchange_of(task.exchange)]
    publisher = Publisher(
        task.addresses, f"{task.name}-requests", task.ledger_dir, declare=declare, exactly_once=True
    )
    replies = consumer_of(task, _Queue(task.queue, durable=True))
    publisher.connect()
    replies.connect()
    line.say("ready")
    books = Books(task)
    line.go.wait()
    with reporting(line, books.counts), publisher, replies:
        began, number = time.monotonic(), 0
        while not line.stop.is_set():
            early = began + number / task.rate - time.monotonic()
            if number < task.messages and early <= 0:
                body = f"{task.name} {number} {time.time():.6f} ".encode().ljust(BODY_BYTES, b".")
                publisher.publish(body, task.keys[0], task.exchange, reply_to=task.queue)
                number += 1
            elif (reply := replies.receive(min(max(early, 0.0), 0.2) or 0.2)) is not None:
                books.take(reply)
                replies.ack(reply)
            else:
                publisher.poll()
    line.say("done", **books.result())


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    roles = {"publisher": publish, "consumer": consume, "service": serve, "asker": ask}
    roles[task.role](task, Line())


if __name__ == "__main__":
    main()
