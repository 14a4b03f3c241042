"""The settings of the `pacemaker` authority: what is refused, and by which sentence."""

from __future__ import annotations

import pytest

from understudy.config.load import load
from understudy.config.settings import ConfigError

PAIR = ("ha.authority=pacemaker", "ha.brokers=a.example:5672,b.example:5672")


def test_the_set_has_an_id_of_its_own() -> None:
    assert load(None, PAIR).ha.cib_set == "understudy-record"
    assert load(None, [*PAIR, "ha.cib_set=orders_2.record"]).ha.cib_set == "orders_2.record"


@pytest.mark.parametrize("name", ["", "1st", "a b", "x'y", 'x"y', "a/b", "é", "x" * 101, "-x", "x\n"])
def test_what_is_no_id_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^ha\.cib_set \(--set\): must be an XML id of letters"):
        load(None, [*PAIR, f"ha.cib_set={name}"])


def test_pacemakers_own_set_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^ha\.cib_set \(--set\): must not be Pacemaker's own set"):
        load(None, [*PAIR, "ha.cib_set=cib-bootstrap-options"])


def test_without_a_pair_there_is_nothing_to_record() -> None:
    with pytest.raises(ConfigError, match=r"^ha\.brokers: is needed for ha\.authority = 'pacemaker'"):
        load(None, PAIR[:1])


def test_an_authority_that_there_is_not() -> None:
    with pytest.raises(
        ConfigError, match=r"ha\.authority \(--set\): .*'manual', 'pair', 'pacemaker' or 'etcd'"
    ):
        load(None, ["ha.authority=register"])
