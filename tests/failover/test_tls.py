"""A pair that speaks TLS on every wire, as processes: failover, new certificates while it is up, others."""

from __future__ import annotations

import os
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import kombu
import pytest

from broker.amqp091.client import ClientConnection, Closed, Opened
from ha.core.wire.link import Method
from tests.failover.nodes.cluster import PATIENCE, Cluster, local_places, understudy
from tests.failover.nodes.secure import NAMES, SecurePair
from tests.tls import Authority
from understudy.client import Consumer, Publisher
from understudy.client_tls import ClientTls, SecureAddress
from understudy.shared.addresses import HostPort

ORDERS = kombu.Queue("orders", durable=True)


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecurePair]:
    with SecurePair(tmp_path) as made:
        monkeypatch.setenv("UNDERSTUDY_TLS_CA", made.authority.ca)
        yield made


def test_kill_9_promote_and_rejoin_over_tls(pair: SecurePair) -> None:
    """Unforced: the end of a killed peer's connection is a proof over TLS too."""
    pair.whole()
    count = 300
    with Publisher(pair.list, "shop", declare=[ORDERS], tls=pair.tls) as publisher:
        for number in range(count):
            publisher.publish(b"%d" % number, routing_key="orders")
        publisher.flush(PATIENCE)
        pair.kill("left")
        code, _, err = pair.command("promote", "right")
        assert code == 0, err
        for number in range(count, 2 * count):
            publisher.publish(b"%d" % number, routing_key="orders")
        publisher.flush(PATIENCE)
    with Consumer(pair.list, "orders", "billing", tls=pair.tls) as consumer:
        seen: Counter[int] = Counter()
        for delivery in consumer.deliveries(until=lambda: len(seen) == 2 * count):
            seen[int(delivery.body)] += 1
    pair.start("left")
    pair.wait_for("left", "ready")
    left, right = str(pair.addresses["left"]), str(pair.addresses["right"])
    assert pair.answer("left")["primary"] == f"right at {right}"
    assert {m["address"] for m in pair.answer("left")["members"]} == {left, right}
    code, out, err = pair.command("switchover", "left")
    assert code == 0 and out.startswith(f"{right}: "), (out, err)
    pair.wait_for("right", "ready")


def test_new_certificates_while_the_pair_is_up(pair: SecurePair) -> None:
    """One node is told, the other finds out by itself; the link and its epoch stay."""
    pair.whole()
    before = {name: pair.shown(name) for name in NAMES}
    epoch = pair.answer("left")["epoch"]
    for name in NAMES:
        pair.authority.signed(name, "127.0.0.1")
    pair.hang_up("left")
    for name in NAMES:
        pair.until(lambda name=name: pair.shown(name) != before[name], f"{name} to show its new certificate")
    (pair.folder / "right.key").write_text("no key")
    pair.until(lambda: pair.said("right", "(tls-reload-failed)"), "right to refuse its broken key")
    assert pair.shown("right") != before["right"]
    for name, status in (("left", "active"), ("right", "ready")):
        found = pair.answer(name)
        assert (found["status"], found["link"], found["epoch"]) == (status, "up", epoch)
        assert not pair.said(name, "closed") and not pair.said(name, "lost")


@pytest.mark.system
def test_new_certificates_that_would_part_the_pair_are_not_taken(pair: SecurePair, tmp_path: Path) -> None:
    """Told or found out: run out, of another authority, for another host. At a start one that has run out is
    taken, with a warning: the data is worth more."""
    pair.whole()
    before = {name: pair.shown(name) for name in NAMES}
    (tmp_path / "elsewhere").mkdir()
    other = Authority(tmp_path / "elsewhere").signed("left", "127.0.0.1")
    pair.authority.signed("right", "127.0.0.1", days=-1)
    os.replace(other.key, pair.folder / "left.key")
    os.replace(other.certificate, pair.folder / "left.pem")
    pair.hang_up("left")
    refused = "previous certificates: tls.certificate: "
    ran_out = f"{refused}{pair.folder}/right.pem: has run out, at "
    issuer = (
        f"{refused}{pair.folder}/left.pem: is refused by who has this tls.ca ({pair.authority.ca}): unable"
    )
    pair.until(lambda: pair.said("left", issuer), "left to refuse another authority's")
    pair.until(lambda: pair.said("right", ran_out), "right to refuse what has run out")
    pair.authority.signed("left", "elsewhere.example")
    pair.until(
        lambda: pair.said(
            "left", "left.pem: is for elsewhere.example, and for no host of ha.brokers (127.0.0.1)"
        ),
        "left to refuse another host's",
    )
    assert {name: pair.shown(name) for name in NAMES} == before
    for name, status in (("left", "active"), ("right", "ready")):
        assert (pair.answer(name)["status"], pair.answer(name)["link"]) == (status, "up")
    pair.stop("right")
    pair.launch("right")
    pair.until(lambda: pair.said("right", "(tls-certificate-expired)"), "right to warn")
    pair.until(
        lambda: pair.said("left", "its certificate is not accepted: certificate has expired"),
        "left to see it",
    )
    pair.authority.signed("right", "127.0.0.1")
    pair.wait_for("right", "ready")


