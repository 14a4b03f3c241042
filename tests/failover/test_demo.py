"""The demo as a whole, small, without Spark: everything up to the verdict, and its ledgers left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.deploy.tools import require
from tests.failover.nodes.pair import kinds, read_ledgers
from tests.understudy.ledger.schema import check_all
from understudy.demo.demo import Demo, Options
from understudy.demo.progress import Progress
from understudy.demo.star import Star, StarOptions


@pytest.mark.parametrize(
    "authority", ["manual", *(pytest.param(each, marks=pytest.mark.system) for each in ("pair", "etcd"))]
)
def test_the_demo_runs_and_leaves_whole_ledgers(tmp_path: Path, authority: str) -> None:
    if authority == "etcd":
        require("etcd")
    console = Console(file=(tmp_path / "screen").open("w"), width=100)
    with Progress(console) as progress:
        options = Options(1500, 1000.0, tmp_path / "demo", spark=False, authority=authority)
        outcome = Demo(options, progress).run()
    console.file.close()
    assert outcome.plain["confirmed"] == outcome.plain["published"] == 30
    assert outcome.plain["lost"] == 0
    assert sum(counts["confirmed"] for counts in outcome.publishers.values()) == 1470
    assert outcome.outage_ms is not None
    screen = (tmp_path / "screen").read_text()
    promoted = "serves, after" if authority == "manual" else "has promoted itself"
    for sign in ("kill -9", promoted, "rejoined", "queues are empty", "ledgers are sealed"):
        assert sign in screen
    for client in ("publisher", "consumer"):
        for path in (tmp_path / "demo" / "clients").glob(f"{client}-*.ledger.jsonl"):
            assert '"kind":"seal"' in path.read_text().splitlines()[-1]
    for node in ("left", "right"):
        assert kinds(read_ledgers(tmp_path / "demo" / node))[-1] == "seal"
    check_all(read_ledgers(tmp_path / "demo"))


@pytest.mark.system
def test_the_demo_of_federation_counts_each_message_at_each_node(tmp_path: Path) -> None:
    console = Console(file=(tmp_path / "screen").open("w"), width=100)
    with Progress(console) as progress:
        outcome = Star(StarOptions(3000, 750.0, tmp_path / "star", delay=0.03), progress).run()
    console.file.close()
    assert [flow for flow in outcome.flows if not flow.good] == []
    answer = outcome.verdict.answer
    assert answer is not None
    wrong = [finding for finding in answer["findings"] if finding["severity"] != "allowed"]
    assert (answer["verdict"], answer["missing"], wrong) == ("proven", [], []), answer["sentence"]
    assert outcome.verdict.code == 0 and outcome.good
    assert {flow.what: flow.due for flow in outcome.flows} == {
        "prices at berlin": 1000, "prices at madrid": 2000, "prices at oslo": 3000, "prices at centre": 3000,
        "orders at centre": 1800, "replies at berlin": 30,
    }  # fmt: skip
    # A request and its reply go over four lines.
    assert all(
        flow.p50_ms and flow.p50_ms >= (120 if "replies" in flow.what else 1) for flow in outcome.flows
    )
    assert outcome.waited > 100 and 256 < outcome.octets < 600
    words = outcome.map.read_text()
    assert "madrid" in words and "connecting" in words
    screen = (tmp_path / "screen").read_text()
    for sign in (
        "cut the line of madrid",
        "mended the line",
        "madrid has all",
        "kill -9",
        "all links run again",
        "rejoined",
    ):
        assert sign in screen
    check_all(read_ledgers(tmp_path / "star"))


def test_a_terminated_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    command = ["demo", "--messages", "60000", "--rate", "100", "--dir", str(tmp_path / "demo")]
    demo = subprocess.Popen(
        [sys.executable, "-m", "understudy", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "consumers connected" in line:
                break
        children = children_of(demo.pid)
        assert len(children) == 9, "two brokers, four publishers, three consumers"
        demo.send_signal(signal.SIGTERM)
        _, errors = demo.communicate(timeout=60)
        assert (demo.returncode, errors.strip()) == (143, "understudy: interrupted by SIGTERM")
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    finally:
        demo.kill()
        demo.wait()


def children_of(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
