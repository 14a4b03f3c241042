"""Clients in a process of their own, outside of the machines: `python -m tests.cluster.clients`.

The client kit's publishers and consumers, each with its ledger: `orders` knows the list of addresses, `plain`
the virtual address alone. Output is JSON lines: `{"gap": NAME, "from": T, "to": T}` for each time longer than
`NOTEWORTHY` without a confirm (seconds since 1970), `{"counts": {NAME: CONFIRMED}}` a few times a second.
`finish` on standard input: stop publishing, read all there is, say `{"done": {...}}`, end. If nothing more is
to be had, it says what is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.failover.nodes.namespaces import LOGIN
from tests.failover.soak.traffic import Gaps, KitPublisher, Reader

NOTEWORTHY = 0.15
"""Seconds without a confirm."""
_BEAT = 0.2
_DRAINS = 60.0

_saying = threading.Lock()


def say(event: dict[str, Any]) -> None:
    with _saying:
        print(json.dumps(event), flush=True)


class NotedGaps(Gaps):
    """Says each gap as soon as it is over."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._confirmed = time.time()

    def confirm(self) -> None:
        super().confirm()
        now, before = time.time(), self._confirmed
        self._confirmed = now
        if now - before > NOTEWORTHY:
            say({"gap": self._name, "from": before, "to": now})


class Clients:
    def __init__(self, addresses: str, virtual: str, ledgers: Path, rate: float) -> None:
        self._publishers = [
            KitPublisher("orders", addresses, LOGIN, ledgers, rate, gaps=NotedGaps("orders")),
            KitPublisher("plain", virtual, LOGIN, ledgers, rate, gaps=NotedGaps("plain")),
        ]
        self._readers = [
            Reader("orders", addresses, LOGIN, ledgers),
            Reader("plain", virtual, LOGIN, ledgers),
        ]

    def run(self, enough: threading.Event) -> None:
        for client in (*self._readers, *self._publishers):
            client.start()
        while not enough.wait(_BEAT):
            say({"counts": {each.name: each.confirms for each in self._publishers}})
            for client in (*self._readers, *self._publishers):
                if client.failure is not None:
                    raise client.failure
        self._finish()

    def _finish(self) -> None:
        for publisher in self._publishers:
            publisher.stop(_DRAINS)
        deadline, pause = time.monotonic() + _DRAINS, threading.Event()
        while any(self._missing().values()) and time.monotonic() < deadline:
            pause.wait(_BEAT)
        for reader in self._readers:
            reader.stop(_DRAINS)
        confirmed = sum(len(each.confirmed) for each in self._publishers)
        resent = sum(each.resent for each in self._publishers)
        say({"done": {"missing": self._missing(), "confirmed": confirmed, "resent": resent}})

    def _missing(self) -> dict[str, int]:
        """Confirmed messages of each publisher that its reader has not had."""
        pairs = zip(self._publishers, self._readers, strict=True)
        return {pub.name: len(pub.confirmed - reader.seen.get(pub.name, set())) for pub, reader in pairs}


def _when_told(word: str, then: Callable[[], None]) -> None:
    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == word:
                break
        then()

    threading.Thread(target=listen, daemon=True).start()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.clients")
    parser.add_argument("--addresses", required=True)
    parser.add_argument("--virtual", required=True)
    parser.add_argument("--ledgers", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=150.0, help="messages a second of each publisher")
    told = parser.parse_args()
    told.ledgers.mkdir(parents=True, exist_ok=True)
    enough = threading.Event()
    _when_told("finish", enough.set)
    Clients(told.addresses, told.virtual, told.ledgers, told.rate).run(enough)
    return 0


if __name__ == "__main__":
    sys.exit(main())
