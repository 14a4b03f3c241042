"""The hosts and addresses that a certificate names, and whether they include a given one.

Uses OpenSSL's rules for a dialling client, so that both ends of a link accept the same certificates. Values
only; whether the certificate is trusted is decided elsewhere.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import NameOID

_SHOWN = 5
_ADDRESS = ipaddress.IPv4Address | ipaddress.IPv6Address
_LABEL = re.compile("[0-9a-z-]+")


@dataclass(slots=True, frozen=True)
class CertificateNames:
    """`str()`: the first few names, else the subject, in one line."""

    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    common_names: tuple[str, ...] = ()
    """From the subject. They count as hosts if `hosts` is empty, and never as addresses."""
    subject: str = ""

    def cover(self, host: str) -> bool:
        """Whether the certificate names `host`, a host name or an address."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return any(_same(name, _ascii(host)) for name in self.hosts or self.common_names)
        return any(ipaddress.ip_address(found) == address for found in self.addresses)

    def __str__(self) -> str:
        names = [*self.hosts, *self.addresses]
        rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return ", ".join(names[:_SHOWN]) + rest or self.subject or "nobody"


def names_of(certificate: x509.Certificate) -> CertificateNames:
    """The names of a certificate; empty if they cannot be read."""
    try:
        subject = certificate.subject
        common = tuple(str(name.value) for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME))
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return CertificateNames(common_names=common, subject=subject.rfc4514_string())
    except ValueError:
        return CertificateNames()
    return CertificateNames(
        tuple(found.get_values_for_type(x509.DNSName)),
        tuple(str(each) for each in found.get_values_for_type(x509.IPAddress) if isinstance(each, _ADDRESS)),
        common,
        subject.rfc4514_string(),
    )


def names_shown(der: bytes) -> CertificateNames:
    """The names of a certificate from a handshake; empty if they cannot be read."""
    try:
        return names_of(x509.load_der_x509_certificate(der))
    except ValueError:
        return CertificateNames()


def _ascii(host: str) -> str:
    """The form used in certificates."""
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def _same(name: str, host: str) -> bool:
    """Compare a name, which may have a wildcard. A star must be the whole first label, stands for one label,
    and at least two labels follow it."""
    name, host = name.lower(), host.lower()
    first, _, rest = name.partition(".")
    if first != "*" or "." not in rest:
        return name == host
    label, _, domain = host.partition(".")
    return domain == rest and _LABEL.fullmatch(label) is not None
