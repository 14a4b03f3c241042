"""TLS of one node: its certificate, the authorities it trusts, and the contexts made from them.

Owner: the code that opens listeners and dials. It asks for a context for each new connection, so reloaded
files apply to new connections only. `Tls.read` takes all of the new files or none. While the certificate in
use is valid, it takes none that others would refuse. No sockets, and no clock but OpenSSL's own: `look` is
called every second or so. `now`: seconds since 1970.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509

from broker import codes
from broker.security.certificate_names import CertificateNames, names_of
from understudy.shared.codes import Coded
from understudy.shared.tls_faults import fault_of, words

_BEGIN_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_BEGIN_KEY = "PRIVATE KEY-----"
_FLIGHTS = 3
"""Maximum flights that each end sends in a handshake."""
_KEY_REASONS = {"KEY_VALUES_MISMATCH": "is not the key of the certificate"}


class TlsFault(Exception):
    """A file cannot be used. `str()` is one line: the setting, the file, and why."""

    def __init__(self, setting: str, path: str, why: str) -> None:
        super().__init__(f"{setting}: {path}: {why}")


@dataclass(slots=True, frozen=True)
class TlsFiles:
    """Paths of PEM files. The certificate's file may also hold its issuers' certificates."""

    certificate: str
    key: str
    ca: str | None = None
    """The authority for the nodes' certificates. Both ends of a link accept only its certificates."""
    client_ca: str | None = None
    """The authority for clients' certificates. None: clients need none."""

    def all(self) -> list[str]:
        return [path for path in (self.certificate, self.key, self.ca, self.client_ca) if path is not None]


@dataclass(slots=True, frozen=True)
class _Read:
    """The result of reading the files once."""

    clients: ssl.SSLContext
    peers: ssl.SSLContext | None
    dials: ssl.SSLContext | None
    trial: ssl.SSLContext | None
    """Like `dials`, for any host."""
    starts_at: float
    expires_at: float
    names: CertificateNames


class Tls:
    """The contexts of one node, reloaded when its files change."""

    def __init__(
        self, files: TlsFiles, log: Callable[[Coded], None] = lambda said: None, hosts: Sequence[str] = ()
    ) -> None:
        """`hosts`: where peers find the nodes of the pair, this one included. Raises TlsFault, but not for a
        certificate that others would refuse; see `flaw`."""
        self._files = files
        self._log = log
        self._hosts = hosts
        self._again_at: float | None = None
        self.refused = False
        """The files in their present state were not taken."""
        self._stamp = self._seen = _stamp(files)
        self._now = _read(files)

    @property
    def clients(self) -> ssl.SSLContext:
        """For connections that clients open."""
        return self._now.clients

    @property
    def peers(self) -> ssl.SSLContext:
        """For connections that peers open. The peer must show a certificate of `ca`."""
        return _needed(self._now.peers)

    @property
    def dials(self) -> ssl.SSLContext:
        """For connections that this node opens to a peer. It shows its own certificate, and accepts only one
        of `ca` for that host."""
        return _needed(self._now.dials)

    @property
    def expires_at(self) -> float:
        """When the node's own certificate expires, in seconds since 1970."""
        return self._now.expires_at

    def described(self) -> str:
        """The certificate's names and expiry date."""
        whose = f"the certificate of {self._now.names} ({self._files.certificate})"
        return f"{whose}, good until {_date(self.expires_at)}"

    def flaw(self, now: float) -> TlsFault | None:
        """Why others refuse the certificate in use: dates, authority or hosts. None: they accept it."""
        return self._flaw(self._now, now)

    def look(self, now: float) -> bool:
        """Reload the files if they have changed, and then stayed unchanged between two calls, since they are
        rarely changed all at once. Also reload when a certificate refused as too early becomes valid. Returns
        True if there is a new certificate."""
        seen, self._seen = self._seen, _stamp(self._files)
        changed = self._seen == seen and seen != self._stamp
        due = self._again_at is not None and now >= self._again_at
        return (changed or due) and self.read(now)

    def read(self, now: float) -> bool:
        """Reload the files now. If they cannot be used, or have a flaw that the current ones do not have, the
        fault is logged, the current ones stay in use, and False is returned."""
        self._stamp = self._seen = _stamp(self._files)
        self._again_at = None
        try:
            found = _read(self._files)
            flaw = self._flaw(found, now)
            if flaw is not None and self.flaw(now) is None:
                self._again_at = found.starts_at if found.starts_at > now else None
                raise flaw
        except TlsFault as fault:
            self.refused = True
            self._log(codes.TLS_RELOAD.say(fault=fault))
            return False
        self._now, self.refused = found, False
        return True

    def _flaw(self, read: _Read, now: float) -> TlsFault | None:
        if why := self._why_not(read, now):
            return TlsFault("tls.certificate", self._files.certificate, why)
        return None

    def _why_not(self, read: _Read, now: float) -> str:
        if now >= read.expires_at:
            return f"has run out, at {_date(read.expires_at)}"
        if now < read.starts_at:
            return f"is not good before {_date(read.starts_at)}"
        if read.peers is not None and read.trial is not None and (why := _tried(read.peers, read.trial)):
            return f"is refused by who has this tls.ca ({self._files.ca}): {why}"
        if self._hosts and not any(read.names.cover(host) for host in self._hosts):
            return f"is for {read.names}, and for no host of ha.brokers ({', '.join(self._hosts)})"
        return ""


