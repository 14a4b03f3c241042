"""A pair that decides by itself which node serves, as real processes."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pika
import pytest

from tests.failover.nodes import namespaces
from tests.failover.nodes.cluster import Cluster
from tests.failover.nodes.namespaces import Lab, why_not
from tests.failover.nodes.pair import FAULTS, Pair, channel_of
from tests.failover.test_etcd import Load, roles, said

SETTINGS = ("ha.authority=pair", "ha.failover_timeout=1s")
OWN = {"left": ("ha.role=primary",), "right": ("ha.role=backup",)}
SERVES = ("active", "recovering")


def alone(folder: Path) -> Pair:
    """Not started yet."""
    pair = Pair(folder, *SETTINGS)
    pair.own = dict(OWN)
    return pair


def votes(pair: Pair, name: str) -> int:
    return int(pair.answer(name)["controller"]["votes"])


def test_only_a_client_is_a_vote_and_a_killed_primary_comes_back_as_a_backup(tmp_path: Path) -> None:
    with alone(tmp_path) as pair:
        pair.start("left", "right")
        assert roles(pair) == ("left", "right")
        load = Load(pair)
        load.more()
        pair.kill("left")
        pair.until(lambda: "as soon as a client comes" in said(pair, "right"), "the primary to be missed")
        address = pair.addresses["right"]
        socket.create_connection((address.host, address.port)).close()
        wrong = pika.ConnectionParameters(
            address.host, address.port, credentials=pika.PlainCredentials("guest", "wrong")
        )
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(wrong)
        code, out, _ = pair.controller("right", "status")
        assert code == 0 and "passive" in out and "offline" in out
        assert (votes(pair, "right"), pair.status("right")) == (0, "ready")
        load.more()  # clients that look for the primary: they come over
        assert pair.status("right") in SERVES
        pair.start("left")
        assert roles(pair) == ("right", "left"), "no failback"
        load.all_is_there()


def test_the_order_of_the_start_does_not_matter_and_early_clients_wait(tmp_path: Path) -> None:
    with alone(tmp_path) as pair:
        pair.start("right")
        opened = threading.Event()

        def early() -> None:
            with suppress(*FAULTS), channel_of(pair, "right"):
                opened.set()

        waiting = threading.Thread(target=early)
        waiting.start()
        pair.until(lambda: votes(pair, "right") > 0, "the client to be heard of")
        assert pair.status("right") == "joining" and not opened.is_set()
        pair.start("left")
        assert roles(pair) == ("left", "right")
        waiting.join(10)
        assert not opened.is_set(), "it was refused, as the other one serves"
        with pytest.raises(pika.exceptions.AMQPConnectionError) as refused, channel_of(pair, "right"):
            pass
        assert "320" in repr(refused.value) and "the primary is left" in repr(refused.value)


@pytest.mark.system
@pytest.mark.parametrize("order", [("left", "right"), ("right", "left")])
def test_orders_of_an_operator_and_stops_in_either_order(tmp_path: Path, order: tuple[str, str]) -> None:
    with alone(tmp_path) as pair:
        pair.start("left", "right")
        roles(pair)
        load = Load(pair)
        load.more()
        assert pair.controller("left", "passive")[0] == 0
        assert roles(pair) == ("right", "left")
        load.more()
        assert pair.controller("left", "active")[0] == 0
        assert roles(pair) == ("left", "right")
        load.more()
        assert pair.controller("right", "stop")[0] == 0
        found = json.loads(pair.controller("right", "status", "--format", "json")[1])
        assert (found["running"], found["role"], found["state"]) == (False, "backup", "passive")
        assert pair.controller("right", "start")[0] == 0
        for name in order:
            assert pair.stop(name) == 0
        pair.start(*order)
        roles(pair)
        load.more()
        load.all_is_there()


@pytest.mark.system
def test_a_frozen_primary_is_followed_and_wakes_as_a_backup(tmp_path: Path) -> None:
    with alone(tmp_path) as pair:
        pair.start("left", "right")
        roles(pair)
        load = Load(pair)
        load.more()
        pair.freeze("left")
        pair.until(lambda: "as soon as a client comes" in said(pair, "right"), "the primary to be missed")
        with channel_of(pair, "right") as channel:
            assert channel.queue_declare("orders", passive=True).method.message_count == load.sent
        pair.thaw("left")
        pair.until(lambda: pair.status("left") == "ready", "the old primary to join")
        load.more()
        load.all_is_there()


@pytest.mark.smoke
@pytest.mark.cluster
def test_a_cut_network_with_clients_on_both_sides(tmp_path: Path) -> None:
    """Both serve, as the documents say. Then they meet, and what one confirmed alone is kept apart."""
    if reason := why_not():
        pytest.skip(f"no network namespaces: {reason}")
    names = ("left", "right")
    with Lab(names) as lab, lab.inside():
        cluster = Cluster(tmp_path, lab.places(), *SETTINGS, *namespaces.SETTINGS, login=namespaces.LOGIN)
        cluster.own = dict(OWN)
        with cluster:
            cluster.start(*names)
            cluster.until(lambda: [cluster.status(n) for n in names] == ["active", "ready"], "a whole pair")
            publish(cluster, "left", "both")
            lab.drop("left", "right")
            lab.drop("right", "left")
            publish(cluster, "left", "of left")
            cluster.until(lambda: attempt(cluster, "right"), "the other one to serve, too")
            publish(cluster, "right", "of right")
            assert cluster.status("left") == "active"
            lab.heal()
            cluster.until(lambda: [cluster.status(n) for n in names] == ["ready", "active"], "one primary")
            assert cluster.answer("left")["quarantined"] == 1
            assert bodies(cluster, "right") == ["both", "of right"]


@pytest.mark.smoke
@pytest.mark.cluster
def test_a_witness_decides_when_the_network_is_cut(tmp_path: Path) -> None:
    """Clients on both sides; the one that reaches the witness serves, and the other one confirms nothing."""
    if reason := why_not():
        pytest.skip(f"no network namespaces: {reason}")
    names = ("left", "right", "third")
    with Lab(names) as lab, lab.inside():
        places = lab.places()
        told = ("ha.authority=pair", "ha.failover_timeout=2s", f"ha.witness={places['third'].address}")
        told += ("ha.witness_password=of the witness",)
        both = ",".join(str(places[name].address) for name in names[:2])
        cluster = Cluster(tmp_path, places, *namespaces.SETTINGS, login=namespaces.LOGIN)
        cluster.own = {name: (*told, *OWN[name]) for name in names[:2]}
        cluster.own["third"] = ("ha.witness_for=pair", "ha.witness_password=of the witness")
        with cluster:
            cluster.start("third", brokers="")
            cluster.start("left", "right", brokers=both)
            cluster.until(lambda: [cluster.status(n) for n in names[:2]] == ["active", "ready"], "a pair")
            publish(cluster, "left", "both")
            for one, other in (("left", "right"), ("right", "left")):
                lab.drop(one, other)
            publish(cluster, "left", "of left")
            cluster.until(lambda: "is still there" in str(cluster.answer("right")["reason"]), "the reason")
            assert not attempt(cluster, "right"), "the witness has heard the primary"
            lab.heal()
            cluster.until(lambda: [cluster.status(n) for n in names[:2]] == ["active", "ready"], "a pair")
            for other in ("right", "third"):
                lab.drop("left", other)
                lab.drop(other, "left")
            cluster.until(lambda: cluster.status("right") in SERVES, "the other one to take over")
            publish(cluster, "right", "of right")
            cluster.until(lambda: cluster.answer("left").get("withheld") is not False, "the old one to stop")
            lab.heal()
            cluster.until(
                lambda: [cluster.status(n) for n in names[:2]] == ["ready", "active"], "one primary"
            )
            assert bodies(cluster, "right") == ["both", "of left", "of right"]
            assert cluster.answer("left")["quarantined"] == 0


class Numbers:
    """Publishes numbers to one node, one after the other, until it is stopped: a thread of its own."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.confirmed = 0
        self.longest = 0.0
        """Seconds between two confirms, at most."""
        self.fault: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(cluster, name))
        self._thread.start()

    def _run(self, cluster: Cluster, name: str) -> None:
        try:
            opened = connection(cluster, name)
            channel = opened.channel()
            channel.queue_declare("orders", durable=True)
            channel.confirm_delivery()
            last = time.monotonic()
            while not self._stop.is_set():
                body = str(self.confirmed).encode()
                channel.basic_publish("", "orders", body, pika.BasicProperties(delivery_mode=2))
                now = time.monotonic()
                self.confirmed, self.longest, last = self.confirmed + 1, max(self.longest, now - last), now
            opened.close()
        except BaseException as fault:
            self.fault = fault

    def more(self, cluster: Cluster, count: int = 50) -> None:
        least = self.confirmed + count
        cluster.until(lambda: self.confirmed >= least or self.fault is not None, "more confirms")
        assert self.fault is None, self.fault

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self.fault is None, self.fault


