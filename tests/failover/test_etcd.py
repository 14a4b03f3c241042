"""A pair whose authority is etcd, as real processes: it serves and fails over by itself."""

from __future__ import annotations

import itertools
import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import kombu
import pika
import pytest

from tests.failover.nodes.etcd import EtcdCluster, coded
from tests.failover.nodes.machine_clock import set_machine_clock
from tests.failover.nodes.pair import PATIENCE, Pair, channel_of
from tests.tls import Authority
from understudy.client import Consumer, Publisher

ORDERS = kombu.Queue("orders", durable=True)
FAILOVER = 2
TIMEOUT = f"ha.failover_timeout={FAILOVER}s"


def etcd_pair(folder: Path, endpoints: str, *settings: str) -> Pair:
    return Pair(folder, "ha.authority=etcd", f"ha.etcd.endpoints={endpoints}", TIMEOUT, *settings)


@contextmanager
def whole(folder: Path, etcd: EtcdCluster, *settings: str) -> Iterator[tuple[Pair, str, str]]:
    """A pair that serves, and the names of its primary and its backup."""
    with etcd_pair(folder, etcd.listed, *settings) as pair:
        pair.start("left", "right")
        yield pair, *roles(pair)


def roles(pair: Pair) -> tuple[str, str]:
    """Wait until one serves and the other is ready. Nobody promotes."""
    names = ("left", "right")

    def found() -> dict[str, str]:
        return {pair.status(name): name for name in names}

    pair.until(lambda: {"active", "ready"} <= found().keys(), "one to serve, and one to be ready")
    now = found()
    return now["active"], now["ready"]


def said(pair: Pair, name: str) -> str:
    return str(pair.answer(name).get("reason"))


def until_told(pair: Pair, name: str, words: str) -> None:
    """Its status has these words."""
    pair.until(lambda: words in str(pair.answer(name)), f"{name} to say: {words}")


