"""A client that uses only kombu: its producer, its consumer mixin and its failover list, and nothing of
Understudy.

The demo and the tests use it to show that such code survives a failover unchanged, and to measure how long
that takes: after each round of refusals kombu waits a second or more. One thread publishes, one consumes.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import kombu
import kombu.connection
from kombu.mixins import ConsumerMixin

_BODY_BYTES = 256
_KombuConnection: Any = kombu.connection.Connection


def plain_connection(addresses: str, **options: Any) -> Any:
    """A kombu connection with a failover list, as in kombu's own documentation."""
    urls = [f"amqp://guest:guest@{address.strip()}//" for address in addresses.split(",")]
    return _KombuConnection(urls, connect_timeout=2, transport_options=options)


class _Worker(ConsumerMixin):
    """Kombu's usual consumer loop. Counts bodies, and acks each message."""

    def __init__(self, connection: Any, queue: Any, seen: Counter[str]) -> None:
        self.connection = connection
        self._queue = queue
        self._seen = seen

    def get_consumers(self, Consumer: Any, channel: Any) -> list[Any]:
        return [Consumer([self._queue], callbacks=[self.on_task], prefetch_count=50)]

    def on_task(self, body: Any, message: Any) -> None:
        self._seen[str(body).split(" ", 1)[0]] += 1
        message.ack()


class Plain:
    """Publishes with kombu's blocking confirms in one thread, and consumes in another."""

    def __init__(self, addresses: str, queue: Any) -> None:
        self._addresses = addresses
        self._queue = queue
        self._seen: Counter[str] = Counter()
        self._confirmed: set[str] = set()
        self._published = 0
        self.outage = 0.0
        """Longest time between two confirms, in seconds."""
        self._producer_connection = plain_connection(addresses, confirm_publish=True)

    def connect(self) -> None:
        """Connect and declare the queue."""
        self._producer_connection.ensure_connection()
        self._queue(self._producer_connection.default_channel).declare()

    def run(self, messages: int, rate: float, stop: threading.Event) -> None:
        """Publish all messages, then consume until all have arrived, or until `stop`."""
        worker = _Worker(plain_connection(self._addresses), self._queue, self._seen)
        thread = threading.Thread(target=worker.run, name="plain-consumer", daemon=True)
        thread.start()
        self._publish(messages, rate)
        while self.lost and not stop.wait(0.05):
            pass
        worker.should_stop = True
        thread.join(timeout=10)
        self._producer_connection.release()

    def _publish(self, messages: int, rate: float) -> None:
        producer = self._producer_connection.Producer(serializer="raw")
        began = last = time.monotonic()
        for index in range(messages):
            if rate and (early := began + index / rate - time.monotonic()) > 0:
                threading.Event().wait(early)
            self._published = index + 1
            producer.publish(
                f"{index} ".ljust(_BODY_BYTES, "."),
                routing_key=self._queue.name,
                content_type="text/plain",
                content_encoding="utf-8",
                delivery_mode=2,
                retry=True,
            )
            now = time.monotonic()
            self.outage = max(self.outage, now - last)
            last = now
            self._confirmed.add(str(index))

    @property
    def lost(self) -> int:
        """Number of messages that are confirmed and not received yet."""
        return len(self._confirmed.difference(dict(self._seen)))

    def counts(self) -> dict[str, int]:
        """May be called from any thread, because each copy is made in one step."""
        confirmed, seen = len(self._confirmed), dict(self._seen)
        return {
            "published": self._published,
            "confirmed": confirmed,
            "received": sum(seen.values()),
            "duplicated": sum(count - 1 for count in seen.values()),
            "lost": len(self._confirmed.copy().difference(seen)),
        }
