"""One client process of the demo: `python -m understudy.demo.worker WORK`. WORK is a JSON object.

Writes JSON lines to the demo: `ready` once connected, counts every 0.2 s, and `done` at the end. Reads
commands from standard input: `go` starts a publisher, `stop` ends a consumer. End of file means that the demo
is gone; the process then exits.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from understudy.client import Consumer, Publisher
from understudy.demo.plain_client import Plain
from understudy.demo.workload import BODY_BYTES, CONSUMERS, QUEUES, Work, queues_of, route_of

REPORT_INTERVAL = 0.2
_PACE = 0.01


class Line:
    """The connection to the demo: events out, commands in."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.stop = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, name="line", daemon=True).start()

    def say(self, event: str, **fields: Any) -> None:
        text = json.dumps({"event": event, "at": time.time(), **fields})
        with self._lock:
            print(text, flush=True)

    def _listen(self) -> None:
        for line in sys.stdin:
            match line.strip():
                case "go":
                    self.go.set()
                case "stop":
                    self.stop.set()
        if not self.stop.is_set():
            os._exit(3)


@contextmanager
def reporting(line: Line, counts: Any) -> Iterator[None]:
    """Report `counts()` regularly from a separate thread, and once more at the end."""
    over = threading.Event()

    def report() -> None:
        while not over.wait(REPORT_INTERVAL):
            line.say("counts", **counts())

    thread = threading.Thread(target=report, name="report", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        line.say("counts", **counts())


def publish(work: Work, line: Line) -> None:
    """Publish the given number of messages at the given rate, and wait until all are confirmed."""
    declare = [QUEUES[name] for name in queues_of(work.name)]
    publisher = Publisher(
        work.addresses, f"publisher-{work.name}", work.ledger_dir, exactly_once=True, declare=declare
    )
    counts = publisher.counts
    route = route_of(work.name)
    publisher.connect()
    line.say("ready")
    while not line.go.wait(0.2):
        publisher.poll()

    def told() -> dict[str, int]:
        return {"published": counts.published, "confirmed": counts.confirmed}

    with publisher, reporting(line, told):
        began = time.monotonic()
        for index in range(work.messages):
            if work.rate:
                while (early := began + index / work.rate - time.monotonic()) > 0:
                    publisher.poll(max(_PACE, early))
            to = route(index)
            body = f"{work.name} {index} ".encode().ljust(BODY_BYTES, b".")
            publisher.publish(body, to.routing_key, to.exchange)
        publisher.flush()
    line.say(
        "done",
        published=counts.published,
        confirmed=counts.confirmed,
        resent=counts.resent,
        outages=[[outage.began, outage.lost, outage.ended] for outage in publisher.failover.outages],
    )


def consume(work: Work, line: Line) -> None:
    """Consume some queues, each in its own thread, until told to stop."""
    consumers = [
        Consumer(work.addresses, queue, f"consumer-{queue}", work.ledger_dir, declare=[QUEUES[queue]])
        for queue in CONSUMERS[work.name]
    ]
    for consumer in consumers:
        consumer.connect()
    line.say("ready")
    failures: list[BaseException] = []

    def run(consumer: Consumer) -> None:
        try:
            with consumer:
                for _ in consumer.deliveries(until=line.stop.is_set):
                    pass
        except BaseException as error:
            failures.append(error)
            raise

    def counts() -> dict[str, int]:
        return {
            "received": sum(consumer.counts.received for consumer in consumers),
            "redelivered": sum(consumer.counts.redelivered for consumer in consumers),
        }

    threads = [threading.Thread(target=run, args=(each,), name=each.queue) for each in consumers]
    with reporting(line, counts):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    line.say("done", **counts())


def plain(work: Work, line: Line) -> None:
    """Kombu in its ordinary use, without the kit."""
    client = Plain(work.addresses, QUEUES[work.name])
    client.connect()
    line.say("ready")
    line.go.wait()
    with reporting(line, client.counts):
        client.run(work.messages, work.rate, line.stop)
    line.say("done", **client.counts(), outage=client.outage)


def main() -> None:
    work = Work(**json.loads(sys.argv[1]))
    {"publisher": publish, "consumer": consume, "plain": plain}[work.role](work, Line())


if __name__ == "__main__":
    main()