class Load:
    """Publishes numbers, and has them confirmed, wherever the primary is."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._publisher = Publisher(pair.list, "shop", declare=[ORDERS])
        self.sent = 0

    def more(self, count: int = 100) -> None:
        for _ in range(count):
            self._publisher.publish(b"%d" % self.sent, routing_key="orders")
            self.sent += 1
        self._publisher.flush(PATIENCE)

    def all_is_there(self) -> None:
        self._publisher.close()
        seen: Counter[int] = Counter()
        with Consumer(self._pair.list, "orders", "billing") as consumer:
            for delivery in consumer.deliveries(until=lambda: len(seen) == self.sent):
                seen[int(delivery.body)] += 1
        assert set(seen) == set(range(self.sent))


def test_a_killed_primary_is_followed_without_anybodys_hand(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, 1) as etcd, whole(tmp_path, etcd) as (pair, first, second):
        load = Load(pair)
        load.more()
        pair.kill(first)
        load.more()
        pair.start(first)
        pair.wait_for(first, "ready")
        assert roles(pair) == (second, first), "no failback"
        pair.kill(second)
        load.more()
        load.all_is_there()


@pytest.mark.system
def test_a_frozen_primary_is_followed_once_its_lease_has_run_out(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, 1) as etcd, whole(tmp_path, etcd) as (pair, first, second):
        load = Load(pair)
        load.more()
        pair.freeze(first)
        load.more()
        assert pair.status(second) in ("active", "recovering")
        pair.thaw(first)
        pair.wait_for(first, "ready")
        load.all_is_there()


@pytest.mark.system
def test_members_of_etcd_die_one_by_one_then_all_and_nothing_is_lost(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path) as etcd, whole(tmp_path, etcd) as (pair, first, second):
        load = Load(pair)
        for number in range(3):
            etcd.kill(number)
            load.more()
            etcd.start(number)
            etcd.until_it_commits()
            etcd.freeze(number)
            load.more()
            etcd.thaw(number)
        assert roles(pair) == (first, second), "etcd is no reason to fail over"
        etcd.kill(0, 1, 2)
        pair.until(lambda: "etcd-unreachable" in str(pair.answer(first)["authority"]), "etcd to be missed")
        load.more()
        assert pair.status(first) == "active", "a whole pair has nothing to decide"
        pair.kill(first)
        pair.until(
            lambda: "the authority does not say who may serve: " in said(pair, second),
            "the reason to be told",
        )
        assert pair.status(second) == "ready"
        code, _, err = pair.command("promote", second)
        assert code == 1 and "promote-authority-fails" in err and "connection refused" in err
        etcd.start(0, 1, 2)
        load.more()
        assert pair.status(second) in ("active", "recovering")
        load.all_is_there()


@pytest.mark.system
def test_etcd_is_compacted_and_defragmented_under_load_and_nothing_is_lost(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path) as etcd, whole(tmp_path, etcd) as (pair, first, second):
        load = Load(pair)

        def tend() -> None:
            for _ in range(3):
                for number in range(100):
                    etcd.put("/other", f"{number}" * 1000)
                etcd.compact()

        with ThreadPoolExecutor(1) as pool:
            tended = pool.submit(tend)
            while not tended.done():
                load.more()
            tended.result()
        assert roles(pair) == (first, second), "that is no reason to fail over"
        pair.kill(first)
        load.more()
        assert pair.status(second) in ("active", "recovering")
        etcd.compact()
        pair.start(first)
        pair.wait_for(first, "ready")
        load.all_is_there()


def fill(etcd: EtcdCluster) -> None:
    """Until it refuses writes, and has raised the alarm."""
    with pytest.raises(urllib.error.HTTPError, match="429"):
        for number in itertools.count():
            etcd.put(f"/other/{number}", "x" * 100_000)


@pytest.mark.system
def test_a_full_etcd_promotes_nobody_says_what_to_do_and_recovers_by_itself(tmp_path: Path) -> None:
    quota = ["--quota-backend-bytes", str(1 << 20)]
    with EtcdCluster(tmp_path, 1, quota) as etcd, whole(tmp_path, etcd) as (pair, first, second):
        load = Load(pair)
        load.more()
        fill(etcd)
        for name in (first, second):
            until_told(pair, name, "etcd-no-space")
            for _, out, _ in (pair.command("status", name), pair.controller(name, "status")):
                told = " ".join(out.split())
                assert "is full: compact and defragment it, then run `etcdctl alarm disarm`" in told
        past_the_lease = time.monotonic() + 2.5 * FAILOVER
        while time.monotonic() < past_the_lease:
            load.more()
        assert roles(pair) == (first, second), "the lease is renewed all the same"
        code, _, err = pair.command("switchover", first)
        assert code == 1 and "switchover-authority-away" in err and "database space exceeded" in err
        load.more()
        pair.kill(first)
        until_told(pair, second, "the authority does not say who may serve: etcd at ")
        code, _, err = pair.command("promote", second)
        assert code == 1 and "promote-authority-fails" in err
        assert pair.status(second) == "ready"
        etcd.control("del", "/other", "--prefix")
        etcd.compact()
        assert pair.status(second) == "ready", "the alarm is still on"
        etcd.control("alarm", "disarm")
        load.more()
        pair.start(first)
        pair.wait_for(first, "ready")
        assert all(pair.answer(name)["authority"]["ok"] for name in (first, second))
        load.all_is_there()


@pytest.mark.system
def test_clocks_jump_by_an_hour_and_nobody_fails_over_and_nothing_expires_early(tmp_path: Path) -> None:
    hour, twenty_minutes = 3600, 20 * 60_000
    with EtcdCluster(tmp_path, 1) as etcd, whole(tmp_path, etcd) as (pair, first, second):
        load, epoch = Load(pair), pair.answer(first)["epoch"]
        with channel_of(pair, first) as channel:
            channel.confirm_delivery()
            for queue in ("lasting", "brief"):
                channel.queue_declare(queue, durable=True)

            def publish(queue: str, milliseconds: int) -> None:
                properties = pika.BasicProperties(delivery_mode=2, expiration=str(milliseconds))
                channel.basic_publish("", queue, b"it expires", properties)

            publish("lasting", twenty_minutes)
            for of_etcd, of_first, of_second in ((hour, 0, 0), (-hour, hour, 0), (0, -hour, hour)):
                etcd.set_clock(of_etcd)
                set_machine_clock(pair.brokers[first].pid, of_first)
                set_machine_clock(pair.brokers[second].pid, of_second)
                if of_first != of_second:
                    until_told(pair, first, f"the clock of {second} is ")
                publish("lasting", twenty_minutes)
                publish("brief", 500)
                past_the_lease = time.monotonic() + 1.5 * FAILOVER
                while time.monotonic() < past_the_lease:
                    load.more()
                assert roles(pair) == (first, second), "a clock is no reason to fail over"
                assert depth(channel, "brief") == 0, "it does not expire late either"
            assert depth(channel, "lasting") == 4
        assert pair.answer(first)["epoch"] == epoch, "nobody was promoted meanwhile"
        pair.kill(first)
        load.more()
        with channel_of(pair, second) as channel:
            assert depth(channel, "lasting") == 4, "the new primary goes on from the old one's clock"
        load.all_is_there()


def depth(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


@pytest.mark.system
def test_etcd_with_tls_and_users(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, node = authority.signed("etcd"), authority.signed("node")
    options = [
        "--cert-file", server.certificate, "--key-file", server.key, "--trusted-ca-file", authority.ca,
        "--client-cert-auth",
    ]  # fmt: skip
    tls = authority.client(node)
    secure = (
        f"ha.etcd.ca={authority.ca}", f"ha.etcd.certificate={node.certificate}", f"ha.etcd.key={node.key}",
        "ha.etcd.username=orders",
    )  # fmt: skip
    with EtcdCluster(tmp_path, 1, options, tls) as etcd:
        prefix, end = "/understudy/pair/", "/understudy/pair0"
        for path, body in (
            ("auth/user/add", {"name": "root", "password": "of root"}),
            ("auth/user/grant", {"user": "root", "role": "root"}),
            ("auth/user/add", {"name": "orders", "password": "right"}),
            ("auth/role/add", {"name": "orders"}),
            ("auth/user/grant", {"user": "orders", "role": "orders"}),
            ("auth/enable", {}),
        ):
            etcd.call(f"/v3/{path}", dict(body))
        with etcd_pair(tmp_path / "refused", etcd.listed, *secure, "ha.etcd.password=not-it") as pair:
            pair.start("left", "right")
            pair.until(lambda: "etcd-refused" in str(pair.answer("left")["authority"]), "the refusal")
            assert "not-it" not in str(pair.answer("left")), "no password in what is told"
        with etcd_pair(tmp_path / "right", etcd.listed, *secure, "ha.etcd.password=right") as pair:
            pair.start("left", "right")
            pair.until(lambda: "permission denied" in said(pair, "left"), "the role to be missed")
            token = etcd.call("/v3/auth/authenticate", {"name": "root", "password": "of root"})["token"]
            permission = {"permType": "READWRITE", "key": coded(prefix), "range_end": coded(end)}
            etcd.call("/v3/auth/role/grant", {"name": "orders", "perm": permission}, token)
            load_first, _ = roles(pair)
            load = Load(pair)
            load.more()
            pair.kill(load_first)
            load.more()
            load.all_is_there()


class _Other(BaseHTTPRequestHandler):
    """A server that is no etcd."""

    def do_POST(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_what_is_not_an_etcd_or_holds_something_else_is_named(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Other)
    threading.Thread(target=server.serve_forever).start()
    host = f"127.0.0.1:{server.server_address[1]}"
    try:
        with etcd_pair(tmp_path / "other", f"http://{host}") as pair:
            pair.start("left")
            pair.until(lambda: "etcd-other-version" in str(pair.answer("left")["authority"]), "the fault")
            assert f"{host} does not speak the API of etcd 3.4 or later" in said(pair, "left")
    finally:
        server.shutdown()
        server.server_close()
    with EtcdCluster(tmp_path, 1) as etcd:
        etcd.put("/understudy/pair/record", "of somebody else")
        with etcd_pair(tmp_path / "foreign", etcd.listed) as pair:
            pair.start("left", "right")
            pair.until(lambda: "etcd-unreadable" in str(pair.answer("left")["authority"]), "the fault")
            assert "the key /understudy/pair/record of etcd holds no in-sync set: it is no JSON" in said(
                pair, "left"
            )
