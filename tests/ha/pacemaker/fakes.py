"""Fake cluster commands on a PATH of their own, and a helper process that is asked line by line."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.ha.pacemaker.cibs import cib_xml

DEADLINE = 20.0
"""Seconds that a test waits for what must come, on a machine that is busy."""
SHELL = "#!/bin/sh\n"


class Commands:
    """`cibadmin`, `crm_node` and `corosync-quorumtool` as scripts; the default: a cluster of `a` and `b`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.put("crm_node", "echo a")
        self.put("corosync-quorumtool", "echo no corosync >&2; exit 1")

    def put(self, name: str, text: str) -> None:
        """A shell script; replaced at once, also while the one before runs."""
        new = self.folder / f".{name}"
        new.write_text(SHELL + text + "\n")
        new.chmod(0o755)
        new.rename(self.folder / name)

    def cibadmin_says(self, xml: str) -> None:
        """To a query; a write is an error."""
        (self.folder / "cib.xml").write_text(xml)
        self.put("cibadmin", f'case "$*" in *--query*) cat {self.folder}/cib.xml;; *) exit 76;; esac')

    def whole(self, states: dict[str, Any]) -> None:
        self.cibadmin_says(cib_xml(states))

    def hang_for(self, seconds: int) -> None:
        """A cibadmin that outlives a helper which is killed."""
        self.put("cibadmin", f"echo $$ >> {self.folder}/hanging; exec sleep {seconds}")

    def end_those_that_hang(self) -> None:
        noted = self.folder / "hanging"
        for pid in noted.read_text().split() if noted.exists() else []:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder}{os.pathsep}/usr/bin{os.pathsep}/bin"}


class HelperProcess:
    """A helper, asked by a test instead of a broker."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ha.pacemaker.helper", "--set", "understudy", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> HelperProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def tell(self, question: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], DEADLINE)
        assert ready, "the helper does not answer"
        answer = json.loads(self.process.stdout.readline())
        assert isinstance(answer, dict)
        return answer

    def ask(self, kind: str = "read", **more: Any) -> dict[str, Any]:
        self.tell({"id": 1, "kind": kind, **more})
        return self.hear()


def gone(pid: int) -> bool:
    """Whether that process is no more, or only waits to be reaped; within DEADLINE."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        select.select([], [], [], 0.01)
    return False
