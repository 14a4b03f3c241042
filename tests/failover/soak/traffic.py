"""Clients that never rest: publishers and consumers that run through every round, and count for themselves.

Owner: one leg of `tests.failover.soak.rounds`. Each client has a thread of its own; what it counts is read by
the leg's thread. Bodies are `PUBLISHER NUMBER`, so that what was confirmed can be compared with what came.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kombu.entity
import pika
import pika.exceptions

from tests.failover.nodes.cluster import PATIENCE, Login
from understudy.client import Consumer, Publisher
from understudy.shared.addresses import parse_addresses

_Queue: Any = kombu.entity.Queue
_Exchange: Any = kombu.entity.Exchange
_NEWS: Any = _Exchange("news", type="fanout", durable=True)
QUEUES: dict[str, Any] = {
    "orders": _Queue("orders", durable=True),
    "news.mail": _Queue("news.mail", exchange=_NEWS, durable=True),
    "news.web": _Queue("news.web", exchange=_NEWS, durable=True),
    "plain": _Queue("plain", durable=True),
    "depot": _Queue("depot", durable=True),
}
READERS = {"orders": ("orders",), "news": ("news.mail", "news.web"), "plain": ("plain",), "depot": ("depot",)}
"""The queues that each publisher's messages reach."""
HEARTBEAT = 1.0
"""Seconds; a broker that is silent for twice as long is given up."""
CONNECT_TIMEOUT = 1.0
_BODY_BYTES = 200
_RETRY = 0.05
_PACE = 0.01


def body_of(name: str, number: int) -> bytes:
    return f"{name} {number} ".encode().ljust(_BODY_BYTES, b".")


class Gaps:
    """The longest time without a confirm since it was asked for last. One thread tells, another asks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._longest = 0.0

    def confirm(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._longest = max(self._longest, now - self._last)
            self._last = now

    def take(self) -> float:
        with self._lock:
            longest, self._longest = max(self._longest, time.monotonic() - self._last), 0.0
            self._last = time.monotonic()
            return longest


class _Client(ABC):
    """A thread that runs until `stop`, or, when nothing can be saved any more, `give_up`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failure: BaseException | None = None
        self._enough = threading.Event()
        self._hopeless = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience: float = 2 * PATIENCE) -> None:
        self._enough.set()
        self._thread.join(patience)
        if self._thread.is_alive():
            raise AssertionError(f"client {self.name} did not come to its end")
        if self.failure is not None:
            raise AssertionError(f"client {self.name}: {self.failure!r}") from self.failure

    def give_up(self) -> None:
        self._hopeless.set()
        self._enough.set()
        if self._thread.ident is not None:
            self._thread.join(PATIENCE)

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def _run(self) -> None:
        """Its work, on its thread, until it is stopped or given up."""


class KitPublisher(_Client):
    """The client kit's publisher, at a steady rate. After `stop` all that it sent is confirmed."""

    def __init__(
        self,
        name: str,
        addresses: str,
        login: Login,
        ledgers: Path,
        rate: float,
        exchange: str = "",
        gaps: Gaps | None = None,
    ) -> None:
        super().__init__(name)
        self._publisher = kit_publisher(name, addresses, login, ledgers, given_up=self._hopeless.is_set)
        self._exchange = exchange
        self._rate = rate
        self._gaps = gaps or Gaps()

    @property
    def confirmed(self) -> set[int]:
        """Numbers. The kit confirms in order but for what it sent again, so this is exact after `stop`."""
        return set(range(self._publisher.counts.confirmed))

    @property
    def confirms(self) -> int:
        return self._publisher.counts.confirmed

    @property
    def published(self) -> int:
        return self._publisher.counts.published

    @property
    def resent(self) -> int:
        return self._publisher.counts.resent

    def longest(self) -> float:
        return self._gaps.take()

    def _run(self) -> None:
        counts = self._publisher.counts
        began, sent, seen = time.monotonic(), 0, 0
        with self._publisher:
            while not self._enough.is_set():
                self._publisher.publish(body_of(self.name, sent), self.name, self._exchange)
                sent += 1
                while True:
                    if counts.confirmed > seen:
                        seen = counts.confirmed
                        self._gaps.confirm()
                    if (early := began + sent / self._rate - time.monotonic()) <= 0:
                        break
                    self._publisher.poll(min(early, _PACE))
                began = max(began, time.monotonic() - sent / self._rate - 1)  # does not make up for an outage
        if counts.nacked:
            raise AssertionError(f"{counts.nacked} messages of {self.name} were refused")


