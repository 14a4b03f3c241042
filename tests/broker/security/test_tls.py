"""TLS files: errors and their texts, and reloads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from broker import codes
from broker.security.tls import Tls, TlsFault, TlsFiles
from tests.tls import Authority, self_signed
from understudy.shared.codes import Coded


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def files(authority: Authority) -> TlsFiles:
    return authority.signed("node", "node.example")


def fault(files: TlsFiles) -> str:
    with pytest.raises(TlsFault) as caught:
        Tls(files)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_complete_set_describes_its_names_and_expiry(files: TlsFiles) -> None:
    tls = Tls(files)
    assert 29.9 < (tls.expires_at - time.time()) / 86400 < 30.1
    assert tls.described().startswith(f"the certificate of node.example ({files.certificate}), good until 20")
    assert tls.clients is not tls.peers and tls.dials.check_hostname


def test_without_an_authority_there_is_no_link(files: TlsFiles) -> None:
    tls = Tls(TlsFiles(files.certificate, files.key))
    for context in ("peers", "dials"):
        with pytest.raises(RuntimeError, match=r"tls\.ca"):
            getattr(tls, context)


def test_files_that_are_not_there_or_are_something_else(files: TlsFiles, tmp_path: Path) -> None:
    certificate, key, ca = files.certificate, files.key, files.ca
    gone, junk, broken = str(tmp_path / "gone.pem"), tmp_path / "junk.pem", tmp_path / "broken.pem"
    junk.write_bytes(b"\xff\0junk")
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    pipe = str(tmp_path / "pipe.pem")
    os.mkfifo(pipe)
    assert fault(TlsFiles(pipe, key)) == f"tls.certificate: {pipe}: is not a regular file"
    assert fault(TlsFiles(certificate, key, pipe)) == f"tls.ca: {pipe}: is not a regular file"
    nothing = f"{tmp_path}: Is a directory"
    assert fault(TlsFiles(gone, key)) == f"tls.certificate: {gone}: No such file or directory"
    assert fault(TlsFiles(str(tmp_path), key)) == f"tls.certificate: {nothing}"
    assert fault(TlsFiles(str(junk), key)) == f"tls.certificate: {junk}: holds no certificate in PEM form"
    assert fault(TlsFiles(key, key)) == f"tls.certificate: {key}: holds no certificate in PEM form"
    assert fault(TlsFiles(str(broken), key)).startswith(
        f"tls.certificate: {broken}: holds no certificate that"
    )
    assert fault(TlsFiles(certificate, gone)) == f"tls.key: {gone}: No such file or directory"
    assert (
        fault(TlsFiles(certificate, certificate))
        == f"tls.key: {certificate}: holds no private key in PEM form"
    )
    assert fault(TlsFiles(certificate, key, gone)) == f"tls.ca: {gone}: No such file or directory"
    assert fault(TlsFiles(certificate, key, key)) == f"tls.ca: {key}: holds no certificate in PEM form"
    unread = f"{broken}: holds no certificate that can be read"
    assert fault(TlsFiles(certificate, key, str(broken))) == f"tls.ca: {unread}"
    assert fault(TlsFiles(certificate, key, ca, str(broken))) == f"tls.client_ca: {unread}"


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_files_that_are_cut_short_are_said_to_be_unreadable(files: TlsFiles, share: float) -> None:
    assert files.ca is not None
    unread = "holds no certificate that can be read"
    for setting, path, why in (("tls.key", files.key, "cannot be read"), ("tls.ca", files.ca, unread)):
        whole = Path(path).read_bytes()
        Path(path).write_bytes(whole[: int(share * len(whole))])
        assert fault(files) == f"{setting}: {path}: {why}"
        Path(path).write_bytes(whole)


def test_a_key_of_another_certificate(files: TlsFiles, authority: Authority) -> None:
    other = authority.signed("other")
    assert (
        fault(TlsFiles(files.certificate, other.key))
        == f"tls.key: {other.key}: is not the key of the certificate"
    )


@pytest.mark.parametrize("form", ["TraditionalOpenSSL", "PKCS8"])
def test_an_encrypted_key_does_not_prompt_for_a_password(files: TlsFiles, form: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    sealed = serialization.BestAvailableEncryption(b"word")
    Path(files.key).write_bytes(
        key.private_bytes(serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), sealed)
    )
    assert fault(files).startswith(f"tls.key: {files.key}: is encrypted")


def test_files_are_read_again_once_they_have_stopped_changing(files: TlsFiles, authority: Authority) -> None:
    said: list[Coded] = []
    tls = Tls(files, said.append)
    before = tls.clients
    assert not tls.look(time.time()) and said == []
    authority.signed("node", "new.example", days=90)
    assert not tls.look(time.time()) and tls.clients is before
    assert tls.look(time.time()) and tls.clients is not before
    assert not tls.look(time.time())
    assert said == [] and tls.described().startswith("the certificate of new.example")


def test_a_broken_new_file_is_said_once_and_the_old_one_stays(files: TlsFiles, authority: Authority) -> None:
    said: list[Coded] = []
    tls = Tls(files, said.append)
    before, until = tls.clients, tls.expires_at
    os.unlink(files.key)
    for _ in range(5):
        assert not tls.look(time.time())
    assert (tls.clients, tls.expires_at) == (before, until)
    assert said == [codes.TLS_RELOAD.say(fault=f"tls.key: {files.key}: No such file or directory")]
    authority.signed("node")
    assert not tls.look(time.time()) and tls.look(time.time()) and tls.clients is not before


def test_asked_to_read_it_reads_at_once(files: TlsFiles, authority: Authority) -> None:
    said: list[Coded] = []
    tls = Tls(files, said.append)
    assert tls.read(time.time()) and not tls.look(time.time())
    authority.signed("other")
    os.replace(str(files.key).replace("node", "other"), files.key)
    assert not tls.read(time.time()) and not tls.look(time.time()) and not tls.look(time.time())
    assert len(said) == 1 and "is not the key of the certificate" in said[0].sentence


def told(words: str, authority: Authority, certificate: Path) -> str:
    """The text with the names and dates of the files in place of `CA`, `BEGIN` and `END`."""
    leaf = x509.load_pem_x509_certificate(certificate.read_bytes())
    for name, value in (
        ("CA", authority.ca),
        ("BEGIN", f"{leaf.not_valid_before_utc:%Y-%m-%d %H:}"),
        ("END", f"{leaf.not_valid_after_utc:%Y-%m-%d %H:}"),
    ):
        words = words.replace(name, value)
    return words


Bad = Callable[[Authority, Authority], object]
BAD: dict[str, tuple[Bad, str]] = {
    "expired": (lambda ours, _: ours.signed("node", days=-1), "has run out, at END"),
    "early": (lambda ours, _: ours.signed("node", since=1), "is not good before BEGIN"),
    "of another authority": (
        lambda _, other: other.signed("node"),
        "is refused by who has this tls.ca (CA): unable to get local issuer certificate",
    ),
    "self-signed": (
        lambda ours, _: self_signed(Path(ours.ca).parent, "node"),
        "is refused by who has this tls.ca (CA): self-signed certificate",
    ),
    "for another host": (
        lambda ours, _: ours.signed("node", "elsewhere.example", "10.0.0.9"),
        "is for elsewhere.example, 10.0.0.9, and for no host of ha.brokers (b.example, 127.0.0.1)",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_new_certificate_that_others_would_refuse_is_not_taken(
    authority: Authority, tmp_path: Path, bad: str
) -> None:
    said: list[Coded] = []
    files = authority.signed("node")
    tls = Tls(files, said.append, ["b.example", "127.0.0.1"])
    before, until = tls.clients, tls.expires_at
    make, words = BAD[bad]
    make(authority, Authority(tmp_path, "other"))
    for _ in range(4):
        assert not tls.look(time.time())
    assert (tls.clients, tls.expires_at, tls.refused, tls.flaw(time.time())) == (before, until, True, None)
    [line] = said
    assert line.code == codes.TLS_RELOAD.name
    assert f"{files.certificate}: {told(words, authority, tmp_path / 'node.pem')}" in line.sentence
    authority.signed("node", days=60)
    assert tls.read(time.time()) and not tls.refused and tls.clients is not before


@pytest.mark.parametrize("bad", BAD)
def test_a_flawed_certificate_is_taken_at_startup_and_if_no_worse(
    authority: Authority, tmp_path: Path, bad: str
) -> None:
    """Serving some clients is better than serving none, and a flawed certificate need not be kept."""
    make, words = BAD[bad]
    other = Authority(tmp_path, "other")
    make(authority, other)
    files = TlsFiles(str(tmp_path / "node.pem"), str(tmp_path / "node.key"), authority.ca)
    tls = Tls(files, pytest.fail, ["b.example", "127.0.0.1"])
    assert told(words, authority, tmp_path / "node.pem") in str(tls.flaw(time.time()))
    before = tls.clients
    other.signed("node", "elsewhere.example")
    assert tls.read(time.time()) and tls.clients is not before and tls.flaw(time.time()) is not None
    authority.signed("node")
    assert tls.read(time.time()) and tls.flaw(time.time()) is None


def test_an_authority_that_did_not_sign_the_certificate_is_not_taken(
    authority: Authority, tmp_path: Path
) -> None:
    """Not alone, but together with the old authority in one file."""
    said: list[Coded] = []
    tls = Tls(authority.signed("node"), said.append)
    old, new = Path(authority.ca).read_bytes(), Path(Authority(tmp_path, "new").ca).read_bytes()
    Path(authority.ca).write_bytes(new)
    assert not tls.read(time.time()) and "is refused by who has this tls.ca" in said[0].sentence
    Path(authority.ca).write_bytes(new + old)
    assert tls.read(time.time()) and len(said) == 1


def test_a_certificate_that_came_too_early_is_loaded_when_valid(authority: Authority) -> None:
    tls = Tls(TlsFiles(*(files := authority.signed("node")).all()[:2]))
    before, now = tls.clients, time.time()
    authority.signed("node", since=1)
    assert not tls.look(now) and not tls.look(now) and tls.refused
    assert not tls.look(now + 86000) and tls.clients is before
    assert tls.look(now + 86401) and not tls.refused and tls.clients is not before
    assert files.certificate in tls.described() and not tls.look(now + 86402)


def test_without_an_authority_or_a_pair_only_the_dates_count(authority: Authority, tmp_path: Path) -> None:
    files = authority.signed("node")
    tls = Tls(TlsFiles(files.certificate, files.key), pytest.fail)
    Authority(tmp_path, "other").signed("node", "elsewhere.example")
    assert tls.read(time.time()) and tls.flaw(time.time()) is None


def test_a_self_signed_certificate_is_accepted(tmp_path: Path) -> None:
    assert Tls(self_signed(tmp_path, "alone")).expires_at > time.time()
