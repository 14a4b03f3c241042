"""The daemon's side of TLS: what the configuration must say, when files are looked at, and what runs out."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from tests.tls import Authority
from understudy import codes
from understudy.config.load import load
from understudy.config.settings import ConfigError
from understudy.server.certificates import WARN, CertificateWatch, tls_of
from understudy.shared.codes import Code


def test_no_configuration_no_tls() -> None:
    assert tls_of(load(None)) is None


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["broker.tls_listen=h:1"], "tls.certificate: is needed for broker.tls_listen"),
        (["ha.tls=true", "ha.listen=h:1"], "tls.certificate: is needed for ha.tls"),
        (["broker.http_tls=true", "broker.http=h:1"], "tls.certificate: is needed for broker.http_tls"),
        (
            ["broker.http_tls=true", "tls.certificate=c", "tls.key=k"],
            "broker.http: is needed for broker.http_tls",
        ),
        (["tls.certificate=c"], "tls.key: is needed with tls.certificate"),
        (["tls.ca=c"], "tls.certificate: is needed with the other files"),
        (["ha.tls=true", "tls.certificate=c", "tls.key=k"], "tls.ca: is needed for ha.tls"),
        (
            ["ha.tls=true", "ha.brokers=h:1,i:1", "tls.certificate=c", "tls.key=k", "tls.ca=c"],
            "ha.listen: is needed for ha.tls",
        ),
        (["ha.tls=perhaps"], "ha.tls (--set): "),
        (["tls.key=3\0"], "tls.key (--set): "),
        (["broker.listen=off"], "broker.listen (--set): needs at least one address"),
    ],
)
def test_what_is_missing_is_named(overrides: list[str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, overrides)
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)


def test_files_that_are_no_use_are_named(tmp_path: Path) -> None:
    files = [f"tls.certificate={tmp_path}/c.pem", f"tls.key={tmp_path}/k.pem"]
    settings = load(None, [*files, "broker.listen=off", "broker.tls_listen=h:1"])
    with pytest.raises(ConfigError, match=rf"^tls.certificate: {tmp_path}/c.pem: No such file or directory$"):
        tls_of(settings)


def test_the_hosts_of_the_pair_are_looked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A flaw is one warning, at the start and whenever something new is taken; not a refusal."""
    files = Authority(tmp_path).signed("node", "elsewhere.example")
    pair = ["ha.tls=true", "ha.listen=b.example:1", "ha.brokers=a.example:1,b.example:1"]
    pair += ["ha.public_brokers=a.example:2,b.example:2"]
    tls = tls_of(
        load(
            None,
            [*pair, f"tls.certificate={files.certificate}", f"tls.key={files.key}", f"tls.ca={files.ca}"],
        )
    )
    assert tls is not None

    async def scene() -> None:
        watch = CertificateWatch(tls)
        watch.start()
        for _ in range(3):
            watch.stop()
            watch._look()
        watch.stop()
        watch.read()

    asyncio.run(scene())
    said = [r.msg for r in caplog.records if r.levelno == logging.WARNING]
    assert [each.code for each in said] == 2 * [codes.TLS_REFUSED_BY_OTHERS.name]
    assert "for no host of ha.brokers (a.example, b.example)" in said[0].sentence


@pytest.mark.parametrize(
    ("days", "entry"), [(13.9, codes.TLS_EXPIRES), (-1, codes.TLS_EXPIRED), (14.1, None)]
)
def test_a_certificate_that_runs_out_is_spoken_of_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, days: float, entry: Code | None
) -> None:
    tls = Authority(tmp_path).node("node", "node.example")
    assert WARN == 14 * 86400
    clock = tls.expires_at - days * 86400

    async def scene() -> None:
        nonlocal clock
        watch = CertificateWatch(tls, lambda: clock)
        watch.start()
        watch.stop()
        for _ in range(3):
            watch._look()
            watch.stop()
        clock += 86401
        watch._look()
        watch.stop()

    asyncio.run(scene())
    said = [r.msg for r in caplog.records if r.levelno == logging.WARNING]
    assert len(said) == (2 if days < 14 else 1)
    if entry is not None:
        assert said[0].code == entry.name and "the certificate of node.example" in said[0].sentence
