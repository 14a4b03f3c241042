"""deploy/haproxy: HAProxy takes the file, and clients go through it to whichever node serves.

Under `manual` an operator promotes, under `etcd` the pair does so by itself.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import kombu
import pika
import pytest

from tests.deploy.tools import PATH, PATIENCE, fill, require, run
from tests.failover.nodes.cluster import Cluster, Place
from tests.failover.nodes.etcd import EtcdCluster
from tests.failover.nodes.pair import FAULTS
from tests.ports import free_ports
from understudy.client import Consumer, Publisher
from understudy.shared.addresses import HostPort

HOSTS = {"a": "127.0.0.1", "b": "127.0.0.2"}
FILE = "haproxy/haproxy.cfg"


def test_haproxy_takes_the_file(tmp_path: Path) -> None:
    require("haproxy")
    config = tmp_path / "haproxy.cfg"
    config.write_text(fill(FILE))
    done = run("haproxy", "-c", "-f", config)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    config.write_text(fill(FILE).replace("option httpchk", "option httpcheck"))
    assert run("haproxy", "-c", "-f", config).returncode != 0


def test_clients_go_on_through_it_once_the_other_node_is_promoted(tmp_path: Path) -> None:
    orders = kombu.Queue("orders", durable=True)
    with proxied(tmp_path) as (pair, front):
        pair.start("a", "b")
        assert pair.command("promote", "a")[0] == 0
        pair.wait_for("b", "ready")
        with Publisher(f"127.0.0.1:{front}", name="shop", declare=[orders]) as publisher:
            publish(publisher, range(200))
            publisher.flush(PATIENCE)
            publish(publisher, range(200, 250))
            pair.kill("a")
            assert pair.command("promote", "b")[0] == 0
            publish(publisher, range(250, 400))
            publisher.flush(PATIENCE)
            assert publisher.counts.confirmed == 400
        assert received(f"127.0.0.1:{front}", 400) == set(range(400))


def test_an_etcd_pair_fails_over_behind_it_under_the_load_of_a_plain_client(tmp_path: Path) -> None:
    with served_by_itself(tmp_path) as (pair, front, first, second), Plain(front) as client:
        client.until_confirmed(200)
        pair.kill(first)
        client.until_confirmed(len(client.confirmed) + 200)
        assert pair.status(second) in ("active", "recovering")
        client.stop()
        assert client.connections == 2, "one to each primary"
        assert received(f"127.0.0.1:{front}", client.sent) >= set(client.confirmed)


def test_a_switchover_behind_it_moves_the_clients_of_before(tmp_path: Path) -> None:
    with served_by_itself(tmp_path) as (pair, front, first, second), Plain(front) as client:
        client.until_confirmed(200)
        idle = connected(front)
        assert pair.command("switchover", first)[0] == 0
        assert is_cut(idle), "no connection to the old primary is left"
        client.until_confirmed(len(client.confirmed) + 200)
        assert pair.status(second) in ("active", "recovering")
        client.stop()
        assert received(f"127.0.0.1:{front}", client.sent) >= set(client.confirmed)


@pytest.mark.system
def test_haproxy_itself_cuts_the_connections_to_a_frozen_primary(tmp_path: Path) -> None:
    """The broker there cannot; `on-marked-down shutdown-sessions` does."""
    with served_by_itself(tmp_path) as (pair, front, first, second), Plain(front) as client:
        client.until_confirmed(200)
        idle = connected(front)
        pair.freeze(first)
        assert is_cut(idle)
        client.until_confirmed(len(client.confirmed) + 200)
        pair.thaw(first)
        pair.wait_for(first, "ready")
        client.stop()
        assert pair.status(second) == "active"
        assert received(f"127.0.0.1:{front}", client.sent) >= set(client.confirmed)


@contextmanager
def proxied(folder: Path, *settings: str) -> Iterator[tuple[Cluster, int]]:
    """Two nodes that are not started, and the port of a HAProxy before them."""
    require("haproxy")
    amqp, http, front = free_ports(3)
    places = {
        name: Place(HostPort(host, amqp), ("env", f"UNDERSTUDY_BROKER__HTTP={host}:{http}"))
        for name, host in HOSTS.items()
    }
    config = folder / "haproxy.cfg"
    config.write_text(
        fill(FILE, BROKER_A=HOSTS["a"], BROKER_B=HOSTS["b"], BROKER_PORT=str(amqp), HTTP_PORT=str(http),
             PROXY_LISTEN=f"127.0.0.1:{front}")
    )  # fmt: skip
    with Cluster(folder / "pair", places, *settings) as pair, haproxy(config, folder / "haproxy.log"):
        yield pair, front


@contextmanager
def served_by_itself(folder: Path) -> Iterator[tuple[Cluster, int, str, str]]:
    """A pair with etcd, the port of HAProxy, and the names of the primary and the backup."""
    with EtcdCluster(folder, 1) as etcd:
        settings = ("ha.authority=etcd", f"ha.etcd.endpoints={etcd.listed}", "ha.failover_timeout=2s")
        with proxied(folder, *settings) as (pair, front):
            pair.start(*HOSTS)
            pair.until(lambda: {pair.status(name) for name in HOSTS} == {"active", "ready"}, "a whole pair")
            names = {pair.status(name): name for name in HOSTS}
            yield pair, front, names["active"], names["ready"]


def connected(front: int) -> pika.BlockingConnection:
    """As guest, once that is possible."""
    deadline, pause = time.monotonic() + PATIENCE, threading.Event()
    while True:
        try:
            return pika.BlockingConnection(
                pika.ConnectionParameters("127.0.0.1", front, socket_timeout=5, stack_timeout=10)
            )
        except FAULTS:
            assert time.monotonic() < deadline, "nobody serves behind HAProxy"
            pause.wait(0.05)


def is_cut(idle: pika.BlockingConnection) -> bool:
    try:
        idle.process_data_events(time_limit=PATIENCE)  # type: ignore[arg-type]
    except FAULTS:
        return True
    return False


class Plain:
    """pika, one port, one message at a time with its confirm; what is not confirmed is sent again. A context
    manager, with a thread of its own."""

    def __init__(self, front: int) -> None:
        self._front = front
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.confirmed: list[int] = []
        self.sent = 0
        self.connections = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def until_confirmed(self, count: int) -> None:
        deadline, pause = time.monotonic() + PATIENCE, threading.Event()
        while len(self.confirmed) < count:
            assert self._thread.is_alive() and time.monotonic() < deadline, self.confirmed[-1:]
            pause.wait(0.01)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._publish(connected(self._front))
            except FAULTS:
                pass  # again, at the same port

    def _publish(self, connection: Any) -> None:
        with connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("orders", durable=True)
            self.connections += 1
            while not self._stopped.is_set():
                number = len(self.confirmed)
                self.sent = number + 1
                channel.basic_publish("", "orders", b"%d" % number, mandatory=True)
                self.confirmed.append(number)


def publish(publisher: Publisher, numbers: range) -> None:
    for number in numbers:
        publisher.publish(b"%d" % number, routing_key="orders")


def received(address: str, count: int) -> set[int]:
    """The different messages that are there, once there are so many, or after some time."""
    got: set[int] = set()
    deadline = time.monotonic() + PATIENCE
    with Consumer(address, "orders", name="billing") as consumer:
        for delivery in consumer.deliveries(until=lambda: len(got) == count or time.monotonic() > deadline):
            got.add(int(delivery.body))
            consumer.ack(delivery)
    return got


@contextmanager
def haproxy(config: Path, log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["haproxy", "-db", "-f", str(config)], stdout=out, stderr=out, env={"PATH": PATH}
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
