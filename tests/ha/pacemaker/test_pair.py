"""A pair of real brokers and the real cibadmin, on a CIB file in place of a cluster's: who is in the record,
who may go on alone, and what the operator reads.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import pika
import pytest

from ha.pacemaker import codes
from ha.pacemaker.cib import CibError, CibView, read_cib
from ha.pacemaker.driver import search_path
from resource_agent.control_client import ask
from tests.failover.nodes.cluster import Cluster, Place, local_places
from tests.failover.nodes.pair import Pair, channel_of
from tests.ha.pacemaker.cibs import DOWN, LOST, MEMBER, cib_xml
from tests.ha.pacemaker.fakes import gone

SET = "pairs-record"
real_cibadmin = pytest.mark.skipif(
    shutil.which("cibadmin", path=search_path()) is None, reason="no cibadmin here (pacemaker-cli-utils)"
)


class CibPair(Pair):
    """`left` and `right`, each the cluster node of the same name."""

    def __init__(self, folder: Path, cib: Path, sockets: Path) -> None:
        settings = ("ha.authority=pacemaker", f"ha.cib_set={SET}")
        places = {
            name: Place(
                place.address,
                ("env", f"CLUSTER_NODE={name}", f"UNDERSTUDY_BROKER__CONTROL={sockets / name}"),
            )
            for name, place in local_places(("left", "right")).items()
        }
        Cluster.__init__(self, folder, places, *settings)
        self.sockets = sockets
        self.both = self.list
        self.cib = cib

    def whole(self) -> Self:
        self.start("left", "right")
        self.promote("left")
        self.wait_for("right", "ready")
        return self

    def promote(self, name: str) -> None:
        """As the resource agent does: an operator is told to ask Pacemaker."""
        code, answer = ask(str(self.sockets / name), "POST", "/api/promote", 30, {})
        assert code == 200, answer

    def record(self) -> dict[str, Any]:
        """What the file holds, once cibadmin is not in the middle of writing it."""
        found: list[CibView] = []

        def whole() -> bool:
            try:
                found.append(read_cib(self.cib.read_text(), SET))
            except CibError:
                return False
            return True

        self.until(whole, "the CIB's file to be whole")
        assert found[-1].document is not None, found[-1].damage
        return found[-1].document

    def modify(self, xpath: str, xml: str) -> None:
        """As an administrator, or the DC, would."""
        words = ["cibadmin", "--modify", "--xpath", xpath, "--xml-text", xml]
        subprocess.run(words, check=True, timeout=20)

    def state(self, name: str, state: Mapping[str, str]) -> None:
        words = " ".join(f'{key}="{value}"' for key, value in state.items())
        number = {"left": 1, "right": 2}[name]
        self.modify(f"//node_state[@uname='{name}']", f'<node_state id="{number}" {words}/>')

    def authority(self, name: str) -> dict[str, Any]:
        found = self.answer(name).get("authority", {})
        assert isinstance(found, dict)
        return found


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CibPair]:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "crm_node").write_text('#!/bin/sh\necho "$CLUSTER_NODE"\n')
    (folder / "crm_node").chmod(0o755)
    cib = tmp_path / "cib.xml"
    cib.write_text(cib_xml({"left": MEMBER, "right": MEMBER}))
    monkeypatch.setenv("CIB_file", str(cib))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{search_path()}")
    with TemporaryDirectory() as sockets, CibPair(tmp_path / "pair", cib, Path(sockets)) as pair:
        yield pair


def owner(record: Mapping[str, Any]) -> str:
    name = record["names"][record["owner"][0]]
    assert isinstance(name, str)
    return name


@real_cibadmin
def test_the_record_is_in_the_cib_and_a_node_in_it_is_promoted(pair: CibPair) -> None:
    pair.whole()
    record = pair.record()
    assert owner(record) == "left" and sorted(record["names"].values()) == ["left", "right"]
    assert pair.authority("left") == {
        "kind": "pacemaker",
        "ok": True,
        "code": codes.AGREED.name,
        "reason": codes.AGREED.sentence,
    }
    pair.kill("left")
    pair.state("left", DOWN)
    pair.promote("right")
    later = pair.record()
    assert owner(later) == "right" and later["epoch"] > record["epoch"] and later["in_sync"] == []


@real_cibadmin
def test_nobody_goes_on_alone_while_the_other_is_lost_and_not_fenced(pair: CibPair) -> None:
    pair.whole()
    with channel_of(pair, "left") as channel:
        channel.queue_declare("q", durable=True)
        pair.state("right", LOST)
        pair.kill("right")
        pair.until(lambda: not pair.authority("left").get("ok", True), "the lost node to be seen")
        answer = pair.answer("left")
        told = answer["authority"]
        assert told["code"].startswith("pacemaker-") and "right" in told["reason"]
        assert f"the authority commits nothing: {told['reason']} ({told['code']})" in answer["reason"]
        assert pair.record()["in_sync"] != []
        pair.state("right", DOWN)
        pair.until(lambda: pair.record()["in_sync"] == [], "the exclusion of the fenced node")
        pair.until(lambda: pair.authority("left").get("ok", False), "the authority to be well again")
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"alone", pika.BasicProperties(delivery_mode=2), mandatory=True)


@real_cibadmin
def test_a_tampered_attribute_is_named_and_nothing_is_lost(pair: CibPair) -> None:
    pair.whole()
    record = pair.record()
    attribute = "//nvpair[@name='understudy-version']"
    pair.modify(attribute, f'<nvpair id="{SET}-understudy-version" value="yesterday"/>')
    pair.until(lambda: not pair.authority("left").get("ok", True), "the damage to be seen")
    told = pair.authority("left")
    assert told["code"] == codes.RECORD_DAMAGED.name and "'yesterday'" in told["reason"]
    assert told["reason"] in pair.answer("left")["reason"]
    with channel_of(pair, "left") as channel:
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2), mandatory=True)
    version = f"{record['epoch']}.{record['revision']}"
    pair.modify(attribute, f'<nvpair id="{SET}-understudy-version" value="{version}"/>')
    pair.until(lambda: pair.authority("left").get("ok", False), "the authority to be well again")
    assert pair.status("left") == "active" and pair.record() == record


@real_cibadmin
def test_the_helper_ends_with_its_broker(pair: CibPair) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        pair.start("left")
        broker = pair.brokers["left"]
        helpers = children_of(broker.pid)
        assert len(helpers) == 1
        broker.signal(number)
        assert broker.wait(30) is not None
        assert gone(helpers[0])


def children_of(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def test_without_cibadmin_a_node_does_not_start_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    code = "import shutil; shutil.which = lambda *a, **k: None; from understudy.cli.main import main; main()"
    words = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "d")]
    words += ["--set", "ha.authority=pacemaker", "--set", "ha.brokers=127.0.0.1:1,127.0.0.1:2"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=30
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.endswith("(cibadmin-missing)")
