"""TLS over real sockets: accepted and refused clients, log lines, and no effect on other connections."""

from __future__ import annotations

import logging
import queue
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.amqp091.codec.frames import PROTOCOL_HEADER
from broker.amqp091.codec.grammar import encode_frame
from broker.security.tls import Tls, TlsFiles
from broker.server.tls_stream import TlsStream
from tests.broker.amqp091.wire import message
from tests.broker.server.live import Live, live_broker
from tests.broker.server.test_shell import LOGIN, _read_until
from tests.tls import Authority, self_signed

DECLARED = b"\0\x32\0\x0b"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def tls(authority: Authority) -> Tls:
    return authority.node("node")


@pytest.fixture
def live(tls: Tls) -> Iterator[Live]:
    """A live broker with a logged-in client that no failed handshake on the same listener may disturb."""
    with live_broker(lambda: tls.clients, handshake_timeout=1.0) as live:
        yield live


def dial(live: Live, context: ssl.SSLContext, host: str = "127.0.0.1") -> ssl.SSLSocket:
    bare = socket.create_connection((live.host, live.tls_port), timeout=10)
    try:
        return context.wrap_socket(bare, server_hostname=host)
    except BaseException:
        bare.close()
        raise


class Lines(logging.Handler):
    """The shell's log lines, with waiting: a client may see its socket closed before the line is written."""

    def __init__(self) -> None:
        super().__init__()
        self._said: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._said.put(str(getattr(record.msg, "sentence", record.getMessage())))

    def of(self, client: str) -> str:
        """The next line about that client."""
        while True:
            line = self._said.get(timeout=10)
            if client in line:
                return line

    def more(self) -> list[str]:
        """The lines logged since."""
        return [self._said.get() for _ in range(self._said.qsize())]


@pytest.fixture
def lines() -> Iterator[Lines]:
    lines = Lines()
    logger = logging.getLogger("understudy.shell")
    logger.addHandler(lines)
    yield lines
    logger.removeHandler(lines)
    assert lines.more() == [], "one line is enough"


def name_of(client: socket.socket) -> str:
    host, port = client.getsockname()
    return f"{host}:{port}"


def serves(client: socket.socket) -> None:
    """Assert that the client is logged in and its broker answers."""
    client.sendall(encode_frame(1, "queue.declare", queue="q"))
    _read_until(client, DECLARED)


@pytest.fixture
def neighbour(live: Live, authority: Authority) -> Iterator[None]:
    with dial(live, authority.client()) as client:
        client.sendall(LOGIN)
        serves(client)
        yield
        serves(client)


def test_a_client_over_tls_publishes_and_consumes_big_and_small(live: Live, authority: Authority) -> None:
    """32 MB for a client that does not read at first, including back-pressure."""
    count, body = 2000, b"b" * 16_000
    with dial(live, authority.client()) as client:
        assert client.version() in ("TLSv1.2", "TLSv1.3")
        client.sendall(LOGIN + encode_frame(1, "queue.declare", queue="q"))
        client.sendall(encode_frame(1, "confirm.select") + message(1, body, "", "q") * count)
        _read_until(client, b"\0\x3c\0\x50" + count.to_bytes(8, "big"))
        client.sendall(encode_frame(1, "basic.consume", queue="q", consumer_tag="c", no_ack=True))
        got = 0
        while got < count * len(body):
            data = client.recv(1 << 20)
            assert data
            got += data.count(b"b")
        (connection,) = live.broker.connections
        assert connection.peer.tls and connection.peer.loopback


def test_stopping_closes_tls_properly(tls: Tls, authority: Authority) -> None:
    with live_broker(lambda: tls.clients) as live:
        client = dial(live, authority.client())
        client.sendall(LOGIN)
        _read_until(client, b"\0\x14\0\x0b")
    data = b""
    while more := client.recv(65536):
        data += more
    client.close()
    assert b"CONNECTION_FORCED - broker is stopping" in data


