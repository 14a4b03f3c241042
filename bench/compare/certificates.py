"""One authority and one certificate for loopback, which all brokers of a comparison show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme

from bench.brokers import HOST


@dataclass(slots=True, frozen=True)
class Files:
    """Paths of PEM files."""

    ca: Path
    certificate: Path
    key: Path

    @classmethod
    def made(cls, folder: Path) -> Files:
        """New ones, in an existing folder."""
        files = cls(folder / "ca.pem", folder / "node.pem", folder / "node.key")
        authority = trustme.CA()
        leaf = authority.issue_cert(HOST)
        authority.cert_pem.write_to_path(str(files.ca))
        files.certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        files.key.write_bytes(leaf.private_key_pem.bytes())
        return files

    def understudy(self) -> list[str]:
        """Settings."""
        return [f"tls.certificate={self.certificate}", f"tls.key={self.key}", f"tls.ca={self.ca}"]

    def rabbitmq(self) -> list[str]:
        """Lines of rabbitmq.conf."""
        return [
            f"ssl_options.cacertfile = {self.ca}",
            f"ssl_options.certfile = {self.certificate}",
            f"ssl_options.keyfile = {self.key}",
        ]
