"""TLS settings for connections to a broker: by the command line, the client kit, or a node's own
declarations.

The broker's certificate is always checked, against the given authority (or the system's own) and against the
host name.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.shared.addresses import HostPort, TlsHostPort, parse_public_address
from understudy.shared.tls_faults import words


class FileFault(ValueError):
    """A missing or unusable file. `which`: its field in `ClientTls`."""

    def __init__(self, which: str, why: str) -> None:
        super().__init__(why)
        self.which = which


@dataclass(slots=True, frozen=True)
class ClientTls:
    """PEM files. `certificate` and `key` identify the client to brokers that require it."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    itself: bool = False
    """The process connects to its own bound address, so there is nobody to verify."""

    def context(self) -> ssl.SSLContext:
        """Make the SSL context. Raises FileFault, which names the unusable file."""
        which, at = "ca", self.ca
        if self.key is not None and self.certificate is None:
            raise FileFault("key", f"{self.key}: a key needs a certificate, and none was given")
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.certificate is not None:
                which = "certificate"
                at = self.certificate if self.key is None else f"{self.certificate}, {self.key}"
                if self.key is None and not _has_key(self.certificate):
                    raise FileFault("key", f"is needed: there is no key in {self.certificate}")
                context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # ssl.SSLError is one
            why = error.reason if isinstance(error, ssl.SSLError) else error.strerror
            raise FileFault(which, f"{at}: cannot be used for TLS ({words(why) or error})") from None
        return context

    def for_amqp(self, host: str) -> dict[str, Any]:
        """The same settings as py-amqp's `ssl` argument, for a connection to `host`."""
        if self.itself:
            return {"cert_reqs": ssl.CERT_NONE}
        options = {
            "ca_certs": self.ca, "certfile": self.certificate, "keyfile": self.key, "server_hostname": host,
            "cert_reqs": ssl.CERT_REQUIRED,
        }  # fmt: skip
        return {name: value for name, value in options.items() if value is not None}


def _has_key(path: str) -> bool:
    """Whether the file contains a private key. Raises OSError."""
    return b"PRIVATE KEY-----" in Path(path).read_bytes()


class SecureAddress(TlsHostPort):
    """A broker's TLS address and the files for it. Equal to the same address with other files."""

    tls: ClientTls

    @classmethod
    def of(cls, address: HostPort, tls: ClientTls) -> SecureAddress:
        made = cls(address.host, address.port)
        made.tls = tls
        return made


def parse_broker(value: str, tls: ClientTls) -> HostPort:
    """Parse `HOST:PORT` or `amqps://HOST:PORT`, and attach the TLS files. The default port is 5672, or 5671
    over TLS. Raises ValueError."""
    text = value.strip().removesuffix("/")
    scheme, _, host = text.rpartition("://")
    if host and (":" not in host or host.endswith("]")):
        text = f"{text}:{5671 if scheme == 'amqps' else 5672}"
    return secured(parse_public_address(text), tls)


def secured(address: HostPort, tls: ClientTls) -> HostPort:
    """`address`, with the files attached if it is a TLS address."""
    return SecureAddress.of(address, tls) if isinstance(address, TlsHostPort) else address


def tls_of(address: HostPort) -> ClientTls | None:
    """The TLS files for `address`; None for a plain address."""
    if isinstance(address, SecureAddress):
        return address.tls
    return ClientTls() if isinstance(address, TlsHostPort) else None