class PlainPublisher(_Client):
    """Pika's blocking publisher with confirms: it keeps a message until it is confirmed, and knows no more of
    failover than to try the next address and send again.
    """

    def __init__(self, name: str, addresses: str, login: Login, rate: float) -> None:
        super().__init__(name)
        credentials = pika.PlainCredentials(login.user, login.password)
        self._parameters = [
            pika.ConnectionParameters(
                host, port, "/", credentials, heartbeat=round(HEARTBEAT), socket_timeout=2, stack_timeout=3,
                blocked_connection_timeout=5,
            )
            for host, port in parse_addresses(addresses)
        ]  # fmt: skip
        self._rate = rate
        self._gaps = Gaps()
        self._confirmed: set[int] = set()
        self._connection: Any = None
        self._channel: Any = None

    @property
    def confirmed(self) -> set[int]:
        return self._confirmed.copy()

    @property
    def confirms(self) -> int:
        return len(self._confirmed)

    def longest(self) -> float:
        return self._gaps.take()

    def _run(self) -> None:
        number = 0
        while not self._enough.is_set():
            if not self._sent(number):
                continue
            self._confirmed.add(number)
            self._gaps.confirm()
            number += 1
            try:
                self._connection.process_data_events(1 / self._rate)
            except (pika.exceptions.AMQPError, OSError):
                self._drop()
        self._drop()

    def _sent(self, number: int) -> bool:
        """Publish, and wait for the confirm; False: not known, to be sent again."""
        try:
            if self._channel is None:
                self._connect()
            self._channel.basic_publish(
                "", self.name, body_of(self.name, number), pika.BasicProperties(delivery_mode=2), True
            )
        except (pika.exceptions.AMQPError, OSError):
            self._drop()
            self._enough.wait(_RETRY)
            return False
        return True

    def _connect(self) -> None:
        self._connection = pika.BlockingConnection(self._parameters)
        channel = self._connection.channel()
        channel.queue_declare(self.name, durable=True)
        channel.confirm_delivery()
        self._channel = channel

    def _drop(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        try:
            if connection is not None:
                connection.close()
        except (pika.exceptions.AMQPError, OSError):
            pass


class Reader(_Client):
    """The client kit's consumer: notes each body that it is given."""

    def __init__(self, queue: str, addresses: str, login: Login, ledgers: Path) -> None:
        super().__init__(f"reader-{queue}")
        self.queue = queue
        self.seen: dict[str, set[int]] = {}
        self._consumer = Consumer(
            addresses, queue, self.name, ledgers, declare=[QUEUES[queue]], given_up=self._hopeless.is_set,
            user=login.user, password=login.password, heartbeat=HEARTBEAT, connect_timeout=CONNECT_TIMEOUT,
        )  # fmt: skip

    @property
    def received(self) -> int:
        """Deliveries, repeated ones too."""
        return self._consumer.counts.received

    def _run(self) -> None:
        with self._consumer:
            for delivery in self._consumer.deliveries(until=self._enough.is_set):
                name, number, _ = bytes(_bytes(delivery.body)).split(b" ", 2)
                self.seen.setdefault(name.decode(), set()).add(int(number))


def _bytes(body: bytes | str) -> bytes:
    return body if isinstance(body, bytes) else body.encode()


def kit_publisher(name: str, addresses: str, login: Login, ledgers: Path, **options: Any) -> Publisher:
    return Publisher(
        addresses, name, ledgers, window=100, declare=[QUEUES[queue] for queue in READERS[name]],
        user=login.user, password=login.password, heartbeat=HEARTBEAT, connect_timeout=CONNECT_TIMEOUT,
        **options,
    )  # fmt: skip


class Traffic:
    """All clients of a leg. A context manager: no thread is left when it ends. Let the brokers end first: a
    client gives up only while none serves.
    """

    def __init__(self, addresses: str, login: Login, ledgers: Path, rate: float) -> None:
        self._addresses, self._login, self._ledgers = addresses, login, ledgers
        self.kit = [
            KitPublisher("orders", addresses, login, ledgers, rate),
            KitPublisher("news", addresses, login, ledgers, rate, "news"),
        ]
        self.plain = PlainPublisher("plain", addresses, login, rate / 2)
        self.publishers: list[KitPublisher | PlainPublisher] = [*self.kit, self.plain]
        self.readers = [self._reader(queue) for queue in QUEUES if queue != "depot"]
        self._stored = 0

    def __enter__(self) -> Traffic:
        return self

    def __exit__(self, *_rest: object) -> None:
        for client in self._clients():
            client.give_up()

    def start(self) -> None:
        for client in self._clients():
            client.start()

    def _clients(self) -> Iterable[_Client]:
        return (*self.readers, *self.publishers)

    def _reader(self, queue: str) -> Reader:
        return Reader(queue, self._addresses, self._login, self._ledgers)

    @property
    def confirmed(self) -> int:
        return self._stored + sum(each.confirms for each in self.publishers)

    @property
    def resent(self) -> int:
        """By the kit."""
        return sum(each.resent for each in self.kit)

    @contextmanager
    def depot(self) -> Iterator[Callable[[int], None]]:
        """Puts so many more messages, confirmed, into the queue that nobody reads before the end."""
        with kit_publisher("depot", self._addresses, self._login, self._ledgers) as publisher:

            def store(messages: int) -> None:
                for number in range(self._stored, self._stored + messages):
                    publisher.publish(body_of("depot", number), "depot")
                publisher.flush(PATIENCE)
                self._stored += messages

            yield store

    def check(self) -> None:
        """AssertionError if a client has died."""
        for client in self._clients():
            if client.failure is not None:
                raise AssertionError(f"client {client.name}: {client.failure!r}") from client.failure

    def longest_gaps(self) -> tuple[float, float]:
        """The longest time without a confirm since this was asked last, in seconds: of any publisher of the
        kit, and of the plain one.
        """
        return max(each.longest() for each in self.kit), self.plain.longest()

    def finish(self) -> dict[str, int]:
        """Stop publishing, read all there is, and stop: how many confirmed bodies no reader got, by queue.
        Raises AssertionError when a client does not come to its end.
        """
        for publisher in self.publishers:
            publisher.stop()
        depot = self._reader("depot")
        depot.start()
        self.readers.append(depot)
        deadline = time.monotonic() + 2 * PATIENCE
        pause = threading.Event()
        while any(self._missing().values()) and time.monotonic() < deadline:
            pause.wait(_RETRY)
        for reader in self.readers:
            reader.stop()
        return self._missing()

    def _missing(self) -> dict[str, int]:
        confirmed = {each.name: each.confirmed for each in self.publishers}
        confirmed["depot"] = set(range(self._stored))
        queues = {reader.queue: reader for reader in self.readers}
        return {
            queue: len(confirmed[name] - queues[queue].seen.get(name, set()))
            for name, own in READERS.items()
            for queue in own
        }
