"""TLS of those who connect to a broker: the command line, the client kit, the node that declares definitions.

Whoever is there is checked always: by the authority, the system's own if none is given, and by the host name
that was dialled.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.shared.addresses import HostPort, TlsHostPort, parse_public_address
from understudy.shared.tls_faults import words


class FileFault(ValueError):
    """`which`: the field of `ClientTls` whose file is no use, or is missing."""

    def __init__(self, which: str, why: str) -> None:
        super().__init__(why)
        self.which = which


@dataclass(slots=True, frozen=True)
class ClientTls:
    """PEM files. `certificate` and `key`: what the client shows of itself, where brokers ask for it."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    itself: bool = False
    """It is this very process that is dialled, at its own bound address: nobody else can be there."""

    def context(self) -> ssl.SSLContext:
        """Raises FileFault, which names the file, for one that is no use."""
        which, at = "ca", self.ca
        if self.key is not None and self.certificate is None:
            raise FileFault("key", f"{self.key}: is the key of no certificate that was given")
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
            raise FileFault(which, f"{at}: not to be used for TLS ({words(why) or error})") from None
        return context

    def for_amqp(self, host: str) -> dict[str, Any]:
        """The same as py-amqp's `ssl`, for a connection to that host."""
        if self.itself:
            return {"cert_reqs": ssl.CERT_NONE}
        options = {
            "ca_certs": self.ca, "certfile": self.certificate, "keyfile": self.key, "server_hostname": host,
            "cert_reqs": ssl.CERT_REQUIRED,
        }  # fmt: skip
        return {name: value for name, value in options.items() if value is not None}


def _has_key(path: str) -> bool:
    """Raises OSError."""
    return b"PRIVATE KEY-----" in Path(path).read_bytes()


class SecureAddress(TlsHostPort):
    """A broker's address over TLS, with what is needed to connect there. Equal to one with other files."""

    tls: ClientTls

    @classmethod
    def of(cls, address: HostPort, tls: ClientTls) -> SecureAddress:
        made = cls(address.host, address.port)
        made.tls = tls
        return made


def parse_broker(value: str, tls: ClientTls) -> HostPort:
    """`HOST:PORT`, or `amqps://HOST:PORT`, to be reached with these files. Without a port it is 5672, or 5671
    over TLS. Raises ValueError."""
    text = value.strip().removesuffix("/")
    scheme, _, host = text.rpartition("://")
    if host and (":" not in host or host.endswith("]")):
        text = f"{text}:{5671 if scheme == 'amqps' else 5672}"
    return secured(parse_public_address(text), tls)


def secured(address: HostPort, tls: ClientTls) -> HostPort:
    """`address`, with these files if it speaks TLS."""
    return SecureAddress.of(address, tls) if isinstance(address, TlsHostPort) else address


def tls_of(address: HostPort) -> ClientTls | None:
    """How to speak TLS there; None: not at all."""
    if isinstance(address, SecureAddress):
        return address.tls
    return ClientTls() if isinstance(address, TlsHostPort) else None