def test_a_node_with_a_certificate_of_another_authority_stays_out_until_it_has_a_right_one(
    pair: SecurePair, tmp_path: Path
) -> None:
    pair.whole()
    pair.stop("right")
    (tmp_path / "elsewhere").mkdir()
    other = Authority(tmp_path / "elsewhere").signed("right", "127.0.0.1")
    mine = {name: (pair.folder / name).read_bytes() for name in ("right.pem", "right.key")}
    os.replace(other.certificate, pair.folder / "right.pem")
    os.replace(other.key, pair.folder / "right.key")
    pair.addresses["right"].tls = ClientTls(other.ca)
    pair.start("right")
    pair.until(lambda: "unknown ca" in pair.answer("right").get("reason", ""), "right to say why it is alone")
    pair.until(lambda: "TLS: " in pair.answer("left").get("reason", ""), "left to say why right is away")
    left, right = pair.answer("left"), pair.answer("right")
    assert "its certificate is not accepted: unable to get local issuer certificate" in left["reason"]
    assert (left["status"], right["status"]) == ("active", "joining")
    with Publisher(str(pair.addresses["left"]), "shop", declare=[ORDERS], tls=pair.tls) as publisher:
        publisher.publish(b"goes on", routing_key="orders")
        publisher.flush(PATIENCE)
    for name, data in mine.items():
        (pair.folder / name).write_bytes(data)
    pair.addresses["right"].tls = pair.tls
    pair.wait_for("right", "ready")


@pytest.mark.system
def test_a_node_with_a_certificate_for_another_host_stays_out_until_it_has_a_right_one(
    pair: SecurePair,
) -> None:
    """Of the right authority, with the pair's own password: it is not dialled, and may not come in either."""
    pair.whole()
    pair.stop("right")
    mine = {name: (pair.folder / name).read_bytes() for name in ("right.pem", "right.key")}
    pair.authority.signed("right", "localhost")
    at = pair.addresses["right"]
    pair.addresses["right"] = SecureAddress.of(HostPort("localhost", at.port), pair.tls)
    pair.start("right")
    pair.until(
        lambda: "530 NOT_ALLOWED" in pair.answer("right").get("reason", ""), "right to say why it is alone"
    )
    pair.until(lambda: "TLS: " in pair.answer("left").get("reason", ""), "left to say why right is away")
    left, right = pair.answer("left"), pair.answer("right")
    why = (
        "530 NOT_ALLOWED - the certificate shown is for localhost, and for no host of ha.brokers (127.0.0.1)"
    )
    assert why in right["reason"] and pair.said("left", f"closed with {why}")
    assert pair.log("right").count(f"link to 127.0.0.1:{pair.links['left']} refused: {why}") == 1
    assert "IP address mismatch, certificate is not valid for '127.0.0.1'" in left["reason"]
    assert (left["status"], right["status"]) == ("active", "joining")
    with Publisher(str(pair.addresses["left"]), "shop", declare=[ORDERS], tls=pair.tls) as publisher:
        publisher.publish(b"goes on", routing_key="orders")
        publisher.flush(PATIENCE)
    for name, data in mine.items():
        (pair.folder / name).write_bytes(data)
    pair.until(lambda: pair.said("right", "(tls-read-again)"), "right to take its new certificate")
    pair.addresses["right"] = at
    pair.until(lambda: pair.said("left", "(ha-backup-in-sync)"), "right to be taken in")


