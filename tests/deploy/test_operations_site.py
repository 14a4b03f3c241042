"""What docs/runbook.md says to do when it goes wrong, done on real machines with Pacemaker."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cluster.conftest import engine, image
from tests.cluster.engine import Engine
from tests.cluster.machine import Machine
from tests.cluster.play import Play
from tests.deploy import paper

__all__ = ["engine", "image"]

pytestmark = pytest.mark.cluster
GONE = "One node is gone for good, and the other one was down"
LOGIN = ("--user", "lab", "--password", "lab")


def do(machine: Machine, command: str, **names: str) -> str:
    """Run a command of the paper on that machine, with the real names of `a` and `b`."""
    words = [names.get(word, word) for word in shlex.split(command)]
    return machine.run(*words)[1]


def look(machine: Machine) -> str:
    """What the paper says to look at first; empty while Pacemaker does not answer."""
    (command,) = paper.commands("What do I do now", "cluster")
    code, seen = machine.run(*shlex.split(command), check=False)
    return seen if code == 0 else ""


def test_fencing_that_fails_is_confirmed_by_hand(engine: Engine, image: str, tmp_path: Path) -> None:
    (confirm,) = paper.commands("Fencing fails", "site")
    (fence,) = paper.commands("Configure", "site")
    (history,) = paper.commands("See how it is", "site")
    (cleanup,) = paper.commands("A broker fails again and again", "site")
    with Play(engine, image, tmp_path) as play:
        lost, heir = play.primary(), play.backup()
        play.switch.broken = True
        lost.power_off()
        play.site.until(lambda: any(not each.ok for each in play.switch.requests), "fencing to be tried")
        assert play.site.status(heir.name)["status"] != "active"
        do(heir, confirm, a=lost.name)
        play.site.until(lambda: play.site.status(heir.name)["status"] == "active", "the promotion")
        play.switch.broken = False
        lost.power_on()
        play.wait_whole()
        do(heir, cleanup)
        begin = len(play.switch.fenced())
        do(heir, fence, b=lost.name)
        assert [each.machine for each in play.switch.fenced()[begin:]] == [lost.name]
        play.wait_whole()
        told = do(heir, history)
        assert lost.name in told


def test_one_node_that_is_left_is_brought_back(engine: Engine, image: str, tmp_path: Path) -> None:
    alone, confirm, promote = paper.commands(GONE, "site")
    with Play(engine, image, tmp_path) as play:
        left, gone = play.machines["a"], play.machines["b"]
        epoch = play.epoch()
        play.switch.broken = True
        for machine in (gone, left):
            machine.power_off()
        left.power_on()
        play.site.until(lambda: "partition WITHOUT quorum" in look(left), "Pacemaker on a, waiting for b")
        assert play.site.status("a") == {}, "no broker runs before b was seen"
        do(left, alone)
        play.site.until(lambda: "Node b: UNCLEAN (offline)" in look(left), "the fencing of b to fail")
        do(left, confirm)
        said = "not promotable: b of the in-sync set of epoch"
        play.site.until(lambda: said in str(play.site.status("a").get("reason")), "the refusal")
        do(left, f"{promote} {shlex.join(LOGIN)}", **{"a:5672": f"{left.address}:5672"})
        play.site.until(lambda: play.site.roles("a").get("a") == "Promoted", "Pacemaker to follow")
        play.site.until(lambda: play.site.virtual().get("name") == "a", "the address to come up")
        assert play.epoch() > epoch
        play.switch.broken = False
        gone.power_on()
        play.wait_whole()
