"""The settings of a witness and of its pairs: what is refused, and by which sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tls import Authority
from understudy.config.load import load
from understudy.config.settings import ConfigError

PAIR = ("ha.authority=pair", "ha.role=primary", "ha.brokers=a.example:5672,b.example:5672")
APART = ("ha.listen=a.example:7000", "ha.public_brokers=pa.example:5672,amqps://pb.example:5671")
OPERATOR = ("auth.default_user=boss", "auth.default_password=secret")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ((*PAIR, *APART, "ha.witness=pa.example:5672"), "pa.example:5672 is a node of the pair itself"),
        (
            (*PAIR, *APART, "ha.witness=amqps://pb.example:5671"),
            "amqps://pb.example:5671 is a node of the pair itself",
        ),
        (("ha.witness_for=shop", *OPERATOR), "is needed for ha.witness_for with auth.default_user"),
        (("ha.witness_for=boss", *OPERATOR), "'boss' is a user of this broker already"),
        (("ha.witness_for=guest",), "'guest' is a user of this broker already"),
        (("ha.witness_for=../shop",), "'../shop' is not a name of 1 to 60"),
    ],
)
def test_what_is_refused(settings: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, settings)
    line = str(caught.value)
    assert told in line and "secret" not in line.replace("long secret", "") and "\n" not in line, line


def test_a_witness_with_users_needs_a_password_of_its_own() -> None:
    assert load(None, ("ha.witness_for=shop",)).ha.witness_for == ("shop",)
    assert load(None, ("ha.witness_for=shop", "ha.witness_password=long", *OPERATOR)).ha.witness_for == (
        "shop",
    )


def test_a_witness_over_tls_is_checked_by_an_authority(tmp_path: Path) -> None:
    files = Authority(tmp_path).signed("a", "a.example")
    own = (f"tls.certificate={files.certificate}", f"tls.key={files.key}")
    there = (*PAIR, "ha.witness=amqps://w.example:5671")
    load(None, there)
    load(None, (*there, *own, f"tls.ca={files.ca}"))
    with pytest.raises(ConfigError, match=r"tls\.ca: is needed for a witness over TLS"):
        load(None, (*there, *own))
