"""SASL EXTERNAL: a client's certificate names its user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import amqp
import pika
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from pika.credentials import ExternalCredentials
from pika.exceptions import ProbableAuthenticationError

from broker.amqp091.codec.frames import PROTOCOL_HEADER
from broker.model.history.records import EntryPut
from broker.security.access import Door
from broker.security.certificate_user import user_of
from broker.security.tls import Tls
from tests.broker.amqp091.wire import LOOPBACK, World
from tests.broker.server.live import Live, live_broker
from tests.broker.stored import permission
from tests.tls import Authority

STORED = (EntryPut("user", "", "alice", {"tags": []}), permission())
"""A user without a password."""
_DER = Encoding.DER


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def live(authority: Authority) -> Iterator[Live]:
    tls = Tls(replace(authority.signed("node"), client_ca=authority.ca))
    with live_broker(lambda: tls.clients, stored=STORED, external="common_name") as broker:
        yield broker


def connect(live: Live, authority: Authority, name: str) -> Any:
    context = authority.client(authority.signed(f"client-{name}", common_name=name))
    options = pika.SSLOptions(context, "127.0.0.1")
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", live.tls_port, ssl_options=options, credentials=ExternalCredentials()
        )
    )


def test_a_certificate_names_the_user(live: Live, authority: Authority) -> None:
    with connect(live, authority, "alice") as connection:
        channel = connection.channel()
        channel.queue_declare("q", exclusive=True)
        channel.basic_publish("", "q", b"x", pika.BasicProperties(user_id="alice"))
        assert channel.basic_get("q")[2] == b"x"


def test_with_another_client(live: Live, authority: Authority) -> None:
    files = authority.signed("client", common_name="alice")
    ssl = {"ca_certs": authority.ca, "certfile": files.certificate, "keyfile": files.key}
    with amqp.Connection(f"127.0.0.1:{live.tls_port}", login_method="EXTERNAL", ssl=ssl) as connection:
        assert b"EXTERNAL" in connection.mechanisms
        assert connection.channel().queue_declare(exclusive=True).queue


@pytest.mark.parametrize("name", ["bob", "ha"])
def test_who_is_no_user_is_refused(live: Live, authority: Authority, name: str) -> None:
    """The pair's own user among them."""
    with pytest.raises(ProbableAuthenticationError, match="authentication mechanism EXTERNAL"):
        connect(live, authority, name)


def test_it_is_offered_only_where_it_works(authority: Authority) -> None:
    der = x509.load_pem_x509_certificate(
        Path(authority.signed("one", common_name="alice").certificate).read_bytes()
    ).public_bytes(_DER)
    shown = replace(LOOPBACK, tls=True, shown=lambda: der)
    for external, peer, offered in (
        ("", shown, False), ("common_name", shown, True), ("common_name", LOOPBACK, False),
        ("common_name", replace(shown, shown=lambda: None), False),
        ("common_name", replace(shown, door=Door.PEERS), False),
    ):  # fmt: skip
        client = World(external=external).connect(peer)
        client.raw(PROTOCOL_HEADER)
        (start,) = client.read()
        assert ("EXTERNAL" in str(start["mechanisms"])) is offered
        client.send(0, "connection.start-ok", mechanism="EXTERNAL", response=b"", client_properties={})
        if not offered:
            assert "'EXTERNAL' is not supported" in client.read()[-1]["reply_text"]


def test_names_of_each_kind(authority: Authority) -> None:
    def der(*hosts: str, common_name: str | None = None) -> bytes:
        files = authority.signed("kind", *hosts, common_name=common_name)
        return x509.load_pem_x509_certificate(Path(files.certificate).read_bytes()).public_bytes(_DER)

    assert user_of(der(common_name="Ann, of us"), "common_name") == "Ann, of us"
    assert user_of(der(common_name="ann"), "distinguished_name").startswith("CN=ann,")
    assert user_of(der("a.example"), "dns") == "a.example" and user_of(der("a.example"), "email") == ""
    assert user_of(der("ann@a.example"), "email") == "ann@a.example"
    assert user_of(der("a.example", "b.example"), "dns") == "", "two names are none"
    assert user_of(der("a.example"), "common_name") == "" and user_of(b"\0", "dns") == ""
