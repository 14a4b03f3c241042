"""The names of a certificate cover the same hosts as for OpenSSL, which checks them when a node dials."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from broker.security.certificate_names import CertificateNames, names_shown
from broker.security.tls import TlsFiles
from broker.server.tls_stream import TlsStream
from tests.tls import Authority

END = "-----END CERTIFICATE-----"
NAMES = {
    "plain": ("a.example", "10.0.0.1", "2001:db8::1"),
    "star": ("*.b.example",),
    "star of two labels": ("*.example", "a.example"),
    "address": ("10.0.0.2",),
    "network": ("10.0.0.0/30", "b.example"),
}
HOSTS = (
    "a.example", "A.Example", "x.a.example", "example", "a.example.", "10.0.0.1", "10.0.0.2", "10.0.0.10",
    "2001:db8::1", "2001:DB8:0::1", "2001:db8::2", "b.example", "x.b.example", "x.y.b.example", "X.B.EXAMPLE",
    "x_y.b.example", "xn--bcher-kva.b.example", "bücher.b.example", "common.example",
)  # fmt: skip


def leaf(files: TlsFiles) -> bytes:
    """The first certificate of the file, in DER as in a handshake."""
    text = Path(files.certificate).read_text()
    return ssl.PEM_cert_to_DER_cert(text[: text.index(END) + len(END)])


def by_openssl(authority: Authority, shown: ssl.SSLContext, host: str) -> bool:
    client, server = TlsStream(authority.client(), host), TlsStream(shown)
    try:
        client.receive(b"")
        while not client.open:
            server.receive(client.output())
            client.receive(server.output())
    except ssl.SSLCertVerificationError as error:
        assert "mismatch" in error.verify_message
        return False
    return True


@pytest.mark.parametrize("common_name", [None, "common.example"])
@pytest.mark.parametrize("kind", NAMES)
def test_it_covers_the_hosts_that_openssl_accepts(tmp_path: Path, kind: str, common_name: str | None) -> None:
    """Also the common name, which counts if there is no other host name."""
    authority = Authority(tmp_path)
    files = authority.signed("node", *NAMES[kind], common_name=common_name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    names = names_shown(leaf(files))
    taken = {host for host in HOSTS if by_openssl(authority, context, host)}
    assert {host for host in HOSTS if names.cover(host)} == taken != set()


def test_an_unreadable_certificate_covers_no_host() -> None:
    names = names_shown(b"junk")
    assert names == CertificateNames() and str(names) == "nobody" and not names.cover("a.example")


def test_a_long_list_of_names_is_abbreviated() -> None:
    assert str(CertificateNames(tuple("abcdefg"))) == "a, b, c, d, e and 2 more"