def test_strangers_at_the_links_door(pair: SecurePair) -> None:
    """Plain bytes, no certificate, and an application with a good one: none gets in, and the pair goes on."""
    pair.whole()
    door = HostPort("127.0.0.1", pair.links["left"])
    with socket.create_connection(door, timeout=PATIENCE) as sock:
        sock.sendall(b"AMQP\0\0\x09\x01")
        name = f"127.0.0.1:{sock.getsockname()[1]}"
        assert sock.recv(100)[:2] == b"\x15\x03", "an alert of TLS"
    pair.until(lambda: pair.said("left", f"{name}: what it sent is not TLS"), "left to say so")
    with socket.create_connection(door, timeout=PATIENCE) as bare, pytest.raises(ssl.SSLError):
        name = f"127.0.0.1:{bare.getsockname()[1]}"
        with pair.tls.context().wrap_socket(bare, server_hostname="127.0.0.1") as sock:
            sock.recv(100)
    pair.until(
        lambda: pair.said("left", f"{name}: it showed no certificate, and needs one"), "left to say so"
    )
    files = pair.authority.signed("shop", "shop.example")
    tls = ClientTls(pair.authority.ca, files.certificate, files.key)
    assert _refusal(door, tls, "guest", {}).startswith(
        "530 NOT_ALLOWED - this listener takes the link of a pair"
    )
    assert _refusal(door, tls, "guest", {"understudy.ha-peer": True}).startswith("403 ACCESS_REFUSED")
    assert (pair.answer("left")["status"], pair.answer("right")["status"]) == ("active", "ready")
    peer = {"understudy.ha-peer": True}
    found = _refusal(door, tls, "ha", peer)
    assert found.startswith("530 NOT_ALLOWED - the certificate shown is for shop.example, and for no host of")
    assert _refusal(door, tls, "ha", peer | {"understudy.ha-follower": True}, say=Method.HELLO).startswith(
        "530 NOT_ALLOWED - link method 10 of one that logged in to follow queues only"
    )
    clients = HostPort(*pair.addresses["left"])
    assert "takes no link" in _refusal(clients, pair.tls, "ha", {"understudy.ha-peer": True})
    assert "is the pair's own" in _refusal(clients, pair.tls, "ha", {})


def _refusal(
    address: HostPort, tls: ClientTls, user: str, claim: dict[str, bool], say: Method | None = None
) -> str:
    """What the broker there closes the connection with. `say`: after this."""
    client = ClientConnection(user, user, 0.0, capabilities=claim)
    bare = socket.create_connection(address, timeout=PATIENCE)
    with tls.context().wrap_socket(bare, server_hostname="127.0.0.1") as sock:
        while True:
            for event in client.events():
                if say is not None and isinstance(event, Opened):
                    client.send_extension(say, b"{}")
                    continue
                assert isinstance(event, Closed), event
                return f"{event.code} {event.text}"
            sock.sendall(b"".join(client.take_output()))
            client.receive(sock.recv(65536), 0.0)


def test_a_key_of_another_certificate_ends_the_start_in_one_line(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.signed("one"), authority.signed("other")
    code, _, err = understudy(
        "serve", "--data-dir", str(tmp_path / "d"), "--set", "broker.listen=off",
        "--set", "broker.tls_listen=127.0.0.1:0", "--set", f"tls.certificate={one.certificate}",
        "--set", f"tls.key={other.key}",
    )  # fmt: skip
    assert (code, err) == (
        2,
        f"understudy: tls.key: {other.key}: is not the key of the certificate (config-invalid)\n",
    )
    assert not (tmp_path / "d").exists()


@pytest.mark.system
def test_a_broker_elsewhere_follows_a_queue_over_the_links_tls(pair: SecurePair, tmp_path: Path) -> None:
    """Through a failover of its source; a broker without a certificate of the authority gets nothing."""
    pair.whole()
    links = ",".join(f"127.0.0.1:{port}" for port in pair.links.values())
    with Publisher(pair.list, "shop", declare=[ORDERS], tls=pair.tls) as publisher:
        publisher.publish(b"one", routing_key="orders")
        publisher.flush(PATIENCE)
    files = pair.authority.signed("far", "far.example")
    settings = (
        "ha.tls=true",
        f"tls.certificate={files.certificate}",
        f"tls.key={files.key}",
        f"tls.ca={files.ca}",
    )
    with Cluster(tmp_path / "far", local_places(["far"]), *settings) as far:
        far.start("far", brokers="")
        code, _, err = understudy("replicate", "-b", str(far.addresses["far"]), links, "orders")
        assert code == 0, err
        far.until(lambda: _copied(far) == ("following", 1), "far to have the message")
        code, _, err = understudy("replicate", "-b", str(far.addresses["far"]), "0.0.0.0:1", "other")
        assert (code, "0.0.0.0:1: nobody answers there" in err) == (1, True), "over TLS it may dial anybody"
        pair.kill("left")
        assert pair.ask("right", "promote")["ok"]
        with Publisher(pair.list, "shop", tls=pair.tls) as publisher:
            publisher.publish(b"two", routing_key="orders")
            publisher.flush(PATIENCE)
        far.until(lambda: _copied(far) == ("following", 2), "far to follow the new primary")
    with Cluster(tmp_path / "bare", local_places(["bare"])) as bare:
        bare.start("bare", brokers="")
        code, _, err = understudy("replicate", "-b", str(bare.addresses["bare"]), links, "orders")
        assert code == 1 and err, "it speaks no TLS"


def _copied(far: Cluster) -> tuple[str, int]:
    [line] = far.answer("far")["replications"]
    return line["state"], line["messages"]
