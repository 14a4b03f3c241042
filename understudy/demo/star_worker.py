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
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import kombu.entity

from understudy.client import Consumer, Delivery, Publisher
from understudy.demo.worker import Line, reporting

BODY_BYTES = 256
BURST = 25
"""Consecutive messages by one routing key."""
EARLY = 1.0
"""Seconds before the end of a connection."""
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
    `redelivered`.

    A primary delivers a message at once. What it delivered just before it died may be unknown to its backup.
    The upstream then sends it again, and it comes from the new primary as a new message (`early`).
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self.seen: dict[str, Counter[int]] = {name: Counter() for name in task.publishers}
        self.received = 0
        self.redelivered = self.early = 0
        self.disordered = 0
        self._session = 0
        self._latest: deque[tuple[float, str, int]] = deque()
        """When each message came, of the last `EARLY` seconds of a connection."""
        self._unsure: set[tuple[str, int]] = set()
        """Those that were the latest of a connection that is lost."""
        self.delays: list[float] = []
        """Seconds on the way, of each."""
        self._last: dict[str, int] = {}

    def take(self, delivery: Delivery) -> None:
        publisher, number, sent = bytes_of(delivery.body).split()[:3]
        name, at = publisher.decode(), int(number)
        seen = self.seen[name]
        self._note(delivery.session, name, at)
        if delivery.redelivered and seen[at]:
            self.redelivered += 1
            return
        if seen[at] and (name, at) in self._unsure:
            self._unsure.discard((name, at))
            self.early += 1
            return
        if not seen[at]:
            self.received += 1
            self.disordered += at < self._last.get(name, -1)
            self._last[name] = max(at, self._last.get(name, -1))
            self.delays.append(time.time() - float(sent))
        seen[at] += 1

    def _note(self, session: int, name: str, at: int) -> None:
        if session != self._session:
            self._session = session
            self._unsure.update((each, number) for _, each, number in self._latest)
            self._latest.clear()
        now = time.monotonic()
        self._latest.append((now, name, at))
        while now - self._latest[0][0] > EARLY:
            self._latest.popleft()

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
            "received": self.received, "redelivered": self.redelivered, "early": self.early,
            "disordered": self.disordered,
            "lost": {name: numbers[:_MOST_TOLD] for name, numbers in lost.items()},
            "twice": {name: numbers[:_MOST_TOLD] for name, numbers in twice.items()},
            "p50_ms": 1000 * delays[len(delays) // 2] if delays else None,
            "worst_ms": 1000 * delays[-1] if delays else None,
        }  # fmt: skip


def bytes_of(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else body


def publish(task: Task, line: Line) -> None:
    """Publish at the rate, and wait for all confirms. `doubt`: first and last of each range that was
    sent again."""
    declare = [exchange_of(task.exchange)]
    publisher = Publisher(task.addresses, task.name, task.ledger_dir, declare=declare)
    counts = publisher.counts
    publisher.connect()
    line.say("ready")
    while not line.go.wait(0.2):
        publisher.poll()
    doubt: list[tuple[int, int]] = []
    with publisher, reporting(line, lambda: {"published": counts.published, "confirmed": counts.confirmed}):
        began, resent = time.monotonic(), 0
        for number in range(task.messages):
            while (early := began + number / task.rate - time.monotonic()) > 0:
                publisher.poll(early)
            body = f"{task.name} {number} {time.time():.6f} ".encode().ljust(BODY_BYTES, b".")
            publisher.publish(body, key_of(task.keys, number), task.exchange)
            if counts.resent > resent:
                doubt.append((number - (counts.resent - resent), number))
                resent = counts.resent
        publisher.flush()
        if counts.resent > resent:
            doubt.append((task.messages - (counts.resent - resent), task.messages))
    line.say(
        "done", published=counts.published, confirmed=counts.confirmed, resent=counts.resent, doubt=doubt
    )


def consume(task: Task, line: Line) -> None:
    """Consume the queue until told to stop."""
    queue = queue_of(task.exchange, task.queue, task.wants)
    consumer = Consumer(task.addresses, task.queue, task.name, task.ledger_dir, declare=[queue])
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
    publisher = Publisher(task.addresses, f"{task.name}-replies", task.ledger_dir)
    consumer = Consumer(task.addresses, task.queue, task.name, task.ledger_dir, declare=[queue])
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
    publisher = Publisher(task.addresses, f"{task.name}-requests", task.ledger_dir, declare=declare)
    replies = Consumer(
        task.addresses, task.queue, task.name, task.ledger_dir, declare=[_Queue(task.queue, durable=True)]
    )
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
