"""A publisher in a process of its own that numbers its messages: `python -m tests.failover.soak.numbered
KIT ADDRESSES LEDGERS`, where KIT is 0-9-1 or 1.0.

It goes on where the process before it was not sure. The body of each message is its number. It writes JSON
lines: `going` with the first number, `counts` all along, `done` with the last number, or `fenced`. The line
`stop` on its standard input ends it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import kombu.entity

from tests.failover.nodes.cluster import PATIENCE
from understudy.client import Fenced, Publisher
from understudy.client import amqp10 as kit10

NAME = "numbered"
_Queue: Any = kombu.entity.Queue
_Exchange: Any = kombu.entity.Exchange
_COPIES: Any = _Exchange("copies", type="fanout", durable=True)
QUEUES: dict[str, Any] = {
    name: _Queue(name, exchange=_COPIES, durable=True) for name in ("copies.a", "copies.b")
}
"""All of them get each message."""
HEARTBEAT = 1.0
BURST = 150
"""Messages that are published at once, so that some are in doubt when something is killed."""
PAUSE = 0.05
FENCED = 3
"""Exit code of a process that a newer one has replaced."""


def say(event: str, **fields: int) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def publisher(kit: str, addresses: str, ledgers: str) -> Publisher | kit10.Publisher:
    if kit == "1.0":
        return kit10.Publisher(addresses, NAME, ledgers, exactly_once=True, heartbeat=HEARTBEAT)
    return Publisher(
        addresses, NAME, ledgers, exactly_once=True, declare=QUEUES.values(), heartbeat=HEARTBEAT,
        connect_timeout=HEARTBEAT,
    )  # fmt: skip


def publish(made: Publisher | kit10.Publisher) -> None:
    body = b"%d" % made.next_number
    if isinstance(made, Publisher):
        made.publish(body, "", "copies")
    else:
        made.publish(body, "/exchanges/copies")


def run(made: Publisher | kit10.Publisher, stop: threading.Event) -> None:
    with made:
        say("going", number=made.resume())
        while not stop.is_set():
            for _ in range(BURST):
                publish(made)
            say("counts", number=made.next_number - 1, resent=made.counts.resent)
            until = time.monotonic() + PAUSE
            while (left := until - time.monotonic()) > 0:
                made.poll(left)
        made.flush(PATIENCE)
    say("done", number=made.next_number - 1, resent=made.counts.resent)


def main() -> int:
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        run(publisher(*sys.argv[1:4]), stop)
    except Fenced as error:
        print(error, file=sys.stderr)
        say("fenced")
        return FENCED
    return 0


if __name__ == "__main__":
    sys.exit(main())
