"""deploy/haproxy: HAProxy takes the file, and clients go through it to whichever node serves."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kombu

from tests.deploy.tools import PATH, PATIENCE, fill, require, run
from tests.failover.nodes.cluster import Cluster, Place
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
    require("haproxy")
    amqp, http, front = free_ports(3)
    places = {
        name: Place(HostPort(host, amqp), ("env", f"UNDERSTUDY_BROKER__HTTP={host}:{http}"))
        for name, host in HOSTS.items()
    }
    config = tmp_path / "haproxy.cfg"
    config.write_text(
        fill(FILE, BROKER_A=HOSTS["a"], BROKER_B=HOSTS["b"], BROKER_PORT=str(amqp), HTTP_PORT=str(http),
             PROXY_LISTEN=f"127.0.0.1:{front}")
    )  # fmt: skip
    orders = kombu.Queue("orders", durable=True)
    with Cluster(tmp_path / "pair", places) as pair, haproxy(config, tmp_path / "haproxy.log"):
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