@pytest.mark.usefixtures("lines")
def test_stopping_waits_for_no_handshake(tls: Tls, authority: Authority) -> None:
    with live_broker(lambda: tls.clients) as live:
        halves = [socket.create_connection((live.host, live.tls_port), timeout=10) for _ in range(3)]
        for half in halves:
            half.sendall(b"\x16\x03\x01")
        with dial(live, authority.client()) as later:
            later.sendall(LOGIN)
            serves(later)
    for half in halves:
        with half:
            assert half.recv(1) == b""


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize(
    "data", [PROTOCOL_HEADER, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 100, b"\xff" * 70_000]
)
def test_plain_bytes_on_a_tls_port(live: Live, lines: Lines, data: bytes) -> None:
    with socket.create_connection((live.host, live.tls_port), timeout=10) as sock:
        sock.sendall(data)
        assert lines.of(name_of(sock)).endswith("what it sent is not TLS")
        if len(data) <= 100:  # with more of it unread, a reset may be all that arrives
            assert sock.recv(100)[:2] == b"\x15\x03", "an alert of TLS"


@pytest.mark.usefixtures("neighbour")
def test_tls_bytes_on_a_plain_port(live: Live, authority: Authority) -> None:
    with socket.create_connection((live.host, live.port), timeout=10) as bare:
        name = name_of(bare)
        with pytest.raises(ssl.SSLError):
            authority.client().wrap_socket(bare, server_hostname="127.0.0.1")
    (line,) = [line for line in live.logged if name in line]
    assert "what it sent is TLS, which this listener does not speak" in line


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("data", [b"", b"\x16\x03\x01"])
def test_silence_on_a_tls_port_ends_at_the_limit_of_the_whole_handshake(live: Live, data: bytes) -> None:
    with socket.create_connection((live.host, live.tls_port), timeout=10) as sock:
        sock.sendall(data)
        name = name_of(sock)
        assert sock.recv(1) == b""
    (line,) = [line for line in live.logged if name in line]
    assert "handshake not finished in time, waiting for TLS, then the protocol header" in line


@pytest.mark.usefixtures("neighbour")
def test_a_client_that_leaves_during_the_handshake(live: Live, lines: Lines) -> None:
    with socket.create_connection((live.host, live.tls_port), timeout=10) as sock:
        sock.sendall(b"\x16\x03\x01")
        sock.shutdown(socket.SHUT_WR)
        assert lines.of(name_of(sock)).endswith("it left in the middle of the TLS handshake")
        assert sock.recv(1) == b"", "closed on both sides"


@pytest.mark.usefixtures("neighbour")
@pytest.mark.parametrize("noise", [b"\x17\x03\x03\0\x20" + bytes(32), b"GET / HTTP/1.1\r\n\r\n"])
def test_a_client_that_falls_out_of_its_tls(
    live: Live, authority: Authority, lines: Lines, noise: bytes
) -> None:
    """The log must not mention a handshake that ended long ago."""
    client = dial(live, authority.client())
    client.sendall(LOGIN)
    serves(client)
    with socket.socket(fileno=client.detach()) as bare:
        bare.settimeout(10)
        bare.sendall(noise)
        line = lines.of(name_of(bare))
        assert "what it sent is not the TLS that was agreed on: " in line
        while bare.recv(65536):
            pass


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.usefixtures("neighbour")
def test_a_client_that_speaks_old_tls_only(live: Live, authority: Authority, lines: Lines) -> None:
    context = authority.client()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    bare = socket.create_connection((live.host, live.tls_port), timeout=10)
    name = name_of(bare)
    with bare, pytest.raises(ssl.SSLError):
        context.wrap_socket(bare, server_hostname="127.0.0.1")
    with dial(live, authority.client()) as other:
        other.sendall(LOGIN)
        serves(other)
    assert lines.of(name).endswith("it does not support TLS 1.2 or above")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ("expired", "certificate has expired"),
        ("elsewhere", "not valid for '127.0.0.1'"),
        ("alone", "self-signed certificate"),
        ("stranger", "unable to get local issuer"),
    ],
)
def test_a_client_refuses_a_bad_certificate_and_the_log_says_so(
    tmp_path: Path, authority: Authority, lines: Lines, files: str, words: str
) -> None:
    bad = {
        "expired": lambda: authority.signed("n", days=-1),
        "elsewhere": lambda: authority.signed("n", "elsewhere.example"),
        "alone": lambda: self_signed(tmp_path, "n"),
        "stranger": lambda: Authority(tmp_path, "other").signed("n"),
    }
    tls = Tls(bad[files]())
    with live_broker(lambda: tls.clients) as live:
        bare = socket.create_connection((live.host, live.tls_port), timeout=10)
        with bare, pytest.raises(ssl.SSLCertVerificationError) as caught:
            name = name_of(bare)
            authority.client().wrap_socket(bare, server_hostname="127.0.0.1")
        assert words in str(caught.value).lower() or words in str(caught.value)
        assert "it refuses this node: " in lines.of(name)