def link_of(cluster: Cluster, backup: str) -> str:
    """The address of its primary over which it follows; "" while it does not."""
    for member in cluster.answer(backup).get("members", []):
        for address, how in member.get("routes", {}).items():
            if how == "link":
                return str(address)
    return ""


def link_is_off(cluster: Cluster, backup: str, address: str) -> bool:
    return link_of(cluster, backup) not in ("", address)


@pytest.mark.smoke
@pytest.mark.cluster
def test_two_networks_between_the_nodes_of_which_either_may_be_cut(tmp_path: Path) -> None:
    """Under load. Nobody is promoted, and confirms go on after a pause."""
    if reason := why_not():
        pytest.skip(f"no network namespaces: {reason}")
    names, networks = ("left", "right"), (0, 1)
    with Lab(names, networks=2) as lab, lab.inside():
        at = {name: [f"{lab.address(name, network)}:5672" for network in networks] for name in names}
        settings = ("ha.authority=pair", "ha.failover_timeout=5s")
        cluster = Cluster(tmp_path, lab.places(), *settings, *namespaces.SETTINGS, login=namespaces.LOGIN)
        cluster.own = {name: (*OWN[name], f"broker.listen={','.join(at[name])}") for name in names}
        with cluster:
            cluster.start(*names, brokers=",".join("|".join(at[name]) for name in names))
            cluster.until(lambda: [cluster.status(n) for n in names] == ["active", "ready"], "a whole pair")
            epoch, load = cluster.answer("left")["epoch"], Numbers(cluster, "left")
            load.more(cluster)
            gone = ""
            for count in (1, 2):
                before, pause = link_of(cluster, "right"), load.longest
                assert before not in ("", gone), "the link is on the network that was not cut before"
                gone, load.longest = before, 0.0
                for one, other in (names, names[::-1]):
                    lab.drop(one, other, at["left"].index(before))
                cluster.until(partial(link_is_off, cluster, "right", before), "the link to move")
                cluster.until(lambda: cluster.answer("left").get("link") == "up", "the backup to be in sync")
                load.more(cluster)
                print(f"cut {count}: confirms paused for {load.longest:.2f} s; before it, {pause:.2f} s")
                lab.heal()
                cluster.until(lambda: routes_up(cluster, "right") == 2, "the network that was cut")
            load.stop()
            assert [cluster.status(name) for name in names] == ["active", "ready"]
            assert cluster.answer("left")["epoch"] == epoch
            assert cluster.answer("right")["controller"]["votes"] == 0
            assert bodies(cluster, "left") == [str(number) for number in range(load.confirmed)]


def routes_up(cluster: Cluster, name: str) -> int:
    members = cluster.answer(name).get("members", [])
    return sum(how != "down" for member in members for how in member.get("routes", {}).values())


def connection(cluster: Cluster, name: str) -> pika.BlockingConnection:
    address, login = cluster.addresses[name], cluster.login
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            address.host,
            address.port,
            "/",
            pika.PlainCredentials(login.user, login.password),
            stack_timeout=15,
        )
    )


def attempt(cluster: Cluster, name: str) -> bool:
    try:
        connection(cluster, name).close()
    except FAULTS:
        return False
    return True


def publish(cluster: Cluster, name: str, body: str) -> None:
    opened = connection(cluster, name)
    channel = opened.channel()
    channel.queue_declare("orders", durable=True)
    channel.confirm_delivery()
    channel.basic_publish("", "orders", body.encode(), pika.BasicProperties(delivery_mode=2))
    opened.close()


def bodies(cluster: Cluster, name: str) -> list[str]:
    opened = connection(cluster, name)
    channel, found = opened.channel(), []
    while (got := channel.basic_get("orders", auto_ack=True))[0] is not None:
        found.append(got[2].decode())
    opened.close()
    return found
