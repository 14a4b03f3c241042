"""Nets of two nodes for `bench.federation`: Understudy's federation, and RabbitMQ's federation and shovel.

Each node is one broker, or a pair. The exchange `fed.x` is at both. Messages that are published upstream come
to the queues that are bound to it downstream, directly or over a line (`understudy.demo.line`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from bench import brokers
from bench.brokers import HOST, BrokerError, Cluster
from bench.compare import rabbitmq
from bench.compare.certificates import Files
from bench.wire import Properties, Wire, WireError, longstr, message_frames, method, shortstr
from broker.security.authenticator import hash_password
from understudy.demo.line import Line
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort

EXCHANGE = "fed.x"
PATIENCE = 60.0
POLL = 0.02
LOGIN, PASSWORD = "bench", "a word of the bench"
PLUGINS = ("rabbitmq_federation", "rabbitmq_shovel")


@dataclass(slots=True, frozen=True)
class Distance:
    """Of a line: seconds one way, and octets a second."""

    delay: float = 0.0
    rate: float | None = None


class Net(Protocol):
    """Two nodes. `up`, `down`: ports of the brokers that serve; `pids`: by node, whose CPU time counts."""

    up: int
    down: int
    pids: Mapping[str, list[int]]
    line: Line | None

    def federate(self) -> None:
        """From now on messages come."""

    def waiting(self) -> int:
        """Messages that wait upstream for the line."""

    def interest(self) -> int:
        """Bindings that the upstream knows of, once the link runs; 0: it does not run."""

    def close(self) -> None:
        """End all processes, and remove their folders."""


@dataclass(slots=True)
class Understudies:
    """Understudy at both ends, alone or as pairs."""

    up: int
    down: int
    pids: Mapping[str, list[int]]
    line: Line | None
    _there: list[HostPort]
    _stack: ExitStack

    @classmethod
    def start(cls, environment: Mapping[str, str], distance: Distance | None, *, pairs: bool) -> Understudies:
        """Raises BrokerError."""
        login = f"federation.logins.{LOGIN}"
        make = brokers.pair if pairs else brokers.alone
        with ExitStack() as stack:
            hub = stack.enter_context(make("federation.node=hub", environment=environment))
            leaf = stack.enter_context(
                make(
                    "federation.node=leaf", f"{login}.username={LOGIN}", f"{login}.password={PASSWORD}",
 environment=environment,
                )
            )  # fmt: skip
            there = [HostPort(HOST, broker.port) for broker in hub.brokers]
            line = None
            if distance is not None:
                line = stack.enter_context(Line(there, distance.delay, distance.rate))
                there = line.addresses
            pids = {"up": _pids(hub), "down": _pids(leaf)}
            net = cls(hub.brokers[0].port, leaf.brokers[0].port, pids, line, there, stack.pop_all())
        for port in (net.up, net.down):
            declare(port)
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        user = {"password_hash": hash_password(PASSWORD), "tags": ["federation"]}
        net._define(net.up, "user", LOGIN, user, vhost="")
        net._define(net.up, "permission", LOGIN, rights)
        return net

    def federate(self) -> None:
        upstream = {"addresses": list(map(str, self._there)), "login": LOGIN, "vhost": "/"}
        agent = {"exchange": EXCHANGE, "upstream": "hub", "consume-mode": "all"}
        self._define(self.down, "federation-upstream", "hub", upstream)
        self._define(self.down, "federation-agent", f"{EXCHANGE}@hub", agent)

    def waiting(self) -> int:
        queues = self._status(self.up, "query").get("queue_list", [])
        return sum(int(q["ready"] + q["unacked"]) for q in queues if q["name"] == f"amq.link.{EXCHANGE}@leaf")

    def interest(self) -> int:
        agents = self._status(self.down, "status").get("federation", {}).get("agents", [])
        return sum(int(agent["interest"]) for agent in agents if agent["state"] == "running")

    def close(self) -> None:
        self._stack.close()

    def _status(self, port: int, command: str) -> dict[str, Any]:
        try:
            found = ask(HostPort(HOST, port), command, timeout=PATIENCE).get("status")
        except Unreachable as error:
            raise BrokerError(str(error)) from None
        return found if isinstance(found, dict) else {}

    def _define(self, port: int, kind: str, name: str, value: dict[str, Any], vhost: str = "/") -> None:
        change = {"action": "put", "kind": kind, "vhost": vhost, "name": name, "value": value}
        answer = ask(HostPort(HOST, port), "define", {"changes": [change]})
        if not answer.get("ok"):
            raise BrokerError(f"{kind} {name}: {answer.get('reason')}")


def _pids(cluster: Cluster) -> list[int]:
    return [broker.process.pid for broker in cluster.brokers]


@dataclass(slots=True)
class Rabbits:
    """RabbitMQ at both ends, with its federation, or with a shovel."""

    up: int
    down: int
    pids: Mapping[str, list[int]]
    line: Line | None
    _hub: rabbitmq.Nodes
    _leaf: rabbitmq.Nodes
    _there: HostPort
    _shovel: bool
    _stack: ExitStack
    _buffer: str = field(default="")
    """The queue that holds what waits for the line."""

    @classmethod
    def start(cls, files: Files, distance: Distance | None, *, shovel: bool) -> Rabbits:
        """Raises MissingBroker or BrokerError."""
        with ExitStack() as stack:
            hub, leaf = (rabbitmq.start(1, files, plugins=PLUGINS) for _ in range(2))
            stack.callback(hub.close)
            stack.callback(leaf.close)
            there, line = HostPort(HOST, hub.ports[0]), None
            if distance is not None:
                line = stack.enter_context(Line([there], distance.delay, distance.rate))
                there = line.addresses[0]
            pids = {"up": hub.pids(), "down": leaf.pids()}
            net = cls(hub.ports[0], leaf.ports[0], pids, line, hub, leaf, there, shovel, stack.pop_all())
        for port in (net.up, net.down):
            declare(port)
        return net

    def federate(self) -> None:
        value: dict[str, Any]
        uri = f"amqp://guest:guest@{self._there}"
        if self._shovel:
            self._buffer = "shovel"
            wire = opened(self.up)
            wire.declare(self._buffer, durable=True)
            wire.bind(self._buffer, EXCHANGE, "#")
            wire.close()
            value = {
                "src-protocol": "amqp091", "src-uri": uri, "src-queue": self._buffer,
                "dest-protocol": "amqp091", "dest-uri": "amqp://", "dest-exchange": EXCHANGE,
            }  # fmt: skip
            value["dest-uri"] = f"amqp://guest:guest@{HOST}:{self.down}"
            self._leaf.control("set_parameter", "shovel", "bench", json.dumps(value))
            return
        value = {"uri": uri, "reconnect-delay": 1}
        self._leaf.control("set_parameter", "federation-upstream", "hub", json.dumps(value))
        policy = ("fed", "^fed\\.", '{"federation-upstream-set":"all"}')
        self._leaf.control("set_policy", "--apply-to", "exchanges", *policy)

    def waiting(self) -> int:
        if not self._buffer:
            names = self._hub.control("list_queues", "name").splitlines()
            self._buffer = next((name for name in names if name.startswith("federation: ")), "")
        return depth(self.up, self._buffer) if self._buffer else 0

    def interest(self) -> int:
        lines = self._hub.control("list_bindings", "source_name", "destination_name").splitlines()
        return sum(line.startswith(f"{EXCHANGE}\t") and "federation: " in line for line in lines)

    def close(self) -> None:
        self._stack.close()


# -- by AMQP 0-9-1, with all brokers alike


def opened(port: int) -> Wire:
    return Wire.open(HOST, port, user="guest", password="guest")


def declare(port: int) -> None:
    """The exchange, which stays."""
    wire = opened(port)
    arguments = b"\0\0" + shortstr(EXCHANGE) + shortstr("topic") + b"\2" + longstr(b"")
    wire.call(1, 40, 10, arguments)
    wire.close()


def bound(
    port: int, queue: str, keys: Iterator[str] | list[str], *, most: int = 0, durable: bool = True
) -> None:
    """A queue with those bindings. `most`: it keeps so many messages."""
    limit = shortstr("x-max-length") + b"I" + most.to_bytes(4, "big") if most else b""
    wire = opened(port)
    wire.declare(queue, durable=durable, arguments=limit)
    for key in keys:  # no-wait: the declaration below is answered after all of them
        names = shortstr(queue) + shortstr(EXCHANGE) + shortstr(key)
        wire.socket.sendall(method(1, 50, 20, b"\0\0" + names + b"\1" + longstr(b"")))
    wire.declare(queue, durable=durable, arguments=limit)
    wire.close()


def depth(port: int, queue: str) -> int:
    """Messages that are ready there."""
    wire = opened(port)
    arguments = b"\0\0" + shortstr(queue) + b"\1" + longstr(b"")
    try:
        answer = wire.call(1, 50, 10, arguments)
    except WireError:
        return 0
    finally:
        wire.close()
    at = 1 + answer[0]
    return int.from_bytes(answer[at : at + 4], "big")


def purge(port: int, queue: str) -> None:
    wire = opened(port)
    wire.call(1, 50, 30, b"\0\0" + shortstr(queue) + b"\0")
    wire.close()


def probe(port: int, key: str) -> None:
    """Publish one message."""
    wire = opened(port)
    wire.confirm_select()
    wire.socket.sendall(message_frames(key, b"probe", Properties(), exchange=EXCHANGE))
    wire.expect((60, 80))  # its confirm, whose class and method are these: basic.ack
    wire.close()


def until(condition: Callable[[], bool], what: str, limit: float = PATIENCE) -> float:
    """Wait for it. Returns the seconds that it took. Raises BrokerError after the limit."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit:
            raise BrokerError(f"waited {limit:g} s for {what}")
        time.sleep(POLL)
    return time.monotonic() - began


def joined(net: Net, queue: str) -> None:
    """Federate, and wait until messages come to that queue downstream, which is then empty."""
    net.federate()

    def arrives() -> bool:
        probe(net.up, queue)
        time.sleep(0.1)
        return depth(net.down, queue) > 0

    until(arrives, "a message to come over the link")
    way = net.line.delay if net.line is not None else 0.0
    had = -1
    while had != (had := depth(net.down, queue)):  # probes that are still on their way
        time.sleep(0.5 + 4 * way)
    purge(net.down, queue)
