"""The kit over AMQP 1.0 and TLS, which is Python's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("proton")

from broker.amqp10.connection import PROTOCOLS
from broker.security.tls import Tls, TlsFiles
from tests.broker.server.live import Live, live_broker
from tests.tls import Authority
from tests.understudy.client.amqp10.plain import ORDERS
from understudy.client import Publisher as PlainPublisher
from understudy.client.amqp10 import ClientTls, ConnectFailed, Consumer, Publisher


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def live(authority: Authority) -> Iterator[Live]:
    tls = authority.node("node", "127.0.0.1")
    with live_broker(lambda: tls.clients) as live:
        live.broker.protocols.update(PROTOCOLS)
        yield live


def address(live: Live) -> str:
    return f"amqps://{live.host}:{live.tls_port}"


def test_in_bulk_and_in_large_pieces(live: Live, authority: Authority) -> None:
    """What TLS has read already is not waited for; what the socket does not take now goes later."""
    trust = ClientTls(authority.ca)
    with PlainPublisher(address(live), "declares", declare=[ORDERS], tls=trust) as plain:
        plain.connect()
    bodies = [b"%d" % number * (1_000_000 if number % 500 == 7 else 1) for number in range(2000)]
    with Publisher(address(live), "shop", tls=trust) as shop:
        for body in bodies:
            shop.publish(body, "orders")
    assert shop.counts.confirmed == 2000
    with Consumer(address(live), "orders", "billing", tls=trust) as billing:
        got = [d.body for d in billing.deliveries(until=lambda: billing.counts.received == 2000)]
    assert got == bodies


def test_nobody_is_trusted_but_the_authority(live: Live, tmp_path: Path) -> None:
    for tls in (None, ClientTls(), ClientTls(Authority(tmp_path, "other").ca)):
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            Publisher(address(live), "shop", tls=tls).connect(0.0)


def test_the_name_that_was_dialled_is_checked(tmp_path: Path, authority: Authority) -> None:
    tls = authority.node("node", "localhost")
    with live_broker(lambda: tls.clients) as live:
        live.broker.protocols.update(PROTOCOLS)
        both = [f"amqps://127.0.0.1:{live.tls_port}", f"amqps://localhost:{live.tls_port}"]
        shop = Publisher(both, "shop", tls=ClientTls(authority.ca))
        shop.connect(10)
        assert shop.failover.address == both[1]
        shop.close()


def test_where_clients_show_a_certificate(authority: Authority) -> None:
    node, shown = authority.signed("node"), authority.signed("client", "client.example")
    tls = Tls(TlsFiles(node.certificate, node.key, None, authority.ca))
    with live_broker(lambda: tls.clients) as live:
        live.broker.protocols.update(PROTOCOLS)
        shop = Publisher(address(live), "shop", tls=ClientTls(authority.ca, shown.certificate, shown.key))
        shop.connect(10)
        shop.close()
        with pytest.raises(ConnectFailed):
            Publisher(address(live), "shop", tls=ClientTls(authority.ca)).connect(0.0)


def test_a_file_that_is_no_use_is_named() -> None:
    with pytest.raises(ValueError, match="/nowhere"):
        Publisher("amqps://127.0.0.1:1", "shop", tls=ClientTls("/nowhere.pem")).connect(1)
    with pytest.raises(ValueError, match="every address"):
        Publisher("127.0.0.1:1", "shop", tls=ClientTls("ca.pem"))
