"""docs/runbook.md and what it says to do: its commands are run as they stand there."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from tests.deploy import paper
from tests.deploy.simulated import Simulated
from tests.deploy.tools import ROOT, run
from tests.failover.nodes.pair import Pair
from understudy.config.load import load

VIP = "understudy-vip"
HASH = "$argon2id$..."
TEXT = paper.PAPER.read_text()


def test_each_box_says_where_it_is_run_and_none_is_left_out() -> None:
    used = {box.where for box in paper.boxes()}
    assert used == set(paper.WHERE)
    sections = {box.section for box in paper.boxes()}
    assert sections <= {*WITH_PAIR, *WITH_CLUSTER, *ELSEWHERE}, "no test runs the boxes of these"


WITH_PAIR = ("What do I do now", "Take a node out, and upgrade", "Without Pacemaker")
WITH_CLUSTER = ("What do I do now", "Switch over", "Take a node out, and upgrade", "Maintenance mode")
ELSEWHERE = (
    "Install", "Configure", "See how it is", "Fencing fails", "A broker fails again and again",
    "One node is gone for good, and the other one was down",
)  # fmt: skip


def test_the_configuration_is_one(tmp_path: Path) -> None:
    (box,) = [box for box in paper.boxes() if box.where == "configuration"]
    path = tmp_path / "understudy.toml"
    assert box.text.count(HASH) == 1
    command = (sys.executable, "-m", "understudy", "passwd", "--administrator", "--stdin", "ops")
    printed = run(*command, stdin="a password\n").stdout
    (password,) = [user["password"] for user in tomllib.loads(printed)["auth"]["users"].values()]
    path.write_text(box.text.replace(HASH, password))
    settings = load(path, (), {})
    assert settings.ha.authority == "pacemaker"
    assert set(tomllib.loads(box.text)["auth"]["users"]) == {"ops"}


def test_the_commands_for_a_pair_do_what_they_say(tmp_path: Path) -> None:
    with Pair(tmp_path / "pair") as pair:
        names = {"a": "left", "b": "right"}

        def do(command: str) -> str:
            return told(command, {f"{name}:5672": str(pair.addresses[real]) for name, real in names.items()})

        pair.whole()
        asked = [do(command) for command in paper.commands("What do I do now", "pair")]
        assert "active" in asked[0] and "ready" in asked[1]
        promote, switchover = paper.commands("Without Pacemaker", "pair")
        pair.kill("left")
        do(promote)
        assert pair.status("right") == "active"
        shutil.rmtree(tmp_path / "pair" / "left")  # a new machine, without any data
        pair.start("left")
        (ready,) = paper.commands("Take a node out, and upgrade", "pair")
        names = {"a": "right", "b": "left"}
        assert "is ready" in do(ready)
        do(switchover)
        assert (pair.status("left"), pair.status("right")) in (("active", "ready"), ("active", "joining"))


def told(command: str, places: dict[str, str]) -> str:
    """Run it with real addresses in place of the paper's; its output. It must succeed."""
    words = [places.get(word, word) for word in shlex.split(command)]
    program = shutil.which(words[0], path=f"{ROOT}/.venv/bin") or words[0]
    done = run(program, *words[1:])
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.tools
def test_what_pacemaker_says_is_in_the_table(cluster: Simulated) -> None:
    (look,) = paper.commands("What do I do now", "cluster")
    seen = cluster.said(*shlex.split(look))
    for words in ("Promoted: [ a ]", "Unpromoted: [ b ]", "Started a", "Online: [ a b ]"):
        assert words in seen and f"`{words}`" in TEXT
    cluster.happens("--op-inject", "understudy_monitor_2000@b=7")
    assert "Failed Resource Actions" in cluster.said(*shlex.split(look))
    assert "`Failed Resource Actions`" in TEXT
    cluster.fails("a", fenced=False)
    assert "Node a: UNCLEAN (offline)" in cluster.said(*shlex.split(look))
    assert "`Node a: UNCLEAN (offline)`" in TEXT
    cluster.happens()
    seen = cluster.said(*shlex.split(look))
    for words in ("Promoted: [ b ]", "OFFLINE: [ a ]"):
        assert words in seen and f"`{words}`" in TEXT


@pytest.mark.tools
def test_switching_over(cluster: Simulated) -> None:
    move, clear = paper.commands("Switch over", "cluster")
    cluster.scores(a=1000, b="-INFINITY")
    cluster.configured(*shlex.split(move))
    assert cluster.happens().done == [], "what may not be promoted is not, and nobody is demoted for it"
    cluster.scores(a=1000, b=500)
    assert cluster.happens().done == [
        f"stop {VIP} on a", "demote understudy on a", "promote understudy on b", f"start {VIP} on b"
    ]  # fmt: skip
    cluster.scores(a=500, b=1000)
    cluster.configured(*shlex.split(clear))
    assert cluster.happens().done == [], "nothing moves by taking it back"


@pytest.mark.tools
def test_taking_a_node_out_and_in(cluster: Simulated) -> None:
    out, back = paper.commands("Take a node out, and upgrade", "cluster")
    (look,) = paper.commands("What do I do now", "cluster")
    cluster.configured(*shlex.split(out))
    assert without_devices(cluster.happens().done) == ["stop understudy on b"]
    assert "Stopped: [ b ]" in cluster.said(*shlex.split(look)) and "`Stopped: [ b ]`" in TEXT
    cluster.configured(*shlex.split(back))
    assert without_devices(cluster.happens().done) == ["start understudy on b"]


def without_devices(actions: list[str]) -> list[str]:
    return [action for action in actions if "fence-" not in action]


@pytest.mark.tools
def test_maintenance_mode(cluster: Simulated) -> None:
    on, off = paper.commands("Maintenance mode", "cluster")
    (look,) = paper.commands("What do I do now", "cluster")
    cluster.configured(*shlex.split(on))
    cluster.scores(a="-INFINITY", b=500)
    assert cluster.happens("--op-inject", "understudy_monitor_1000@a=7").done == []
    assert "Resource management is DISABLED" in cluster.said(*shlex.split(look))
    cluster.configured(*shlex.split(off))
    assert "promote understudy on b" in cluster.happens().done


def test_each_refusal_in_the_table_is_one_that_the_product_makes() -> None:
    table = TEXT.partition("## What a refusal looks like")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(told) >= 8
    source = "".join(path.read_text() for path in (ROOT / "ha").rglob("*.py"))
    said = re.sub(r'"\s*\n\s*f?"', "", source)
    for sentence in told:
        for fixed in re.split(r" \.\.\.|; promote|, and |\bb\b|\ba\b(?= serves)|epoch \d+|\b\d\b", sentence):
            words = fixed.strip(" ;,")
            assert words in said, f"nothing says {words!r}"


def test_links_within_the_paper_lead_somewhere() -> None:
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)
    }
    for target in re.findall(r"\]\(#([^)]+)\)", TEXT):
        assert target in anchors, target
