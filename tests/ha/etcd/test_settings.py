"""The settings of the `etcd` authority: what is refused, and by which sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tls import Authority, self_signed
from understudy.config.load import load
from understudy.config.settings import ConfigError, EtcdSection
from understudy.server.etcd import CannotRead, tls_context

BROKERS = "ha.brokers=a.example:5672,b.example:5672"
URL = "http://etcd.example:2379"
PAIR = ("ha.authority=etcd", BROKERS, f"ha.etcd.endpoints={URL}")


def test_three_settings_are_enough() -> None:
    ha = load(None, PAIR).ha
    assert (ha.etcd.endpoints, ha.etcd.prefix, ha.failover_timeout) == ((URL,), "/understudy/pair", 5.0)
    several = load(None, [*PAIR, f"ha.etcd.endpoints={URL}/,https://[::1]:2379,https://[::2]"])
    assert several.ha.etcd.endpoints == (URL, "https://[::1]:2379", "https://[::2]:2379")


def test_a_scheme_in_upper_case_is_the_same_scheme(tmp_path: Path) -> None:
    ca = Authority(tmp_path).ca
    etcd = load(None, [*PAIR, "ha.etcd.endpoints=HTTPS://etcd.example", f"ha.etcd.ca={ca}"]).ha.etcd
    assert etcd.endpoints == ("https://etcd.example:2379",)
    assert tls_context(etcd) is not None


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("ha.etcd.endpoints=", "is needed for ha.authority = 'etcd'"),
        ("ha.etcd.endpoints=etcd.example:2379", "is not a URL such as 'http://HOST:2379'"),
        ("ha.etcd.endpoints=http://etcd.example/v3", "is not a URL such as"),
        *(
            (f"ha.etcd.endpoints={URL}{end}", "is not a URL such as")
            for end in ("?", "#", "/?", "?a=b", "#a")
        ),
        ("ha.etcd.endpoints=http://etcd\n.example:2379", "is not a URL such as"),
        ("ha.etcd.endpoints=http://[::1", "'[::1' is not an address"),
        ("ha.etcd.endpoints=http://::1:2379", "'::1:2379' is not an address"),
        ("ha.etcd.endpoints=http://etcd.example:", "'etcd.example:' is not an address"),
        ("ha.etcd.endpoints=http://:2379", "'http://:2379'"),
        ("ha.etcd.endpoints=http://etcd.example:99999", "http://etcd.example:99999"),
        (f"ha.etcd.endpoints={URL},HTTP://etcd.example/", "names an endpoint twice"),
        *(
            (f"ha.etcd.endpoints=http://me:{word}@etcd.example:2379", "//***@etcd.example:2379' must not")
            for word in ("secret", "@secret", "s/secret", "?secret", "#secret@")
        ),
        ("ha.etcd.prefix=orders", "'orders' is not a prefix of keys"),
        ("ha.etcd.prefix=/", "'/' is not a prefix of keys"),
        ("ha.etcd.prefix=/a b", "is not a prefix of keys"),
        ("ha.etcd.username=orders", "ha.etcd.username and ha.etcd.password go together"),
        ("ha.etcd.password=secret", "ha.etcd.username and ha.etcd.password go together"),
        ("ha.etcd.certificate=a.pem", "ha.etcd.certificate and ha.etcd.key go together"),
        ("ha.etcd.ca=ca.pem", "needs URLs with https"),
        ("ha.failover_timeout=1s", "must be whole seconds from 2s"),
        ("ha.failover_timeout=61s", "less than or equal to 60"),
        ("ha.failover_timeout=2500ms", "must be whole seconds"),
        ("ha.brokers=", "is needed for ha.authority = 'etcd'"),
        ("ha.authority=manual", "ha.etcd.endpoints needs 'etcd'"),
    ],
)
def test_what_is_refused(setting: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, [*PAIR, setting])
    line = str(caught.value)
    assert told in line and "secret" not in line and "\n" not in line, line


def test_files_for_tls_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    right, other = authority.signed("node"), self_signed(tmp_path, "other")
    good = EtcdSection(
        endpoints=("https://e",), ca=authority.ca, certificate=right.certificate, key=right.key
    )
    assert tls_context(good) is not None
    assert tls_context(EtcdSection(endpoints=(URL,))) is None
    for key, file, more in (
        ("ha.etcd.ca", tmp_path / "nowhere", {"ca": tmp_path / "nowhere"}),
        ("ha.etcd.ca", right.key, {"ca": right.key}),
        ("ha.etcd.certificate", right.certificate, {"key": other.key}),
    ):
        bad = good.model_copy(update={name: str(path) for name, path in more.items()})
        with pytest.raises(CannotRead, match=f"{key}: {file} cannot be used: "):
            tls_context(bad)
