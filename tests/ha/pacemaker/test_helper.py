"""The helper process with commands that misbehave: always an answer, in bounded time, and none left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ha.pacemaker import codes, commands
from ha.pacemaker.commands import parse_votes
from ha.pacemaker.helper import LIMIT
from ha.pacemaker.procedure import AskQuorum
from ha.pacemaker.standing import Votes
from tests.ha.pacemaker.cibs import DOWN, LOST, MEMBER, record
from tests.ha.pacemaker.fakes import DEADLINE, Commands, HelperProcess, gone

TAKES = LIMIT + 5
"""Seconds within which an answer is in bounded time, on a busy machine."""


@pytest.fixture
def fake(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exec sleep 1000", "did not end in time"),
        ("trap '' TERM INT HUP; sleep 1000 & wait; sleep 1000", "did not end in time"),
        ("sleep 1000 >/dev/null 2>&1 & exit 3", "exit code 3"),
        ("exec 1>&- 2>&-; sleep 1000", "did not end in time"),
        ("echo 'Could not connect to the CIB: Permission denied' >&2; exit 4", "Permission denied"),
        ("exit 1", "cibadmin: no word (exit code 1)"),
        ("echo '<html/>'", "cannot be read"),
        ("exit 0", "not XML"),
        ("head -c 3000 /dev/urandom", "cannot be read"),
        ("exec yes", "says more than any CIB has"),
        ("exec yes >&2", "says more than any CIB has"),
        ("kill -9 $$", "was killed by SIGKILL"),
        ("kill -SEGV $$", "was killed by SIGSEGV"),
    ],
)
def test_a_cibadmin_that_misbehaves(fake: Commands, script: str, words: str) -> None:
    fake.put("cibadmin", f"echo $$ >> {fake.folder}/pids\n{script}")
    with HelperProcess(fake.environment) as helper:
        for kind, more in (("read", {}), ("swap", {"expected": [5, 1], "record": record(5, 2)})):
            began = time.monotonic()
            answer = helper.ask(kind, **more)
            assert time.monotonic() - began < TAKES
            assert (answer["id"], answer["outcome"], answer["record"]) == (1, "unknown", None)
            assert answer["code"] == codes.UNREADABLE.name
            assert words in answer["reason"] and "\n" not in answer["reason"]
        assert helper.process.poll() is None
        fake.whole({"a": MEMBER, "b": DOWN})
        assert helper.ask()["outcome"] == "done"
    for pid in (fake.folder / "pids").read_text().split():
        assert gone(int(pid))


@pytest.mark.parametrize("made", ["missing", "no program", "not executable"])
def test_a_cibadmin_that_cannot_be_run(fake: Commands, made: str) -> None:
    if made == "no program":
        (fake.folder / "cibadmin").write_bytes(b"\x7fELF")
        (fake.folder / "cibadmin").chmod(0o755)
    elif made == "not executable":
        (fake.folder / "cibadmin").write_text("x")
    environment = fake.environment | {"PATH": str(fake.folder)}
    with HelperProcess(environment, "--node", "a") as helper:
        answer = helper.ask()
    assert (answer["outcome"], answer["code"]) == ("unknown", codes.UNREADABLE.name)
    assert "cannot run cibadmin" in answer["reason"]


def test_a_write_that_hangs_may_have_been_made(fake: Commands) -> None:
    fake.whole({"a": MEMBER, "b": MEMBER})
    query = f"cat {fake.folder}/cib.xml"
    fake.put("cibadmin", f'case "$*" in *--query*) {query};; *) exec sleep 1000;; esac')
    with HelperProcess(fake.environment) as helper:
        answer = helper.ask("swap", expected=None, record=record())
    assert (answer["outcome"], answer["code"]) == ("unknown", codes.WRITE_UNSURE.name)


def test_other_questions_are_answered_while_one_hangs(fake: Commands) -> None:
    fake.put("cibadmin", f"touch {fake.folder}/asked; exec sleep 1000")
    with HelperProcess(fake.environment) as helper:
        helper.tell({"id": 7, "kind": "read"})
        while not (fake.folder / "asked").exists():
            os.sched_yield()
        fake.whole({"a": MEMBER, "b": DOWN})
        first, second = helper.ask(), helper.hear()
    assert (first["id"], first["outcome"]) == (1, "done")
    assert (second["id"], second["outcome"]) == (7, "unknown")


def test_a_name_that_is_not_known_yet(fake: Commands) -> None:
    fake.whole({"a": MEMBER, "b": DOWN})
    fake.put("crm_node", "echo Connection refused >&2; exit 102")
    with HelperProcess(fake.environment) as helper:
        answer = helper.ask()
        assert (answer["outcome"], answer["code"]) == ("unknown", codes.NAME_UNKNOWN.name)
        fake.put("crm_node", "echo a")
        assert helper.ask()["outcome"] == "done"
        fake.put("crm_node", "exit 1")
        assert helper.ask()["outcome"] == "done"


def test_quorum_that_is_not_told(fake: Commands) -> None:
    fake.whole({"a": MEMBER, "b": LOST})
    with HelperProcess(fake.environment) as helper:
        answer = helper.ask()
        assert answer["code"] == codes.VOTES_UNKNOWN.name
        assert "corosync-quorumtool: no corosync" in answer["reason"]
        fake.put("corosync-quorumtool", f"cat <<'X'\n{QDEVICE}\nX")
        answer = helper.ask()
    assert (answer["outcome"], answer["code"]) == ("done", codes.QUORUM.name)


def test_it_ends_with_its_input_whatever_hangs(fake: Commands) -> None:
    fake.put("cibadmin", f"echo $$ > {fake.folder}/pid; exec sleep 1000")
    with HelperProcess(fake.environment) as helper:
        helper.tell({"id": 1, "kind": "read"})
        while not (fake.folder / "pid").exists() or not (fake.folder / "pid").read_text().strip():
            os.sched_yield()
        assert helper.process.stdin is not None
        helper.process.stdin.close()
        assert helper.process.wait(10) == 0
    assert gone(int((fake.folder / "pid").read_text()))


def test_an_end_while_a_command_is_being_started_leaves_none_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_over", threading.Event())
    start = subprocess.Popen
    end = threading.Thread(target=commands.kill_all)
    pids = []

    def start_and_end(words: list[str], **more: Any) -> subprocess.Popen[bytes]:
        process = start(words, **more)
        pids.append(process.pid)
        end.start()
        end.join(0.2)  # it has not seen this one yet: it must not be through
        return process

    monkeypatch.setattr(subprocess, "Popen", start_and_end)
    began = time.monotonic()
    (result,) = commands.run_words([["sleep", "1000"]], DEADLINE)
    assert result.error == "sleep was killed by SIGKILL" and time.monotonic() - began < DEADLINE
    (late,) = commands.run_words([["sleep", "1000"]], DEADLINE)
    end.join()
    assert late.error == "sleep is not run: the helper ends" and len(pids) == 1
    assert gone(pids[0])


def test_it_ends_with_its_parent_even_if_its_input_stays_open(fake: Commands) -> None:
    held, keep = os.pipe()
    parent = (
        "import os, subprocess, sys\n"
        "words = [sys.executable, '-P', '-m', 'ha.pacemaker.helper', '--set', 'x', '--parent']\n"
        f"p = subprocess.Popen([*words, str(os.getpid())], stdin={held}, stdout=subprocess.PIPE)\n"
        "p.stdout.readline()\nprint(p.pid, flush=True)\nsys.stdin.read()\n"
    )
    fake.whole({"a": MEMBER, "b": DOWN})
    os.write(keep, b'{"id": 1, "kind": "read"}\n')
    process = subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[held],
        env=fake.environment,
    )  # fmt: skip
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert gone(pid)
    os.close(held)
    os.close(keep)


def test_a_parent_that_is_gone_already(fake: Commands) -> None:
    with HelperProcess(fake.environment, "--parent", "1" if os.getpid() != 1 else "2") as helper:
        assert helper.process.wait(20) == 0


TWO_NODE = """\
Quorum information
------------------
Date:             Sat Nov 21 12:00:00 2026
Quorum provider:  corosync_votequorum
Nodes:            2
Node ID:          1
Ring ID:          1.c
Quorate:          Yes

