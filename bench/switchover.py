"""How long the client kit waits at a planned change of primaries: `python -m bench.switchover [--rounds N]`.

Real processes, a pair or more; a publisher (window 100) and a consumer of the kit run throughout. Each round
asks for a switchover as an operator does, waits until all others are ready backups again, and goes on. For
each client an interruption runs from the last confirm (delivery) before to the first after it, as the kit
measures it (`Failover.outages`); each message that the publisher was asked for must arrive. With `--plain`
also a client on kombu alone with its own list of addresses: the longest stretch without a confirm.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import kombu.entity

from understudy.client import Consumer, Publisher
from understudy.demo.plain_client import Plain
from understudy.demo.processes import Children
from understudy.demo.stage import free_ports
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort

_Queue: Any = kombu.entity.Queue
QUEUE = _Queue("orders", durable=True)
PLAIN = _Queue("plain", durable=True)
PATIENCE = 30.0
GLANCE = 0.05
PLAIN_MESSAGES, PLAIN_RATE = 600, 200.0


class Failed(Exception):
    """One line."""


class Traffic:
    """A publisher and a consumer in threads of their own, until `stop`."""

    def __init__(self, addresses: str, rate: float) -> None:
        self.publisher = Publisher(addresses, "shop", declare=[QUEUE], window=100)
        self.consumer = Consumer(addresses, "orders", "store", declare=[QUEUE])
        self.rate = rate
        self.sent = 0
        self.seen: set[int] = set()
        self._enough = threading.Event()
        self._all_sent = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._publish, self._consume)]
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        began = time.monotonic()
        try:
            with self.publisher:
                while not self._enough.is_set():
                    while (early := began + self.sent / self.rate - time.monotonic()) > 0:
                        self.publisher.poll(early)
                    self.publisher.publish(b"%d" % self.sent, "orders")
                    self.sent += 1
        finally:
            self._all_sent.set()

    def _consume(self) -> None:
        def done() -> bool:
            return self._all_sent.is_set() and len(self.seen) >= self.sent

        with self.consumer:
            for delivery in self.consumer.deliveries(until=done):
                self.seen.add(int(delivery.body))

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE)
            if thread.is_alive():
                raise Failed("a client did not come to its end")


def start_nodes(children: Children, folder: Path, count: int) -> dict[str, HostPort]:
    """So many nodes, the first of them promoted, the others ready."""
    names = "abcde"[:count]
    addresses = [HostPort("127.0.0.1", port) for port in free_ports(count)]
    all_of_them = ",".join(map(str, addresses))
    for name, address in zip(names, addresses, strict=True):
        arguments = ["understudy", "serve", "--name", name, "--listen", str(address)]
        arguments += ["--data-dir", str(folder / name), "--set", f"ha.brokers={all_of_them}"]
        children.start(name, arguments)
    for address in addresses:
        wait_for(address, "joining")
    answer = ask(addresses[0], "promote")
    if not answer["ok"]:
        raise Failed(answer["reason"])
    for address in addresses[1:]:
        wait_for(address, "ready")
    return dict(zip(names, addresses, strict=True))


def wait_for(address: HostPort, status: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if ask(address, "status", timeout=5)["status"]["status"] == status:
                return
        except Unreachable:
            pass
        time.sleep(GLANCE)
    raise Failed(f"waited in vain for {address} to be {status}")


def measure(rounds: int, rate: float, count: int, *, plain: bool) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name, Children(Path(name)) as children:
        nodes = start_nodes(children, Path(name), count)
        names, addresses = list(nodes), ",".join(map(str, nodes.values()))
        traffic = Traffic(addresses, rate)
        commands: list[float] = []
        waits: list[float] = []
        for number in range(rounds):
            primary, heir = names[number % count], names[(number + 1) % count]
            client = PlainTraffic(addresses) if plain else None
            before = traffic.publisher.counts.confirmed
            while traffic.publisher.counts.confirmed < before + rate / 2:
                time.sleep(GLANCE)
            began = time.monotonic()
            answer = ask(nodes[primary], "switchover", {"to": heir})
            commands.append(time.monotonic() - began)
            if not answer["ok"]:
                raise Failed(answer["reason"])
            wait_for(nodes[heir], "active")
            for other in names:
                if other != heir:
                    wait_for(nodes[other], "ready")
            if client is not None:
                waits.append(client.longest())
        traffic.stop()
        missing = traffic.sent - len(traffic.seen)
        return {
            "rounds": rounds,
            "messages": traffic.sent,
            "missing": missing,
            "sent again": traffic.publisher.counts.resent,
            "delivered again": traffic.consumer.counts.received - len(traffic.seen),
            "command": figures(commands),
            "publisher": figures([outage.seconds for outage in traffic.publisher.failover.outages]),
            "consumer": figures([outage.seconds for outage in traffic.consumer.failover.outages]),
            **({"plain kombu": figures(waits)} if plain else {}),
        }


class PlainTraffic:
    """A client on kombu alone, for some three seconds; `longest` waits for its end."""

    def __init__(self, addresses: str) -> None:
        self._client = Plain(addresses, PLAIN)
        self._client.connect()
        arguments = (PLAIN_MESSAGES, PLAIN_RATE, threading.Event())
        self._thread = threading.Thread(target=self._client.run, args=arguments, daemon=True)
        self._thread.start()

    def longest(self) -> float:
        """Seconds between two confirms."""
        self._thread.join(PATIENCE)
        counts = self._client.counts()
        if self._thread.is_alive() or counts["lost"] or counts["confirmed"] < PLAIN_MESSAGES:
            raise Failed(f"the plain client did not come to its end: {counts}")
        return self._client.outage


def figures(seconds: list[float]) -> dict[str, float]:
    """Of so many, in milliseconds."""
    ms = sorted(1000 * each for each in seconds)
    return {"count": len(ms), "median ms": round(median(ms), 1), "max ms": round(ms[-1], 1)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.switchover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--rate", type=float, default=2000.0, help="messages a second (2000)")
    parser.add_argument("--nodes", type=int, choices=range(2, 6), default=2)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        found = measure(options.rounds, options.rate, options.nodes, plain=options.plain)
    except (Failed, Unreachable) as error:
        print(f"bench.switchover: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(found))
    else:
        for key, value in found.items():
            text = value if not isinstance(value, dict) else ", ".join(f"{k} {v}" for k, v in value.items())
            print(f"{key:>16}  {text}")
    return 1 if found["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
