"""The agent installed on one machine, without Pacemaker: a node is a state directory and a port of its own.

The script is run as Pacemaker's executor runs it: one process an action, parameters in the environment. A
stand-in for `crm_attribute` writes down which promotion score each node has.
"""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from click.testing import CliRunner

from resource_agent.control_client import NoAnswer, ask
from resource_agent.process import running
from tests.ports import free_ports
from understudy.cli.agent import MODULES, SCRIPT, agent

PATIENCE = 30.0
_GLANCE = 0.02
_PREFIX = "ocf-exit-reason:"
_CHANGE_LASTS = "\n_UNREST = 3.0\n"
_RECORDER = """#!/bin/sh
for word in "$@"; do
  case $word in --update=*|--delete) echo "${word#--update=}" >> "$TEST_SCORE" ;; esac
done
"""


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    reason: str
    """What it gave as its exit reason; "" if none."""
    said: str
    """All of its standard error."""
    seconds: float


class Node:
    """One cluster node with its instance of the resource."""

    def __init__(self, site: Site, name: str, port: int, brokers: str) -> None:
        self.site, self.name, self.port = site, name, port
        self.folder = site.folder / name
        self.folder.mkdir()
        self.config = self.folder / "node.toml"
        self.data = self.folder / "data"
        self.configure(brokers)
        self.parameters: dict[str, str] = {
            "binary": str(Path(sys.executable).parent / "understudy"), "config": str(self.config),
            "user": getpass.getuser(), "state_dir": str(self.folder / "run"),
            "log_file": str(self.folder / "log"),
        }  # fmt: skip
        self.state = self.folder / "run" / "pair"
        self._score = self.folder / "score"

    def configure(self, brokers: str, more: str = "") -> None:
        self.config.write_text(
            f'[broker]\nlisten = "127.0.0.1:{self.port}"\ndata_dir = "{self.data}"\n'
            f'[ha]\nbrokers = "{brokers}"\nack_timeout = "800ms"\nlease = "1s"\n{more}'
        )

    def run(
        self, action: str, *, probe: bool = False, seconds: float = 20, user: str | None = None, **meta: str
    ) -> Answer:
        """One action, as this user; `meta` are Pacemaker's own variables, such as `notify_type`."""
        environ = os.environ | {
            "PATH": f"{self.site.tools}:{os.environ['PATH']}", "TEST_SCORE": str(self._score),
            "OCF_ROOT": str(self.site.root / "usr/lib/ocf"), "OCF_RESOURCE_INSTANCE": "pair:0",
        }  # fmt: skip
        meta = {
            "interval": "0" if probe else "1000", "timeout": f"{seconds * 1000:.0f}", "on_node": self.name,
            **meta,
        }  # fmt: skip
        environ |= {f"OCF_RESKEY_CRM_meta_{key}": value for key, value in meta.items()}
        environ |= {f"OCF_RESKEY_{key}": value for key, value in self.parameters.items()}
        began = time.monotonic()
        done = subprocess.run(
            [self.site.script, *action.split()], env=environ, capture_output=True, text=True,
            timeout=seconds + PATIENCE, check=False, user=user,
        )  # fmt: skip
        took = time.monotonic() - began
        assert "Traceback" not in done.stderr, done.stderr
        reasons = [line for line in done.stderr.splitlines() if line.startswith(_PREFIX)]
        reason = reasons[-1].removeprefix(_PREFIX) if reasons else ""
        return Answer(done.returncode, reason, done.stderr, took)

    def ok(self, action: str, code: int = 0, **more: Any) -> Answer:
        """It answers so, or the test ends here."""
        found = self.run(action, **more)
        assert found.code == code, f"{self.name}: {action}: {found}\n{self.log()}"
        return found

    @property
    def score(self) -> str:
        """As last set; "--delete" if there is none."""
        return self.scores[-1] if self.scores else ""

    @property
    def scores(self) -> list[str]:
        """All that were ever set."""
        return self._score.read_text().split() if self._score.exists() else []

    @property
    def pid(self) -> int:
        return int((self.state / "pid").read_text().split()[0])

    @property
    def control(self) -> str:
        return str(self.state / "control" / "socket")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Returns when its last thread is gone: its leader may be a zombie before, and hold its sockets."""
        process = running(self.pid)
        assert process is not None
        process.send(signal.SIGKILL)
        until(lambda: process.gone, f"{self.name} to be gone")

    def freeze(self) -> None:
        pid = self.pid
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) == "T", f"{self.name} to be stopped")

    def status(self) -> dict[str, Any]:
        """What the broker says; empty while it does not answer."""
        try:
            found = ask(self.control, "GET", "/api/status", 5)[1]
        except NoAnswer:
            return {}
        assert isinstance(found, dict)
        return found

    def wait_for(self, *words: str) -> None:
        until(lambda: self.status().get("status") in words, f"{self.name} to be {words}")

    def until_score(self, score: str, code: int = 0) -> None:
        """Monitor after monitor, as Pacemaker would."""

        def so() -> bool:
            return self.run("monitor").code == code and self.score == score

        until(so, f"{self.name} to have the score {score} and the code {code}")

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""


class Site:
    """A context manager: no process is left when it ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root, self.tools = folder / "root", folder / "tools"
        done = CliRunner().invoke(agent, ["install", "--root", str(self.root)])
        assert done.exit_code == 0, done.output
        self.script = str(self.root / SCRIPT)
        self.tools.mkdir()
        recorder = self.tools / "crm_attribute"
        recorder.write_text(_RECORDER)
        recorder.chmod(0o755)
        self.nodes: list[Node] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            try:
                os.killpg(node.pid, signal.SIGKILL)
            except (OSError, ValueError):
                continue

    def change_lasts(self, seconds: float) -> None:
        """For so long no score rises after a change of roles: for longer than the steps of a test take on a
        busy machine."""
        (module,) = (self.root / MODULES).glob("*/resource_agent/agent.py")
        text = module.read_text()
        assert text.count(_CHANGE_LASTS) == 1
        module.write_text(text.replace(_CHANGE_LASTS, f"\n_UNREST = {seconds}\n"))

    def alone(self) -> Node:
        """A node that is the only one of its pair."""
        return self._nodes("a")[0]

    def pair(self) -> tuple[Node, Node]:
        a, b = self._nodes("a", "b")
        return a, b

    def whole(self) -> tuple[Node, Node]:
        """a serves, b is in the record, and the agent knows."""
        a, b = self.pair()
        a.ok("start")
        b.ok("start")
        a.until_score("100")
        a.ok("promote")
        b.until_score("500")
        a.until_score("1000", 8)
        return a, b

    def _nodes(self, *names: str) -> list[Node]:
        ports = free_ports(len(names))
        brokers = ",".join(f"127.0.0.1:{port}" for port in ports)
        found = [Node(self, name, port, brokers) for name, port in zip(names, ports, strict=True)]
        self.nodes += found
        return found


def stand_in(node: Node, first: str = "", *, notify: bool = True) -> None:
    """A program that takes the data directory, and reads its store for ever."""
    program = node.folder / "understudy"
    lines = [
        "#!/usr/bin/python3",
        "import os, signal, socket",
        first,
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
        's.sendto(b"STATUS=reads the store", os.environ["NOTIFY_SOCKET"])' if notify else "",
        "while True: signal.pause()",
    ]
    program.write_text("\n".join(lines))
    program.chmod(0o755)
    node.parameters["binary"] = str(program)


def until(so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(_GLANCE)


def state_of(pid: int) -> str:
    """By the kernel's letter; "" if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
