"""One node: each action, and each again; a broker that dies, freezes, hangs or does not answer."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from tests.resource_agent.site import Node, Site, stand_in, state_of, until


def test_each_action_and_each_again(site: Site) -> None:
    node = site.alone()
    node.ok("monitor", 7, probe=True)
    node.ok("stop")
    node.ok("validate-all")
    assert "ha.authority is manual" in node.ok("start").said
    pid = node.pid
    node.ok("start")
    assert node.pid == pid
    node.until_score("100")
    node.ok("promote")
    assert node.score == "1000", "a backup that is taken in now has 500"
    node.ok("promote")
    alone = node.ok("monitor", 191)
    assert "without a backup in sync" in alone.reason
    node.ok("monitor", 191, probe=True)
    node.ok("demote")
    node.ok("demote")
    assert node.status()["status"] == "joining"
    node.ok("monitor")
    assert node.score == "500", "this process was the last primary"
    node.ok("reload-agent")
    node.ok("notify", notify_type="post", notify_operation="start")
    node.ok("stop")
    assert node.score == "--delete"
    node.ok("stop")
    node.ok("monitor", 7)
    assert not Path(node.control).exists()
    assert "(node-ended)" in node.log()


def test_the_broker_is_called_as_its_cluster_node_and_leads_its_own_session(site: Site) -> None:
    node = site.alone()
    node.ok("start")
    assert node.status()["name"] == "a"
    assert os.getsid(node.pid) == node.pid
    assert Path(node.control).stat().st_mode & 0o777 == 0o600
    environ = Path(f"/proc/{node.pid}/environ").read_bytes()
    assert b"OCF_" not in environ


def test_a_score_that_is_set_is_set_again_by_a_probe_only_for_a_while(site: Site) -> None:
    """A manager that was started again, and has lost it, probes."""
    node = site.alone()
    node.ok("start")
    node.until_score("100")
    before = len(node.scores)
    node.ok("monitor")
    node.ok("notify", notify_type="pre", notify_operation="promote")
    assert len(node.scores) == before
    node.ok("monitor", probe=True)
    assert len(node.scores) == before + 1
    (node.state / "score").write_text("0 100")  # set when the machine was booted
    node.ok("monitor")
    assert len(node.scores) == before + 2


def test_the_last_primary_has_the_edge_after_all_were_down(site: Site) -> None:
    node = site.alone()
    node.ok("start")
    node.until_score("100")
    node.ok("promote")
    node.ok("stop")
    node.ok("start")
    node.until_score("110")


def test_a_killed_broker_does_not_run_and_starts_again(site: Site) -> None:
    node = site.alone()
    node.ok("start")
    node.until_score("100")
    node.ok("promote")
    node.kill()
    node.ok("monitor", 7)
    assert node.score == "--delete"
    node.ok("demote")
    node.ok("promote", 7)
    node.ok("start")
    node.ok("monitor")


@pytest.mark.parametrize(("promoted", "code"), [(True, 9), (False, 1)])
def test_a_stopped_process_fails_the_monitor_at_once(site: Site, promoted: bool, code: int) -> None:
    node = site.alone()
    node.parameters["status_timeout"] = "15s"
    node.ok("start")
    node.until_score("100")
    if promoted:
        node.ok("promote")
    node.freeze()
    found = node.ok("monitor", code)
    assert "stopped by a signal" in found.reason and found.seconds < 10
    assert node.score == "-INFINITY"
    node.ok("stop")
    node.ok("monitor", 7)


def test_a_frozen_primary_is_demoted_by_being_killed(site: Site) -> None:
    node = site.alone()
    node.ok("start")
    node.until_score("100")
    node.ok("promote")
    node.freeze()
    node.ok("demote")
    node.ok("monitor", 7)


@pytest.mark.parametrize(("promoted", "code"), [(True, 9), (False, 1)])
def test_a_disk_that_hangs_fails_the_monitor(site: Site, promoted: bool, code: int) -> None:
    """The probe's file is a pipe that nobody reads: to open it for writing does not return."""
    node = site.alone()
    node.parameters["disk_timeout"] = "1s"
    node.data.mkdir()
    node.ok("start")
    node.until_score("100")
    if promoted:
        node.ok("promote")
    probe = node.data / "disk-probe"
    probe.unlink()
    os.mkfifo(probe)
    until(lambda: node.run("monitor").code == code, "the disk to count as hung")
    found = node.ok("monitor", code)
    assert "has been under way for" in found.reason and found.seconds < 10
    assert node.score == "-INFINITY"
    node.ok("stop")


