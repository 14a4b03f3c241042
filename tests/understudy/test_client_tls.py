"""The client kit and plain kombu and pika over TLS, against a real broker; the command line's side of it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import amqp
import kombu
import pika
import pytest

from broker.security.tls import Tls, TlsFiles
from tests.broker.server.live import Live, live_broker
from tests.tls import Authority
from tests.understudy.cli.test_main import understudy
from understudy.client import ClientTls, ConnectFailed, Consumer, Publisher
from understudy.client.failover import Failover
from understudy.client.transport import SecureTransport
from understudy.client_tls import FileFault, SecureAddress, parse_broker, secured, tls_of
from understudy.definitions.apply import carry_out
from understudy.definitions.parse import QueueDefinition
from understudy.definitions.plan import ImportPlan
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort, TlsHostPort

ORDERS = kombu.Queue("orders", durable=True)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def live(authority: Authority) -> Iterator[Live]:
    tls = authority.node("node", "127.0.0.1", "localhost")
    with live_broker(lambda: tls.clients) as live:
        yield live


def address(live: Live) -> str:
    return f"amqps://{live.host}:{live.tls_port}"


def test_the_kit_publishes_and_consumes_in_bulk(live: Live, authority: Authority) -> None:
    """More than a TLS record at a time: what was read and is not handed out yet must not be waited for."""
    count = 2000
    trust = ClientTls(authority.ca)
    with Publisher(address(live), name="shop", declare=[ORDERS], tls=trust) as publisher:
        for number in range(count):
            publisher.publish(b"%d" % number, routing_key="orders")
    assert publisher.counts.confirmed == count
    with Consumer(address(live), "orders", name="billing", tls=trust) as consumer:
        got = [d.body for d in consumer.deliveries(until=lambda: consumer.counts.received == count)]
    assert got == [b"%d" % number for number in range(count)]


def test_returns_are_read_over_tls_while_messages_are_written(live: Live, authority: Authority) -> None:
    """Large ones, and many: else both sides wait for the other to read."""
    trust = ClientTls(authority.ca)
    returned: list[int] = []
    tell = lambda number, *_: returned.append(number)  # noqa: E731
    with Publisher(address(live), name="shop", declare=[ORDERS], tls=trust, on_return=tell) as publisher:
        for number in range(400):
            publisher.publish(b" " * (1_000_000 if number % 10 == 0 else 100), "nowhere", mandatory=True)
        publisher.publish(b" " * 3_000_000, "orders")
        publisher.flush(30)
        assert (publisher.counts.confirmed, publisher.failover.connects) == (1, 1)
    assert returned == list(range(1, 401))
    with Consumer(address(live), "orders", name="billing", tls=trust) as consumer:
        delivery = consumer.receive(10)
        assert delivery is not None and len(delivery.body) == 3_000_000
        consumer.ack(delivery)


def test_a_broker_that_hangs_is_left_without_its_farewell(authority: Authority) -> None:
    """TLS would wait for it, as long as a broker may take to let us in, before the next one is tried."""
    dropped = threading.Event()
    in_time: list[bool] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def hang() -> None:
            accepted, _ = server.accept()
            with authority.node("node", "127.0.0.1").clients.wrap_socket(accepted, server_side=True):
                in_time.append(dropped.wait(2))

        thread = threading.Thread(target=hang)
        thread.start()
        there = f"127.0.0.1:{server.getsockname()[1]}"
        transport = SecureTransport(
            there, connect_timeout=20, ssl=ClientTls(authority.ca).for_amqp("127.0.0.1")
        )
        transport.connect()
        failover = Failover(f"amqps://{there}")
        failover.connection = kombu.Connection("amqp://")
        assert failover.connection.transport is not None  # it is made when asked for
        failover.connection._connection = amqp.Connection(there)
        failover.connection._connection._transport = transport
        failover.drop()
        dropped.set()
        thread.join()
    assert in_time == [True] and transport.sock is None


def test_each_broker_of_a_list_is_checked_by_its_own_name(tmp_path: Path, authority: Authority) -> None:
    """The first is not there; kombu by itself would check the second by the name of the first."""
    tls = authority.node("node", "localhost")
    with live_broker(lambda: tls.clients) as live:
        both = [f"amqps://127.0.0.1:{live.port}", f"amqps://localhost:{live.tls_port}"]
        failover = Failover(both, tls=ClientTls(authority.ca))
        failover.connect({})
        assert failover.connection.connection.sock.server_hostname == "localhost"
        failover.close()
        failover = Failover(f"amqps://127.0.0.1:{live.tls_port}", tls=ClientTls(authority.ca))
        with pytest.raises(ConnectFailed, match=r"is not valid for '127\.0\.0\.1'"):
            failover.connect({}, deadline=0.0)


def test_the_kit_trusts_nobody_but_the_authority(tmp_path: Path, live: Live) -> None:
    for tls in (None, ClientTls(), ClientTls(Authority(tmp_path, "other").ca)):
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            Failover(address(live), tls=tls).connect({}, deadline=0.0)


@pytest.mark.parametrize("addresses", ["amqps://h:1,h:2", "h:1"])
def test_all_addresses_speak_tls_or_none(addresses: str) -> None:
    with pytest.raises(ValueError, match="every address"):
        Failover(addresses, tls=ClientTls("ca.pem"))


def test_where_clients_show_a_certificate(authority: Authority) -> None:
    node, shown = authority.signed("node"), authority.signed("client", "client.example")
    tls = Tls(TlsFiles(node.certificate, node.key, None, authority.ca))
    with live_broker(lambda: tls.clients) as live:
        files = ClientTls(authority.ca, shown.certificate, shown.key)
        failover = Failover(address(live), tls=files)
        failover.connect({})
        failover.close()
        with pytest.raises(ConnectFailed):
            Failover(address(live), tls=ClientTls(authority.ca)).connect({}, deadline=0.0)
        with pytest.raises(Unreachable, match="it refuses this node: certificate required"):
            ask(parse_broker(address(live), ClientTls(authority.ca)), "ping")


def test_kombu_and_pika_as_they_are(live: Live, authority: Authority) -> None:
    options = {"ca_certs": authority.ca, "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "127.0.0.1"}
    with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{live.tls_port}//", ssl=options) as connection:
        connection.SimpleQueue("from-kombu").put({"order": 1})
    trust = pika.SSLOptions(ssl.create_default_context(cafile=authority.ca), "127.0.0.1")
    parameters = pika.ConnectionParameters("127.0.0.1", live.tls_port, ssl_options=trust)
    with pika.BlockingConnection(parameters) as connection:
        _, _, body = connection.channel().basic_get("from-kombu", auto_ack=True)
    assert body == b'{"order": 1}'


def test_definitions_are_declared_over_tls(live: Live, authority: Authority) -> None:
    there = parse_broker(address(live), ClientTls(authority.ca))
    itself = SecureAddress.of(HostPort(live.host, live.tls_port), ClientTls(itself=True))
    for name, broker in (("one", there), ("two", itself)):
        outcome = carry_out(
            ImportPlan([QueueDefinition(name=name, durable=True)]), broker, "guest", "guest", 10
        )
        assert outcome.whole and outcome.new["queues"] == 1, outcome
    assert set(live.broker.vhost.queues) == {"one", "two"}


def test_an_address_knows_how_it_is_reached() -> None:
    files = ClientTls("ca.pem")
    assert tls_of(HostPort("h", 1)) is None and tls_of(TlsHostPort("h", 1)) == ClientTls()
    assert tls_of(parse_broker("amqps://h:1", files)) == files
    assert str(parse_broker("amqps://h:1/", files)) == "amqps://h:1"
    plain = parse_broker("amqp://h:1", files)
    assert tls_of(plain) is None and plain == HostPort("h", 1) == secured(plain, files)


def test_the_command_line_says_why_there_is_no_tls(
    tmp_path: Path, live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reached, but not trusted; or spoken to in the wrong way: one line, exit code 1."""
    other = Authority(tmp_path, "other").ca
    code, _, said = understudy(capsys, "ping", "-b", address(live), "--tls-ca", other)
    assert (
        code == 1 and f"no TLS with {address(live)}: its certificate is not accepted: unable to get" in said
    )
    code, _, said = understudy(capsys, "ping", "-b", f"amqps://{live.host}:{live.port}", "--tls-ca", other)
    assert code == 1 and said.endswith("what it sent is not TLS (node-unreachable)\n")
    code, _, said = understudy(capsys, "ping", "-b", f"{live.host}:{live.tls_port}")
    assert code == 1 and "the server speaks TLS, and was not spoken to in it" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("-b", "https://h:1"), "'https://h:1' is not an address"),
        (("-b", "amqps://h:"), "'h:' is not an address"),
        (("-b", "amqps://h:1", "--tls-ca", "/nowhere.pem"), "/nowhere.pem"),
    ],
)
def test_a_wrong_address_or_file_is_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], named: str
) -> None:
    code, _, said = understudy(capsys, "ping", *arguments)
    assert code == 2 and named in said


