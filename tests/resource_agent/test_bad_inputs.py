"""What an administrator may get wrong: a sentence, and the code by which Pacemaker does the right thing.

2: wrong on this node; 4: not permitted here; 5: not installed here; 6: wrong everywhere; 1: it may pass.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.resource_agent.site import Site, stand_in, state_of

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")


@pytest.mark.parametrize(
    ("parameter", "value", "code", "sentence"),
    [
        ("binary", "/nowhere/understudy", 5, "binary=/nowhere/understudy: there is no such program here"),
        ("binary", "understudy", 6, "binary=understudy: not an absolute path"),
        ("config", "/nowhere/node.toml", 2, "config=/nowhere/node.toml: there is no such file here"),
        ("config", "node.toml", 6, "config=node.toml: not an absolute path"),
        ("user", "no-such-user", 5, "user=no-such-user: there is no such user here"),
        ("group", "no-such-group", 5, "group=no-such-group: there is no such group here"),
        ("state_dir", "run", 6, "state_dir=run: not an absolute path"),
        ("log_file", "log", 6, "log_file=log: not an absolute path"),
        ("status_timeout", "soon", 6, 'status_timeout=soon: not a time such as "10s", and more than nothing'),
        ("disk_timeout", "0s", 6, 'disk_timeout=0s: not a time such as "10s", and more than nothing'),
        ("disk_timeout", "-1s", 6, 'disk_timeout=-1s: not a time such as "10s", and more than nothing'),
        ("recovery_timeout", "3 days", 6, "recovery_timeout=3 days: not a time"),
    ],
)
def test_parameters(site: Site, parameter: str, value: str, code: int, sentence: str) -> None:
    node = site.alone()
    node.parameters[parameter] = value
    for action in ("validate-all", "start"):
        assert sentence in node.ok(action, code).reason
    node.ok("stop")
    if code != 6:
        node.ok("monitor", 7, probe=True)
        assert node.ok("monitor", 5 if parameter == "binary" else 7).code


@pytest.mark.parametrize("value", ["1", "10", "10s", "500ms", "2min", "1h", "1.5m"])
def test_times_as_people_write_them(site: Site, value: str) -> None:
    node = site.alone()
    node.parameters["disk_timeout"] = value
    node.ok("validate-all")


def test_actions(site: Site) -> None:
    node = site.alone()
    assert "there is no action fly" in node.ok("fly", 3).reason
    assert "exactly one action" in node.ok("", 2).reason
    assert "exactly one action" in node.ok("start now", 2).reason


def test_a_program_that_may_not_be_executed(site: Site) -> None:
    node = site.alone()
    program = node.folder / "program"
    program.write_text("")
    node.parameters["binary"] = str(program)
    assert "may not be executed" in node.ok("start", 4).reason
    node.ok("monitor", 7, probe=True)


def test_a_program_that_is_none(site: Site) -> None:
    node = site.alone()
    program = node.folder / "program"
    program.write_text("#!/nowhere/python3\n")
    program.chmod(0o755)
    node.parameters["binary"] = str(program)
    assert f"cannot run {program}" in node.ok("start", 5).reason
    node.ok("monitor", 7)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[ha]\nlease = soon\n", "is not valid TOML"),
        ('[ha]\nlease = "soon"\n', "ha.lease"),
        ("[ho]\n", "ho"),
    ],
)
def test_what_the_broker_says_of_its_configuration_is_the_reason(
    site: Site, text: str, sentence: str
) -> None:
    node = site.alone()
    node.config.write_text(text)
    assert sentence in node.ok("start", 2).reason
    node.ok("monitor", 7)


def test_a_broker_without_a_pair_is_no_promotable_resource(site: Site) -> None:
    node = site.alone()
    node.configure("")
    assert "no ha.brokers" in node.ok("start", 2).reason
    node.ok("monitor", 7)


def test_a_data_directory_that_is_in_use(site: Site) -> None:
    """The agent's memory of the process is gone, with its control socket, and the process is not."""
    node = site.alone()
    node.ok("start")
    pid = node.pid
    elsewhere = node.state.with_name("elsewhere")
    node.state.rename(elsewhere)
    assert f"in use by process {pid}" in node.ok("start", 1).reason
    shutil.rmtree(node.state)
    elsewhere.rename(node.state)
    node.ok("stop")


def test_a_process_that_was_never_noted_is_found_at_its_control_socket(site: Site) -> None:
    """The agent was killed between the two."""
    node = site.alone()
    node.ok("start")
    pid = node.pid
    (node.state / "pid").unlink()
    node.ok("monitor", 0, probe=True)
    node.ok("start")
    node.ok("stop")
    assert state_of(pid) in ("", "Z")


def test_a_port_that_is_in_use(site: Site) -> None:
    a, b = site.pair()
    a.ok("start")
    b.port = a.port
    b.configure(f"127.0.0.1:{a.port}")
    assert "cannot listen on" in b.ok("start", 1).reason
    b.ok("monitor", 7)


