"""The user that a client's certificate names, for SASL EXTERNAL. Values only.

The authority of `tls.client_ca` has signed the certificate, and so decides who is who. What a certificate
says twice names nobody.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography import x509

from broker.security.certificate_names import names_of

EXTERNAL = "EXTERNAL"
"""The mechanism's name."""


def _distinguished_name(certificate: x509.Certificate) -> list[str]:
    return [certificate.subject.rfc4514_string()]


def _common_name(certificate: x509.Certificate) -> list[str]:
    return list(names_of(certificate).common_names)


def _host(certificate: x509.Certificate) -> list[str]:
    return list(names_of(certificate).hosts)


def _alternative(kind: type[x509.RFC822Name] | type[x509.UniformResourceIdentifier]) -> _Read:
    def read(certificate: x509.Certificate) -> list[str]:
        try:
            found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        except x509.ExtensionNotFound:
            return []
        return list(found.value.get_values_for_type(kind))

    return read


_Read = Callable[[x509.Certificate], list[str]]
_READ: dict[str, _Read] = {
    "distinguished_name": _distinguished_name,
    "common_name": _common_name,
    "dns": _host,
    "email": _alternative(x509.RFC822Name),
    "uri": _alternative(x509.UniformResourceIdentifier),
}
SOURCES = tuple(_READ)
"""Where the name may be; the last three are subject alternative names."""


def user_of(der: bytes, source: str) -> str:
    """The user's name; empty if the certificate names none there, or several. `source`: one of `SOURCES`."""
    try:
        found = _READ[source](x509.load_der_x509_certificate(der))
    except ValueError:
        return ""
    return found[0] if len(found) == 1 else ""