def test_a_disk_that_refuses_fails_the_monitor(site: Site) -> None:
    node = site.alone()
    node.ok("start")
    node.until_score("100")
    probe = node.data / "disk-probe"
    probe.unlink()
    probe.mkdir()
    until(lambda: node.run("monitor").code == 1, "the disk to count as failed")
    assert "Is a directory" in node.ok("monitor", 1).reason


@pytest.mark.parametrize(
    ("says", "sentence"),
    [("", "no answer within 0.5 s"), ("HTTP/1.0 200 OK\r\n\r\n{", "no JSON"), ("oh\r\n\r\n", "no HTTP")],
)
def test_a_broker_that_does_not_answer_fails_in_bounded_time(site: Site, says: str, sentence: str) -> None:
    node = site.alone()
    node.parameters["status_timeout"] = "500ms"
    node.ok("start")
    node.until_score("100")
    with hanging(node, says):
        found = node.ok("monitor", 1)
        assert sentence in found.reason and found.seconds < 10
        assert node.score == "-INFINITY"
    node.ok("stop")


class hanging:
    """Another process, as it were, answers at the control socket of this node."""

    def __init__(self, node: Node, says: str) -> None:
        os.unlink(node.control)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(node.control)
        self._listener.listen()
        self._says = says

    def __enter__(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        held = []
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            if self._says:
                link.recv(65536)
                link.sendall(self._says.encode())
                link.close()
            else:
                held.append(link)

    def __exit__(self, *_error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def test_a_stop_is_sure_that_the_process_is_gone(site: Site) -> None:
    """It heeds no SIGTERM: SIGKILL follows, within the time of the action."""
    node = site.alone()
    stand_in(node, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    node.ok("start")
    pid = node.pid
    found = node.ok("stop", seconds=8)
    assert found.seconds < 8
    node.ok("monitor", 7)
    assert state_of(pid) in ("", "Z")


def test_a_start_does_not_wait_for_the_store_and_is_patient_with_it(site: Site) -> None:
    node = site.alone()
    node.parameters["recovery_timeout"] = "1h"
    stand_in(node)
    found = node.ok("start")
    assert found.seconds < 10
    node.ok("monitor")
    assert node.score == "--delete"
    node.ok("start")
    late = node.ok("promote", 1, seconds=2)
    assert "in time" in late.reason and late.seconds < 10
    node.parameters["recovery_timeout"] = "1ms"
    assert "nobody listens" in node.ok("monitor", 1).reason
    node.ok("stop")


def test_a_start_that_comes_to_nothing_leaves_nothing_behind(site: Site) -> None:
    """It neither ends nor takes its data directory."""
    node = site.alone()
    stand_in(node, notify=False)
    found = node.ok("start", 1, seconds=3)
    assert "data directory" in found.reason
    node.ok("monitor", 7)


def test_another_process_with_the_same_id_is_not_taken_for_it(site: Site) -> None:
    node = site.alone()
    node.ok("start")
    node.kill()
    with subprocess.Popen(["sleep", "600"]) as other:
        (node.state / "pid").write_text(f"{other.pid} 1\n")
        node.ok("monitor", 7)
        node.ok("stop")
        assert other.poll() is None
        other.kill()