def _needed(context: ssl.SSLContext | None) -> ssl.SSLContext:
    if context is None:
        raise RuntimeError("TLS between peers needs an authority, tls.ca")
    return context


def _stamp(files: TlsFiles) -> tuple[tuple[int, int, int] | None, ...]:
    """Changes whenever one of the files, or the target of a symbolic link, changes."""
    return tuple(_stamp_of(path) for path in files.all())


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


# -- reading


def _read(files: TlsFiles) -> _Read:
    own = _own_certificate(files)
    clients = _context(ssl.PROTOCOL_TLS_SERVER, files)
    if files.client_ca is not None:
        _trust(clients, "tls.client_ca", files.client_ca)
    peers = dials = trial = None
    if files.ca is not None:
        peers = _context(ssl.PROTOCOL_TLS_SERVER, files)
        _trust(peers, "tls.ca", files.ca)
        dials = _context(ssl.PROTOCOL_TLS_CLIENT, files)
        _trust(dials, "tls.ca", files.ca)
        trial = _context(ssl.PROTOCOL_TLS_CLIENT, files)
        _trust(trial, "tls.ca", files.ca)
        trial.check_hostname = False
    starts_at, expires_at = own.not_valid_before_utc.timestamp(), own.not_valid_after_utc.timestamp()
    return _Read(clients, peers, dials, trial, starts_at, expires_at, names_of(own))


def _own_certificate(files: TlsFiles) -> x509.Certificate:
    text = _text("tls.certificate", files.certificate)
    if _BEGIN_CERTIFICATE not in text:
        raise TlsFault("tls.certificate", files.certificate, "holds no certificate in PEM form")
    try:
        own = x509.load_pem_x509_certificates(text.encode())[0]
    except ValueError:
        raise TlsFault(
            "tls.certificate", files.certificate, "holds no certificate that can be read"
        ) from None
    key = _text("tls.key", files.key)
    if "ENCRYPTED" in key:
        raise TlsFault("tls.key", files.key, "is encrypted, and nobody can be asked for its password")
    if _BEGIN_KEY not in key:
        raise TlsFault("tls.key", files.key, "holds no private key in PEM form")
    return own


def _text(setting: str, path: str) -> str:
    """A regular file's text. Opened without blocking, because a running broker must not wait for a pipe."""
    try:
        with open(path, encoding="latin-1", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise TlsFault(setting, path, "is not a regular file")
            return file.read(1 << 20)
    except OSError as error:
        raise TlsFault(setting, path, error.strerror or str(error)) from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _context(protocol: ssl._SSLMethod, files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 or above, with the node's certificate."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(files.certificate, files.key, password=lambda: "")
    except ssl.SSLError as error:
        reason = words(error.reason)  # no reason for a damaged or truncated key
        unfit = f"cannot be used with the certificate ({reason})" if reason else "cannot be read"
        raise TlsFault("tls.key", files.key, _KEY_REASONS.get(error.reason or "", unfit)) from None
    except OSError as error:
        raise TlsFault("tls.key", files.key, error.strerror or str(error)) from None
    return context


def _trust(context: ssl.SSLContext, setting: str, path: str) -> None:
    """From now on require a certificate of that authority from the other end."""
    if _BEGIN_CERTIFICATE not in _text(setting, path):
        raise TlsFault(setting, path, "holds no certificate in PEM form")
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        reason = words(error.reason) if isinstance(error, ssl.SSLError) else error.strerror
        why = f" ({reason})" if reason else ""  # no reason for a damaged or truncated file
        raise TlsFault(setting, path, f"holds no certificate that can be read{why}") from None
    context.verify_mode = ssl.CERT_REQUIRED


def _tried(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """A handshake of a node with itself. Each end checks the certificate as the other node of the pair would.
    Returns why it fails, or an empty text."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)]
    for end in ends * _FLIGHTS:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                return error.verify_message
            return fault_of(error)
    return ""


def _date(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
