"""Killed clients and nightly pruning: their unwritten records never count as proven.

Once retention is a day past a killed client, it no longer prevents a proof.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from understudy.cli.main import cli
from understudy.ledger.inspection import OUTLIVED_US as AS_CHECKED
from understudy.ledger.retention import plan, prune
from understudy.ledger.segments import find
from understudy.ledger.writer import LedgerWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400_000_000
START = 20_000 * DAY
QUEUE = "ab" * 16
EPOCH = 65537


class Days:
    """A broker, and each day one producer and one consumer.

    Those of the first day are killed before they record their last ten messages, which the broker enqueued
    and dequeued.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = START
        self.next = 1
        clock = self._clock
        self.broker = LedgerWriter(
            str(folder), "a", "broker", incarnation=1, cluster="c1", view=EPOCH, rotate_age=86400.0,
            clock=clock,
        )  # fmt: skip
        self.broker.record("definition", queue=QUEUE, name="orders", reason="")
        self.broker.record("promote", peer="", reason="bootstrap")

    def _clock(self) -> int:
        return self.now

    def day(self, number: int, *, killed: bool = False) -> None:
        clients = [
            LedgerWriter(str(self.folder), name, role, incarnation=number, clock=self._clock)
            for name, role in (("p", "producer"), ("c", "consumer"))
        ]
        for part in (1, 2):
            self._messages(clients, f"p.{number}/1", 10 * part - 9, noted=part == 1 or not killed)
        for client in clients:
            client.close(seal=not killed)
        self.now = START + number * DAY

    def _messages(self, clients: list[LedgerWriter], prod: str, tag: int, *, noted: bool) -> None:
        producer, consumer = clients
        first, last = self.next, self.next + 9
        self.next = last + 1
        ids = {"queue": QUEUE, "epoch": EPOCH, "first": first, "last": last}
        tags = {"prod": prod, "first": tag, "last": tag + 9}
        if noted:
            producer.record("sent", **tags, pfirst=tag, name="|orders")
        self.now += 1000
        self.broker.record("enqueue", **ids, prod=prod, pfirst=tag, n=first)
        self.broker.flush()
        self.now += 1000
        if noted:
            producer.record("confirmed", **tags)
            consumer.record("received", **ids)
            consumer.record("acked", **ids)
        producer.flush()
        consumer.flush()
        self.now += 1000
        self.broker.record("dequeue", **ids, reason="acked")
        self.broker.flush()

    def pruned(self, before_us: int) -> int:
        """Prune the ledgers up to `before_us`. Returns the number of pruned ledgers."""
        plans = [plan(series, before_us) for series in find([self.folder])[0]]
        for each in plans:
            if each.going:
                prune(each)
        return sum(bool(each.going) for each in plans)


def checked(folder: Path) -> tuple[int, dict[str, str]]:
    done = CliRunner().invoke(cli, ["ledger", "check", str(folder), "--format", "json"])
    found = json.loads(done.stdout)["ledgers"]
    return done.exit_code, {f"{each['writer']}#{each['incarnation']}": each["end"] for each in found}


@pytest.fixture
def days(tmp_path: Path) -> Days:
    """Five days, with the clients of the first day killed."""
    made = Days(tmp_path)
    made.day(1, killed=True)
    for number in range(2, 6):
        made.day(number)
    made.broker.close()
    return made


def test_the_command_and_the_job_use_the_same_margin() -> None:
    pytest.importorskip("pyspark")
    from spark.reconcile.ledgers.ends import OUTLIVED_US

    assert OUTLIVED_US == AS_CHECKED


def test_check_shows_when_a_killed_client_is_outlived(days: Days) -> None:
    assert checked(days.folder)[0] == 2
    assert days.pruned(START + DAY) == 3, "the first day"
    code, ends = checked(days.folder)
    assert (code, ends["p#1"], ends["c#1"]) == (2, "none", "none"), (
        "the broker may show messages that they did not record"
    )
    assert days.pruned(START + 3 * DAY) > 0
    code, ends = checked(days.folder)
    assert (code, ends["p#1"], ends["c#1"], ends["p#5"]) == (0, "outlived", "outlived", "sealed")


@pytest.mark.system
def test_a_killed_client_blocks_a_proof_until_brokers_are_pruned_past_it(
    days: Days, session: SparkSession
) -> None:
    def judged() -> dict[str, Any]:
        from spark.reconcile.input.read import find_ledgers
        from spark.reconcile.job import reconcile

        return reconcile(session, find_ledgers([days.folder]))

    answer = judged()
    assert answer["verdict"] == "not provable"
    ends = [sentence for sentence in answer["missing"] if "has no end" in sentence]
    assert len(ends) == 2
    assert all("`understudy ledger prune`" in text and "2024-10-05 00:00:00 UTC" in text for text in ends)
    days.pruned(START + DAY)
    assert judged()["verdict"] == "not provable", "a full day must lie between"
    for path in days.folder.iterdir():
        path.rename(path.with_name(f"host1.{path.name}"))
    assert judged()["verdict"] == "not provable", "file names do not matter"
    for path in days.folder.iterdir():
        path.rename(path.with_name(path.name.removeprefix("host1.")))
    days.pruned(START + 3 * DAY)
    answer = judged()
    assert (answer["verdict"], answer["missing"]) == ("proven", [])
    assert {w["writer"] for w in answer["writers"] if w["end"] == "outlived"} == {"p", "c"}
    assert "are not judged" in answer["sentence"]
