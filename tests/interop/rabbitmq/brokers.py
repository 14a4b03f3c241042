"""The two brokers of a test, and what a test asks of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pika

from bench.compare import rabbitmq
from bench.compare.certificates import Files
from tests.understudy.serving import serving

_Found = TypeVar("_Found")
PATIENCE = 60.0
PLUGINS = ("rabbitmq_federation", "rabbitmq_shovel")
CLUSTER = "rabbit@hill"
SETTINGS = """
[federation]
node = "leaf"

[federation.logins.rabbit]
username = "guest"
password = "guest"

[federation.logins.secure]
username = "guest"
password = "guest"
tls = true
ca = "{ca}"
"""


def until(found: Callable[[], _Found]) -> _Found:
    """Ask until the answer is true; each question is a command, which takes long enough."""
    end = time.monotonic() + PATIENCE
    while not (answer := found()):
        assert time.monotonic() < end, answer
    return answer


@dataclass(slots=True)
class Client:
    """One connection with one channel, with confirms."""

    port: int
    connection: Any
    channel: Any

    def exchange(self, name: str, kind: str = "topic") -> None:
        self.channel.exchange_declare(name, kind, durable=True)

    def queue(self, name: str, exchange: str, *keys: str) -> None:
        self.channel.queue_declare(name, durable=True)
        for key in keys:
            self.channel.queue_bind(name, exchange, key)

    def publish(self, exchange: str, key: str, body: str, **properties: Any) -> None:
        self.channel.basic_publish(
            exchange, key, body.encode(), pika.BasicProperties(delivery_mode=2, **properties)
        )

    def gets(self, queue: str, count: int) -> list[tuple[str, pika.BasicProperties]]:
        """So many messages; then the consumer is cancelled."""
        found: list[tuple[str, pika.BasicProperties]] = []
        for method, properties, body in self.channel.consume(queue, inactivity_timeout=PATIENCE):
            assert method is not None, f"{found}, and no more"
            self.channel.basic_ack(method.delivery_tag)
            found.append((body.decode(), properties))
            if len(found) == count:
                break
        self.channel.cancel()
        return found

    def bodies(self, queue: str, count: int) -> list[str]:
        return [body for body, _ in self.gets(queue, count)]

    def depth(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)


@contextmanager
def client(port: int) -> Iterator[Client]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.confirm_delivery()
    try:
        yield Client(port, connection, channel)
    finally:
        if connection.is_open:
            connection.close()


class Rabbit:
    """One node. `link`: what its federation or shovel plugin shows of its links."""

    def __init__(self, nodes: rabbitmq.Nodes, files: Files) -> None:
        self.nodes = nodes
        self.port = nodes.ports[0]
        self.tls_port = nodes.tls_ports[0]
        self.ca = files.ca

    def control(self, *words: str) -> str:
        return self.nodes.control(*words)

    def eval(self, text: str) -> str:
        return self.control("eval", text).strip()

    def bindings(self, exchange: str) -> list[str]:
        """Keys for which an exchange is bound to one of another broker."""
        found = json.loads(self.control("list_bindings", "--formatter", "json"))
        return sorted(
            line["routing_key"] for line in found
            if line["source_name"] == exchange and line["destination_kind"] == "exchange"
        )  # fmt: skip


@contextmanager
def rabbit(folder: Path) -> Iterator[Rabbit]:
    files = Files.made(folder)
    nodes = rabbitmq.start(1, files, folder, PLUGINS)
    try:
        made = Rabbit(nodes, files)
        made.control("set_cluster_name", CLUSTER)
        yield made
    finally:
        nodes.close()


class Ours:
    """A broker of ours with the node name `leaf`."""

    def __init__(self, port: int) -> None:
        self.port = port

    def run(self, *words: str) -> str:
        command = [sys.executable, "-m", "understudy", *words, "-b", f"127.0.0.1:{self.port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def upstream(self, rabbit: Rabbit, name: str = "rabbit", *, tls: bool = False) -> None:
        port, login = (rabbit.tls_port, "secure") if tls else (rabbit.port, "rabbit")
        self.run(
            "federate", "upstream", name, "--addresses", f"127.0.0.1:{port}", "--login", login,
            "--protocol", "amqp",
        )  # fmt: skip

    def agent(self, exchange: str, *words: str, upstream: str = "rabbit") -> None:
        self.run("federate", "agent", "--exchange", exchange, "--upstream", upstream, *words)

    def line(self, exchange: str) -> dict[str, Any]:
        found = json.loads(self.run("federate", "list", "--format", "json"))
        return next((line for line in found if line["exchange"] == exchange), {})

    def runs(self, exchange: str) -> dict[str, Any]:
        """Wait until its agent does, with all bindings told."""

        def running() -> dict[str, Any]:
            line = self.line(exchange)
            return line if line.get("state") == "running" else {}

        return until(running)


@contextmanager
def ours(folder: Path, ca: Path) -> Iterator[Ours]:
    """`ca`: of the RabbitMQ, for the login `secure`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "leaf.toml").write_text(SETTINGS.format(ca=ca))
    with serving(folder / "data", "--config", str(folder / "leaf.toml")) as node:
        yield Ours(node.amqp.port)


def pulls(rabbit: Rabbit, ours: Ours, exchange: str, *, max_hops: int = 1) -> None:
    """RabbitMQ's own federation takes from the exchange of that name at ours."""
    where = {"uri": f"amqp://guest:guest@127.0.0.1:{ours.port}", "max-hops": max_hops}
    rabbit.control("set_parameter", "federation-upstream", "ours", json.dumps(where))
    policy = json.dumps({"federation-upstream": "ours"})
    rabbit.control("set_policy", f"pull-{exchange}", f"^{exchange}$", policy, "--apply-to", "exchanges")


def bound(ours: Ours, exchange: str) -> list[str]:
    """Keys for which an exchange of ours is bound to one of another broker."""
    found = json.loads(ours.run("definitions", "export", "-"))["bindings"]
    return sorted(
        line["routing_key"] for line in found
        if line["source"] == exchange and line["destination_type"] == "exchange"
    )  # fmt: skip