def test_a_log_that_cannot_be_written(site: Site) -> None:
    node = site.alone()
    node.parameters["log_file"] = str(node.folder)
    assert f"log_file={node.folder}: cannot be written" in node.ok("start", 4).reason


def test_what_is_wrong_keeps_nobody_from_stopping(site: Site) -> None:
    """A stop that fails has the node fenced, and the same words are on all nodes."""
    node = site.alone()
    node.ok("start")
    node.until_score("100")
    node.ok("promote")
    pid = node.pid
    node.parameters |= {"status_timeout": "soon", "disk_timeout": "0", "log_file": "log"}
    node.ok("monitor", 6)
    node.ok("demote")
    assert node.status()["status"] not in ("active", "recovering")
    node.ok("stop")
    assert state_of(pid) in ("", "Z")


def test_a_full_run_fails_no_broker_that_is_well(site: Site) -> None:
    """Nothing new can be written, since each name that the agent writes to is a directory."""
    node = site.alone()
    node.ok("start")
    node.until_score("100")
    for mark in ("answered", "promoted", "failed", "target", "leaving", "changed", "score"):
        (node.state / f"{mark}.new").mkdir()
    assert "cannot write in" in node.ok("promote").said
    node.ok("monitor", 191)
    node.ok("notify", notify_type="pre", notify_operation="demote", notify_demote_uname=node.name)
    node.ok("demote")
    node.ok("monitor")
    node.ok("stop")
    node.ok("monitor", 7)


def test_a_broker_that_cannot_be_noted_is_not_left_running(site: Site) -> None:
    """Or it would hold its data directory, and no stop would find it."""
    node = site.alone()
    (node.state / "pid.new").mkdir(parents=True)
    assert str(node.state / "pid.new") in node.ok("start", 1).reason
    node.ok("monitor", 7)
    (node.state / "pid.new").rmdir()
    node.ok("start")
    node.ok("stop")


@pytest.mark.parametrize("which", ["base", "own"])
def test_a_state_directory_that_others_may_write_in(site: Site, which: str) -> None:
    """Whoever can put a process id there can have root end that process."""
    node = site.alone()
    node.state.mkdir(parents=True)
    folder = node.state if which == "own" else node.state.parent
    folder.chmod(0o777)
    assert f"state_dir: {folder} is no directory that only its owner" in node.ok("start", 4).reason
    folder.chmod(0o755)
    node.ok("start")
    node.ok("stop")


def test_the_brokers_user_gets_to_its_directory_whatever_the_umask(site: Site) -> None:
    node = site.alone()
    before = os.umask(0o077)
    try:
        node.ok("start")
    finally:
        os.umask(before)
    for folder in (node.state, node.state.parent):
        assert folder.stat().st_mode & 0o777 == 0o755
    node.ok("stop")


@root_only
def test_a_state_directory_of_another_user(site: Site) -> None:
    node = site.alone()
    node.state.mkdir(parents=True)
    os.chown(node.state, pwd.getpwnam("nobody").pw_uid, -1)
    assert "is no directory that only its owner" in node.ok("start", 4).reason


def test_a_state_directory_that_is_a_file(site: Site) -> None:
    node = site.alone()
    node.parameters["state_dir"] = str(node.config)
    assert str(node.config) in node.ok("start", 1).reason
    node.ok("monitor", 7, probe=True)


@root_only
def test_a_configuration_that_the_user_may_not_read(site: Site) -> None:
    node = site.alone()
    node.parameters["user"] = "nobody"
    node.config.chmod(0o600)
    for action in ("validate-all", "start"):
        assert "nobody cannot read it: Permission denied" in node.ok(action, 4).reason


@root_only
def test_the_broker_runs_as_its_user_and_the_agent_trusts_it_with_nothing() -> None:
    """Its user may write its own socket and its log, and nothing that the agent believes."""
    user = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # unlike pytest's own, for others to go through
        with Site(Path(folder)) as site:
            node = site.alone()
            node.parameters["user"] = "nobody"
            stand_in(node)
            node.ok("start")
            process = Path(f"/proc/{node.pid}")
            assert process.stat().st_uid == user.pw_uid
            assert f"Gid:\t{user.pw_gid}\t" in (process / "status").read_text()
            assert Path(node.control).parent.stat().st_uid == user.pw_uid
            assert (node.folder / "log").stat().st_uid == user.pw_uid
            for own in (node.state, node.state / "pid", node.state.parent):
                assert own.stat().st_uid == 0 and own.stat().st_mode & 0o022 == 0
            node.ok("stop")


@root_only
def test_only_root_starts_processes_of_others() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with Site(Path(folder)) as site:
            node = site.alone()
            found = node.run("start", user="nobody")
            assert (found.code, found.reason) == (4, "only root can start a process of the user root")
