"""The settings of `pair` and of its witness: what is refused, and by which sentence."""

from __future__ import annotations

import pytest

from tests.ha.pair import Pair
from understudy.config.load import load
from understudy.config.settings import ConfigError

BROKERS = "ha.brokers=a.example:5672,b.example:5672"
PAIR = ("ha.authority=pair", "ha.role=primary", BROKERS)
WITNESS = "ha.witness=w.example:5672"


@pytest.mark.parametrize(
    "extra", [(), (WITNESS,), ("ha.failover_timeout=1500ms",), ("ha.witness=amqps://w:5671",)]
)
def test_what_is_taken(extra: tuple[str, ...]) -> None:
    assert load(None, [*PAIR, *extra]).ha.role == "primary"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (("ha.authority=pair", BROKERS), "ha.role: is needed for ha.authority = 'pair'"),
        ((*PAIR, "ha.role=first"), "Input should be 'primary' or 'backup', not 'first'"),
        (("ha.role=backup",), "ha.role (--set): needs ha.authority = 'pair', which is 'manual'"),
        (("ha.authority=pair", "ha.role=backup"), "ha.brokers: is needed for ha.authority = 'pair'"),
        ((*PAIR, "ha.brokers=a:1,b:1,c:1"), "needs two brokers for ha.authority = 'pair', and has 3"),
        ((*PAIR, "ha.brokers=a:1,a:1"), "has a:1 twice"),
        ((*PAIR, "ha.failover_timeout=0.5s"), "greater than or equal to 1"),
        ((WITNESS,), "ha.witness (--set): needs ha.authority = 'pair'"),
        ((*PAIR, "ha.witness=b.example:5672"), "b.example:5672 is a node of the pair itself"),
        ((*PAIR, WITNESS, "ha.failover_timeout=1s"), "must be 2s or more with a witness"),
        ((*PAIR, WITNESS, "ha.witness_name=a/b"), "'a/b' is not a name of 1 to 60 letters"),
        (("ha.witness_for=a,a",), "names a pair twice"),
        (("ha.witness_for=guest",), "'guest' is a user of this broker already"),
        (("ha.witness_for=../x",), "'../x' is not a name of"),
    ],
)
def test_what_is_refused(settings: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, settings)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_status_says_what_a_pair_without_a_witness_is_for() -> None:
    pair = Pair(authority="pair", role="primary")
    pair.start(pair[0])
    found = pair[0].running.status()["authority"]
    assert (found["kind"], found["ok"], found["code"]) == ("pair", True, "pair-without-witness")
