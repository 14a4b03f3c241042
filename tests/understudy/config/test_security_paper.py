"""docs/how-to/security.md: its commands make what it says, and its configuration is one."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from broker.security.tls import Tls, TlsFiles
from tests.broker.server.live import live_broker
from understudy.client import ClientTls
from understudy.client.failover import Failover
from understudy.config.load import load

PAPER = (Path(__file__).parents[3] / "docs" / "how-to" / "security.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAPER, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_its_commands_make_certificates_that_are_taken(tmp_path: Path) -> None:
    script = block("sh").replace("node a a.example 10.0.0.1", "node a a.example 127.0.0.1")
    done = subprocess.run(["sh", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ca = str(tmp_path / "ca.pem")
    a, b = (Tls(TlsFiles(f"{tmp_path}/{name}.pem", f"{tmp_path}/{name}.key", ca)) for name in "ab")
    assert a.described().startswith("the certificate of a.example, 127.0.0.1 (")
    assert b.described().startswith("the certificate of b.example, 10.0.0.2 (")
    assert a.flaw(time.time()) is None is b.flaw(time.time())
    with live_broker(lambda: a.clients) as live:
        client = Failover(f"amqps://127.0.0.1:{live.tls_port}", tls=ClientTls(ca))
        client.connect({}, deadline=0.0)
        client.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_strict_clients_take_them_too(tmp_path: Path) -> None:
    """Newer versions of Python ask for every extension that the standard has, of both ends."""
    subprocess.run(["sh", "-e", "-c", block("sh")], cwd=tmp_path, capture_output=True, check=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "a.pem", tmp_path / "a.key")
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    client.load_cert_chain(tmp_path / "b.pem", tmp_path / "b.key")
    server.load_verify_locations(tmp_path / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    for context in (server, client):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(one, other, server_side=True),
        client.wrap_bio(other, one, server_hostname="a.example"),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    assert all(end.getpeercert() for end in ends)


def test_its_configuration_is_one(tmp_path: Path) -> None:
    path = tmp_path / "pair.toml"
    path.write_text(block("toml"))
    settings = load(path)
    assert settings.broker.listen == () and settings.ha.tls and len(settings.ha.public_brokers) == 2
