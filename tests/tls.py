"""Certificates for tests: an authority, and what it signs, as files in a folder of the test."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import trustme

from broker.security.tls import Tls, TlsFiles


class Authority:
    """`ca`: the path of its own certificate."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._authority = trustme.CA(organization_name=name)
        self.ca = str(folder / f"{name}.pem")
        self._authority.cert_pem.write_to_path(self.ca)

    def signed(
        self, name: str, *hosts: str, days: float = 30, since: float = -1, common_name: str | None = None
    ) -> TlsFiles:
        """A new certificate and key of these names, over the old ones of `name`, good for `days`, or from
        `since` on; both in days from now."""
        now = datetime.datetime.now(datetime.UTC)
        leaf = self._authority.issue_cert(
            *(hosts or ("127.0.0.1",)),
            common_name=common_name,
            not_before=now + datetime.timedelta(days=min(since, days - 1)),
            not_after=now + datetime.timedelta(days=days),
        )
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        key.write_bytes(leaf.private_key_pem.bytes())
        return TlsFiles(str(certificate), str(key), self.ca)

    def node(self, name: str, *hosts: str, days: float = 30) -> Tls:
        return Tls(self.signed(name, *hosts, days=days))

    def client(self, files: TlsFiles | None = None) -> ssl.SSLContext:
        """Of a client that trusts this authority; `files`: what it shows of itself."""
        context = ssl.create_default_context(cafile=self.ca)
        if files is not None:
            context.load_cert_chain(files.certificate, files.key)
        return context


def self_signed(folder: Path, name: str) -> TlsFiles:
    """Signed by nobody else: an authority of its own, which shows itself."""
    alone = trustme.CA(organization_name=name)
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(alone.cert_pem.bytes())
    key.write_bytes(alone.private_key_pem.bytes())
    return TlsFiles(str(certificate), str(key), str(certificate))