@pytest.mark.parametrize("shown", ["none", "other", "expired", "good"])
def test_where_clients_need_a_certificate(
    tmp_path: Path, authority: Authority, lines: Lines, shown: str
) -> None:
    node = authority.signed("node")
    tls = Tls(TlsFiles(node.certificate, node.key, None, authority.ca))
    files = {
        "none": lambda: None,
        "other": lambda: Authority(tmp_path, "other").signed("c", "client"),
        "expired": lambda: authority.signed("c", "client", days=-1),
        "good": lambda: authority.signed("c", "client"),
    }[shown]()
    with live_broker(lambda: tls.clients) as live, dial(live, authority.client(files)) as client:
        if shown == "good":
            client.sendall(LOGIN)
            serves(client)
            return
        words = {
            "none": "it showed no certificate",
            "other": "unable to get local issuer",
            "expired": "expired",
        }
        assert words[shown] in lines.of(name_of(client))


def test_new_files_count_for_new_connections_and_old_ones_live_on(
    live: Live, tls: Tls, authority: Authority, tmp_path: Path
) -> None:
    with dial(live, authority.client()) as old:
        old.sendall(LOGIN)
        before = old.getpeercert(binary_form=True)
        authority.signed("node")
        assert not tls.look(time.time()), "they may still be changing"
        assert tls.look(time.time())
        assert not tls.look(time.time())
        with dial(live, authority.client()) as new:
            assert new.getpeercert(binary_form=True) != before
            new.sendall(LOGIN)
            serves(new)
        (tmp_path / "node.key").write_text("no key")
        assert not tls.look(time.time()) and not tls.look(time.time())
        with dial(live, authority.client()) as newer:
            newer.sendall(LOGIN)
            serves(newer)
        serves(old)


@pytest.mark.parametrize(
    ("version", "wanted"),
    [(ssl.TLSVersion.TLSv1_2, ("tlsv1.2", "ecdhe_")), (ssl.TLSVersion.TLSv1_3, ("tlsv1.3", "any"))],
)
def test_what_was_agreed_on_has_rabbitmqs_words(
    tls: Tls, authority: Authority, version: ssl.TLSVersion, wanted: tuple[str, str]
) -> None:
    context = authority.client()
    context.minimum_version = context.maximum_version = version
    ends = TlsStream(tls.clients, None), TlsStream(context, "127.0.0.1")
    assert ends[0].suite() is None
    ends[1].receive(b"")
    octets = ends[1].output()
    for at in (0, 1, 0, 1, 0):
        ends[at].receive(octets)
        octets = ends[at].output()
    found = ends[0].suite()
    assert found is not None and (found.protocol, found.key_exchange[: len(wanted[1])]) == wanted
    assert found.cipher in ("aes_256_gcm", "chacha20_poly1305", "aes_128_gcm") and found.hash == "aead"