def test_a_file_that_is_no_certificate_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.pem").write_text("no")
    code, _, said = understudy(
        capsys, "ping", "-b", "amqps://127.0.0.1:1", "--tls-ca", str(tmp_path / "no.pem")
    )
    assert code == 2 and f"{tmp_path}/no.pem" in said


def test_a_certificate_and_its_key_come_together(
    tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    files = authority.signed("me")
    for option, value, said in (
        ("--tls-cert", files.certificate, f"'--tls-key': is needed: there is no key in {files.certificate}"),
        ("--tls-key", files.key, f"'--tls-key': {files.key}: a key needs a certificate, and none was given"),
    ):
        code, _, told = understudy(capsys, "ping", "-b", "amqps://127.0.0.1:1", option, str(value))
        assert code == 2 and said in told
    both = tmp_path / "both.pem"
    both.write_bytes(Path(str(files.certificate)).read_bytes() + Path(str(files.key)).read_bytes())
    code, _, told = understudy(capsys, "ping", "-b", "amqps://127.0.0.1:1", "--tls-cert", str(both))
    assert code == 1 and "Connection refused" in told


def test_a_certificate_that_is_missing_is_named_and_not_the_authority(
    tmp_path: Path, authority: Authority
) -> None:
    gone = str(tmp_path / "gone.pem")
    with pytest.raises(FileFault, match=f"^{gone}: cannot be used for TLS") as fault:
        ClientTls(authority.ca, gone).context()
    assert fault.value.which == "certificate"


def test_a_missing_tls_file_is_an_error_at_once_and_not_retried(tmp_path: Path, live: Live) -> None:
    """It was tried again for ever, and `publish` did not return."""
    gone = str(tmp_path / "gone.pem")
    with closing(Publisher(f"amqps://localhost:{live.tls_port}", "shop", tls=ClientTls(gone))) as shop:
        for again in range(2):
            with pytest.raises(FileFault, match=f"^{gone}: cannot be used for TLS"):
                shop.flush() if again else shop.publish(b"1", "orders")
        assert (shop.in_doubt, shop.counts.published) == (1, 1), "it is kept, for when the file is there"