Votequorum information
----------------------
Expected votes:   2
Highest expected: 2
Total votes:      2
Quorum:           1  \n\
Flags:            2Node Quorate WaitForAll \n\

Membership information
----------------------
    Nodeid      Votes Name
         1          1 198.51.100.1 (local)
         2          1 198.51.100.2
"""
QDEVICE = """\
Quorum information
------------------
Date:             Sat Nov 21 12:00:00 2026
Quorum provider:  corosync_votequorum
Nodes:            1
Node ID:          1
Ring ID:          1.c
Quorate:          Yes

Votequorum information
----------------------
Expected votes:   3
Highest expected: 3
Total votes:      2
Quorum:           2  \n\
Flags:            Quorate Qdevice \n\

Membership information
----------------------
    Nodeid      Votes    Qdevice Name
         1          1    A,V,NMW 198.51.100.1 (local)
         0          1            Qdevice
"""


def test_votes_as_corosync_prints_them() -> None:
    assert parse_votes(TWO_NODE) == Votes(True, 2, True, frozenset({"1", "2"}))
    assert parse_votes(QDEVICE) == Votes(True, 3, False, frozenset({"1"}))
    lost = QDEVICE.replace("Quorate:          Yes", "Quorate:          No").replace("Quorate Qdevice", "")
    assert parse_votes(lost) == Votes(False, 3, False, frozenset({"1"}))


@pytest.mark.parametrize("line", ["Quorate:", "Expected votes:", "Flags:", "Membership information", "  1  "])
def test_votes_that_are_not_whole_are_none(line: str) -> None:
    cut = "\n".join(each for each in QDEVICE.splitlines() if line not in each)
    assert parse_votes(cut) is None
    assert parse_votes(QDEVICE.replace("Expected votes:   3", "Expected votes:   many")) is None


def test_quorumtool_without_quorum_is_heard_all_the_same(
    fake: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code is 2 then."""
    text = QDEVICE.replace("Quorate:          Yes", "Quorate:          No")
    fake.put("corosync-quorumtool", f"cat <<'X'\n{text}\nX\nexit 2")
    monkeypatch.setenv("PATH", fake.environment["PATH"])
    (result,) = commands.run([AskQuorum()], 10)
    assert result.votes == Votes(False, 3, False, frozenset({"1"}))
