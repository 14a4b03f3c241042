"""The TLS stream of one connection, octet by octet, without sockets."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from broker.security.tls import Tls
from broker.server.tls_stream import TlsStream
from tests.tls import Authority


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Authority(tmp_path).node("node", "node.example")


def shaken(tls: Tls, step: int = 1 << 20) -> tuple[TlsStream, TlsStream]:
    """Both ends after their handshake. `step`: octets that arrive at once."""
    server, client = TlsStream(tls.peers), TlsStream(tls.dials, "node.example")
    assert client.receive(b"") == b"" and not client.begun
    while not (server.open and client.open):
        moved(client, server, step)
        moved(server, client, step)
    moved(server, client, step)
    return server, client


def moved(one: TlsStream, other: TlsStream, step: int = 1 << 20, data: bytes = b"") -> bytes:
    """The data that the other end gets."""
    wire = one.send(data) if data else one.output()
    return b"".join(other.receive(wire[at : at + step]) for at in range(0, len(wire), step))


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_octets_arrive_whole_however_they_are_cut(tls: Tls, step: int) -> None:
    server, client = shaken(tls, step)
    for data in (b"x", b"y" * 16_384, b"z" * 100_000):
        assert moved(client, server, step, data) == data
        assert moved(server, client, step, data) == data


def test_nothing_is_written_before_the_handshake_or_after_the_goodbye(tls: Tls) -> None:
    server = TlsStream(tls.clients)
    assert server.send(b"secret") == b"" == server.goodbye()
    server, client = shaken(tls)
    goodbye = server.goodbye()
    assert goodbye and server.send(b"more") == b"" == server.goodbye()
    assert client.receive(goodbye) == b"" and client.ended and not client.broken


def test_a_goodbye_behind_data(tls: Tls) -> None:
    server, client = shaken(tls)
    assert client.receive(server.send(b"last words") + server.goodbye()) == b"last words"
    assert client.ended


def test_a_refused_peer_gets_the_reason(tls: Tls, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other").node("other")
    stranger.dials.load_verify_locations(tmp_path / "ca.pem")
    server, client = TlsStream(tls.peers), TlsStream(stranger.dials, "node.example")
    client.receive(b"")
    with pytest.raises(ssl.SSLCertVerificationError):
        while not server.open:
            moved(client, server)
            moved(server, client)
    assert server.broken
    with pytest.raises(ssl.SSLError, match="unknown ca"):
        moved(server, client)
    assert client.broken and client.send(b"hello") == b""


@pytest.mark.parametrize("at", [0, 5, 20, -1])
def test_a_changed_octet_ends_it(tls: Tls, at: int) -> None:
    server, client = shaken(tls)
    wire = bytearray(client.send(b"pay 1 crown to the bearer"))
    wire[at] ^= 1
    with pytest.raises(ssl.SSLError):
        server.receive(bytes(wire))
    assert server.broken and server.send(b"thanks") != b"", "an alert, and nothing else"
    assert server.send(b"thanks") == b""
