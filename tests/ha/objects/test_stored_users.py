"""Stored users and a pair: each node knows them, whoever serves obeys."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate

from broker.model.history.records import EntryDelete
from tests.broker.stored import permission, user
from tests.ha.client import Client
from tests.ha.pair import Host, Pair
from tests.tls import Authority


def shop() -> Pair:
    """A pair that has the user alice, who may use `q` only."""
    pair = Pair()
    pair.up()
    only_q = permission(configure="^q$", write="^amq.default$", read="^q$")
    pair[0].running.vhosts.change_directory([user(), only_q])
    pair.until(lambda: "alice" in pair[1].running.vhosts.directory.users)
    return pair


def said(pair: Pair, host: Host, login: str) -> list[str]:
    """What a client hears that logs in there and declares `q` and `x`."""
    client = Client("c", host, pair.now, login)
    client.begin(pair.now)
    words: list[str] = []
    for queue in "qx":
        client.call("queue.declare", pair.now, queue=queue, durable=True)
        pair.run(0.2)
        words += client.pump(pair.now)
    return words


REFUSED = (
    "c: channel close 403 ACCESS_REFUSED - "
    "configure access to queue 'x' in vhost '/' refused for user 'alice'"
)  # fmt: skip
ELSEWHERE = "c: connection close 320 CONNECTION_FORCED - "


def test_whom_a_certificate_names_is_known_after_a_failover(tmp_path: Path) -> None:
    pair = shop()
    files = Authority(tmp_path).signed("client", common_name="alice")
    der = load_pem_x509_certificate(Path(files.certificate).read_bytes()).public_bytes(Encoding.DER)
    a, b = pair.hosts
    a.external = b.external = "common_name"
    for host in (b, a):
        pair.kill(host)
    pair.start(a, b)
    pair.run(0.3)
    assert pair.ask(a, "promote")["ok"]
    pair.until(lambda: b.status == "ready")

    def declares(host: Host) -> list[str]:
        client = Client("c", host, pair.now, certificate=der)
        client.begin(pair.now)
        client.call("queue.declare", pair.now, queue="q", durable=True)
        pair.run(0.2)
        return client.pump(pair.now)

    assert declares(a) == ["c: queue.declare-ok"]
    pair.kill(a)
    pair.run(0.3)
    assert pair.ask(b, "promote")["ok"]
    assert declares(b) == ["c: queue.declare-ok"]


def test_who_is_stored_on_the_primary_is_known_after_a_failover() -> None:
    pair = shop()
    a, b = pair.hosts
    assert said(pair, a, "alice:word") == ["c: queue.declare-ok", REFUSED]
    pair.kill(a)
    pair.run(0.01)
    assert pair.ask(b, "promote")["ok"]
    assert said(pair, b, "alice:word") == ["c: queue.declare-ok", REFUSED]
    pair.kill(b)
    pair.start(b)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    assert said(pair, b, "alice:word") == ["c: queue.declare-ok", REFUSED], "its disk has them too"


def test_a_backup_sends_everybody_to_its_primary() -> None:
    """A client that hears 403 looks no further, and a node that was just put in place knows nobody yet."""
    pair = shop()
    for login in ("alice:word", "alice:wrong", "nobody:word"):
        (line,) = said(pair, pair[1], login)
        assert line.startswith(ELSEWHERE), line
    (line,) = said(pair, pair[0], "alice:wrong")
    assert line.startswith("c: connection close 403 "), line


def test_a_node_that_was_promoted_closes_the_connections_of_who_is_deleted() -> None:
    pair = shop()
    a, b = pair.hosts
    pair.kill(a)
    pair.run(0.01)
    assert pair.ask(b, "promote")["ok"]
    client = Client("c", b, pair.now, "alice:word")
    pair.run(0.1)
    assert client.pump(pair.now) == []
    b.running.vhosts.change_directory([EntryDelete("user", "", "alice")])
    pair.run(0.01)
    assert client.pump(pair.now) == [ELSEWHERE + "user 'alice' is deleted"]
