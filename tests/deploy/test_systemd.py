"""deploy/systemd: systemd takes both units, finds them tight, and the broker lives with what they forbid."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import kombu
import pytest

from resource_agent.parameters import PARAMETERS
from tests.deploy.tools import DEPLOY, PATIENCE, UNDERSTUDY, require, run, succeed
from tests.ports import free_ports

UNIT = DEPLOY / "systemd" / "understudy.service"
TEMPLATE = DEPLOY / "systemd" / "understudy@.service"
PROGRAM = "/opt/understudy/bin/understudy"
NAME_OF_ITS_OWN = ("Description", "ExecStart", "StateDirectory", "RuntimeDirectory")
_NO_NEW_CODE = """
import ctypes, os, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
    sys.exit(77)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def lines(unit: Path) -> list[str]:
    """Settings and sections, without comments."""
    return [line for line in unit.read_text().splitlines() if line and not line.startswith("#")]


def values(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines(unit):
        name, equals, value = line.partition("=")
        if equals:
            found.setdefault(name, []).append(value)
    return found


@pytest.mark.parametrize("unit", [UNIT, TEMPLATE], ids=["one", "many"])
def test_systemd_finds_nothing_wrong(tmp_path: Path, unit: Path) -> None:
    require("systemd-analyze")
    installed = tmp_path / unit.name
    assert f"ExecStart={PROGRAM} serve" in unit.read_text()
    installed.write_text(unit.read_text().replace(PROGRAM, str(UNDERSTUDY)))
    name = tmp_path / unit.name.replace("@.", "@pair.")
    if name != installed:
        name.symlink_to(installed)
    done = run("systemd-analyze", "verify", name)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    installed.write_text(installed.read_text().replace("Type=notify", "Type=notfy"))
    assert "notfy" in run("systemd-analyze", "verify", name).stderr


@pytest.mark.parametrize("unit", [UNIT, TEMPLATE], ids=["one", "many"])
def test_it_is_exposed_as_little_as_a_server_can_be(unit: Path) -> None:
    require("systemd-analyze")
    succeed("systemd-analyze", "security", "--offline=yes", "--threshold=15", unit)


def test_the_two_units_differ_in_names_only() -> None:
    one, many = values(UNIT), values(TEMPLATE)
    assert set(one) == set(many)
    assert {name for name in one if one[name] != many[name]} == set(NAME_OF_ITS_OWN)
    assert all("%i" in many[name][0] and "%i" not in one[name][0] for name in NAME_OF_ITS_OWN)


@pytest.mark.parametrize("unit", [UNIT, TEMPLATE], ids=["one", "many"])
def test_systemd_leaves_the_agents_directory_alone(unit: Path) -> None:
    """It gives a RuntimeDirectory to the broker's user, and removes it when the unit ends."""
    (agents,) = (Path(each.default) for each in PARAMETERS if each.name == "state_dir")
    (name,) = values(unit)["RuntimeDirectory"]
    assert agents.parent == Path("/run") and Path(name).parts[0] != agents.name


def test_under_pacemaker_it_does_not_start(tmp_path: Path) -> None:
    require("systemd-analyze")
    (condition,) = values(UNIT)["ConditionPathExists"]
    mark = condition.removeprefix("!")
    assert mark != condition
    here = tmp_path / "under-pacemaker"
    for is_there, code in ((False, 0), (True, 1)):
        if is_there:
            here.touch()
        done = run("systemd-analyze", "condition", f"ConditionPathExists=!{here}")
        assert done.returncode == code, done.stderr


def test_it_waits_as_long_for_the_end_as_the_broker_takes() -> None:
    found = values(UNIT)
    assert found["Type"] == ["notify"] and found["KillMode"] == ["mixed"]
    assert seconds(found["TimeoutStopSec"][0]) > 5, "broker.stop_timeout is 5 s, and then all is flushed"
    assert found["RestartPreventExitStatus"] == ["2"], "the exit code of a wrong configuration"


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)s", text)
    assert found is not None, text
    return int(found[1])


@pytest.mark.tools
def test_the_broker_makes_no_call_that_the_unit_forbids(tmp_path: Path) -> None:
    require("systemd-analyze", "strace")
    trace = tmp_path / "trace"
    (port,) = free_ports(1)
    strace = ["strace", "--follow-forks", "--quiet=all", "--output", str(trace)]
    broker = [str(UNDERSTUDY), "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", str(tmp_path / "data")]
    broker += ["--http", "127.0.0.1:0", "--set", f"broker.control={tmp_path / 'control'}"]
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", _NO_NEW_CODE, *strace, *broker], stderr=errors, start_new_session=True
        )
    try:
        publish_and_get(port, process)
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)
    used = set(re.findall(r"^\d+ +(\w+)\(", trace.read_text(errors="replace"), re.MULTILINE))
    assert {"socket", "epoll_wait", "fsync"} <= used | ({"fsync"} if "fdatasync" in used else set())
    assert not used - allowed(), "calls that SystemCallFilter= of the unit refuses"


def publish_and_get(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        assert process.poll() != 77, (
            "this kernel has no PR_SET_MDWE, which MemoryDenyWriteExecute= stands for"
        )
        try:
            with kombu.Connection(f"amqp://guest:guest@127.0.0.1:{port}//", connect_timeout=1) as connection:
                box = connection.SimpleQueue("orders")
                box.put({"order": 1})
                assert box.get(timeout=PATIENCE).payload == {"order": 1}
                box.close()
                return
        except (OSError, kombu.exceptions.OperationalError):
            assert process.poll() is None and time.monotonic() < deadline, "the broker does not come up"


def allowed() -> set[str]:
    plus, minus = values(UNIT)["SystemCallFilter"]
    assert minus.startswith("~")
    found = set().union(*(calls(group) for group in ["@default", *plus.split()]))
    return found - set().union(*(calls(group) for group in minus.removeprefix("~").split()))


def calls(group: str) -> set[str]:
    """A group of systemd's, down to the names of system calls."""
    found: set[str] = set()
    for line in succeed("systemd-analyze", "syscall-filter", group).splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            found |= calls(word)
        elif word and not word.startswith("#"):
            found.add(word)
    return found
