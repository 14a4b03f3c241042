"""CPU microseconds a message of the model alone: `python -m bench.model_path [--seconds S]`.

No sockets, frames or disks: runs of messages through `publish`, `dispatch`, `acknowledge` and `flush`, and
what a backup does with the records (decode, apply) or a sink (encode). The time is this process's own CPU
clock.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from broker.hooks import Hooks
from broker.model.history.batch import Batch
from broker.model.history.history import History
from broker.model.history.record_codec import decode_records, encode_record
from broker.model.history.records import Entry, QueueDeclare, Record
from broker.model.queue.consumer import UNLIMITED, Consumer
from broker.model.queue.queue import Queue
from broker.model.values import Scope
from broker.model.vhost.vhosts import VirtualHosts

BODY = 256
"""Bytes a message, header frame and all."""
ACK_EVERY = 50


class _Replicated(Hooks):
    def queue_scope(self, declared: QueueDeclare) -> Scope:
        return Scope.LINK


class _Channel:
    """A sink that acknowledges ACK_EVERY messages at a time."""

    client = "the benchmark"

    def __init__(self) -> None:
        self.held: list[Entry] = []

    def credit(self, consumer: Consumer) -> int:
        return UNLIMITED

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        self.held += entries

    def cancelled(self, consumer: Consumer) -> None: ...

    def acknowledge(self, queue: Queue) -> None:
        held, at = self.held, 0
        while at + ACK_EVERY <= len(held):
            queue.acknowledge(held[at : at + ACK_EVERY])
            at += ACK_EVERY
        del held[:at]


class _Keeper:
    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def batch(self, batch: Batch) -> None:
        self.batches.append(batch)


def _uuids() -> Callable[[], bytes]:
    made = iter(range(1, 1 << 30))
    return lambda: next(made).to_bytes(16, "big")


class _Broker:
    """A virtual host with one queue and its consumers; `tick` is one wake-up with one run of messages."""

    def __init__(self, hooks: Hooks, run: int, consumers: int = 1) -> None:
        self.vhosts = VirtualHosts(hooks, History(), _uuids())
        self.vhosts.activate(1)
        self.vhost = self.vhosts.root
        self.keeper = _Keeper()
        self.vhost.history.sinks.append(self.keeper)
        self.queue = self.vhost.declare_queue("q", owner=self)
        self.channels = [_Channel() for _ in range(consumers)]
        for number, channel in enumerate(self.channels):
            self.vhost.consume(self.queue, Consumer(str(number), channel))
        self.raws = [bytes(BODY) for _ in range(run)]
        self.now = 0.0

    def tick(self) -> None:
        vhost = self.vhost
        route = vhost.route("", "q")
        vhost.publish(route, self.raws[:], persistent=False, channel=1, largest_frame=BODY)
        self.vhosts.dispatch()
        for channel in self.channels:
            channel.acknowledge(self.queue)
        self.now += 0.001
        vhost.history.flush(self.now, 0)


def _measure(work: Callable[[], None], messages: int, seconds: float) -> float:
    """Microseconds of CPU a message, the best of five stretches."""
    best = float("inf")
    for _ in range(5):
        count, begun = 0, time.process_time()
        while (spent := time.process_time() - begun) < seconds / 5:
            work()
            count += 1
        best = min(best, spent / (count * messages) * 1e6)
    return best


def _primary(hooks: Hooks, run: int, seconds: float, consumers: int = 1) -> float:
    broker = _Broker(hooks, run, consumers)

    def work() -> None:
        for _ in range(10):
            broker.tick()
        broker.keeper.batches.clear()

    return _measure(work, run * 10, seconds)


def _records(run: int, ticks: int = 200) -> list[Record]:
    broker = _Broker(_Replicated(), run)
    for _ in range(ticks):
        broker.tick()
    broker.vhost.history.flush(broker.now, 0, force=True)
    return [record for batch in broker.keeper.batches for record in batch.records]


def _encode(run: int, seconds: float) -> float:
    records = _records(run)

    def work() -> None:
        for record in records:
            encode_record(record)

    return _measure(work, run * 200, seconds)


def _backup(run: int, seconds: float) -> float:
    chunks = [encode_record(r) for r in _records(run)]

    def work() -> None:
        backup = VirtualHosts(Hooks(), History(), _uuids())
        for chunk in chunks:
            for record in decode_records(chunk):
                backup.apply(record)
        held = backup.root.queues["q"].total_count
        if held >= ACK_EVERY:
            raise RuntimeError(f"the backup kept {held} messages")

    return _measure(work, run * 200, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU microseconds a message of the broker's model")
    parser.add_argument("--seconds", type=float, default=1.0, help="of CPU for each line")
    seconds = parser.parse_args().seconds
    print(
        f"{'run':>5} {'alone':>7} {'replicated':>11} {'4 consumers':>12} {'encode':>7} {'backup':>7}  us/msg"
    )
    for run in (1, 10, 100, 1000):
        figures = (
            _primary(Hooks(), run, seconds),
            _primary(_Replicated(), run, seconds),
            _primary(_Replicated(), run, seconds, consumers=4),
            _encode(run, seconds),
            _backup(run, seconds),
        )
        print(f"{run:>5} " + "{:>7.2f} {:>11.2f} {:>12.2f} {:>7.2f} {:>7.2f}".format(*figures))


if __name__ == "__main__":
    main()
