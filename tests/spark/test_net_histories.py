"""Federated pairs under random faults: no fault in their ledgers, and each that is planted there is found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from ha.adapter.federation.exchange_model import ExchangeModel
from tests.ha.federation.net_ledgers import NetWithLedgers
from tests.spark.histories import nets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.system
def test_spark_finds_what_a_judge_finds(session: SparkSession, tmp_path: Path) -> None:
    """In seed 2, which has all faults. `make soak-ledgers` runs more."""
    assert nets.trial(session, 2, tmp_path) == []


@pytest.mark.system
@pytest.mark.parametrize("seed", [3, 4, 5, 1152])
def test_the_judge_alone_sees_what_is_planted(seed: int, tmp_path: Path) -> None:
    """Seed 1152: a primary fails before it has replicated what it put into no queue."""
    planted = nets.make(seed, tmp_path)
    found = {kind for kind, *_ in nets.judge(tmp_path).found()}
    assert planted <= found and bool(planted) == bool(found) == bool(seed % 3)


def test_a_cursor_that_is_not_in_the_batch_of_its_messages_shows_as_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backup has the messages and not the cursor, is promoted, and takes them again."""
    monkeypatch.setattr(ExchangeModel, "took", lambda *arguments: None)
    net = NetWithLedgers(tmp_path, hub=1, leaf=2)
    net.up()
    net.exchange("hub", "leaf")
    net.queue("leaf", "q", "#")
    net.federate("leaf", "hub")
    net.runs("leaf", "hub")
    net.publish_confirmed("hub", "k", "123")
    net.gets("leaf", "q", "123")
    first, second = net.nodes["leaf"]
    net.kill(first)
    net.run(0.1)
    assert net.ask(second, "promote")["ok"]
    net.gets("leaf", "q", "123123")
    net.end()
    assert [kind for kind, *_ in nets.judge(tmp_path).found()] == ["hop-doubled"] * 3
