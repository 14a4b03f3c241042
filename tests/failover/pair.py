"""A pair of real broker processes for tests: started, asked, killed and stopped as an operator would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from understudy.config_types import HostPort
from understudy.demo import free_ports
from understudy.demo_children import Child, Children
from understudy.management import Unreachable, ask

PATIENCE = 30.0
"""Seconds that anything may take on a busy machine before it counts as hung."""


class Pair:
    """Nodes `left` and `right` on free ports. A context manager: no process is left when it ends."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        logs = folder / "logs"
        logs.mkdir()
        self.children = Children(logs)
        left, right = free_ports(2)
        self.addresses = {"left": HostPort("127.0.0.1", left), "right": HostPort("127.0.0.1", right)}
        self.both = f"{self.addresses['left']},{self.addresses['right']}"
        self._settings = settings
        self.brokers: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.children.__exit__(kind, error, trace)

    def start(self, *names: str) -> None:
        """Start these nodes and wait until they answer."""
        for name in names:
            arguments = ["understudy", "serve", "--name", name, "--listen", str(self.addresses[name])]
            arguments += ["--data-dir", str(self.folder / name)]
            for setting in (f"ha.brokers={self.both}", "ha.replicate=all", *self._settings):
                arguments += ["--set", setting]
            self.brokers[name] = self.children.start(name, arguments)
        for name in names:
            self.until(partial(self.answers, name), f"{name} to answer")

    def answers(self, name: str) -> bool:
        return self.status(name) != "down"

    def whole(self) -> Self:
        """Start both, promote left, and wait for the ready backup."""
        self.start("left", "right")
        code, _, err = self.command("promote", "left")
        assert code == 0, err
        self.wait_for("right", "ready")
        return self

    def status(self, name: str) -> str:
        return str(self.answer(name).get("status", "down"))

    def answer(self, name: str) -> dict[str, Any]:
        """The node's status object, empty while it does not answer."""
        try:
            found = ask(self.addresses[name], "status", timeout=5)["status"]
        except Unreachable:
            return {}
        assert isinstance(found, dict)
        return found

    def wait_for(self, name: str, status: str) -> None:
        self.until(lambda: self.status(name) == status, f"{name} to be {status}")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Ask again and again; there is no event to wait for in another process but its answers."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            for broker in self.brokers.values():
                if broker.exit_code is not None and not broker.expected_to_end:
                    raise AssertionError(f"{broker.name} ended: {broker.last_words()}")
            if time.monotonic() > deadline:
                words = {name: broker.last_words() for name, broker in self.brokers.items()}
                raise AssertionError(f"waited in vain for {what}; the nodes' last words: {words}")

    def kill(self, name: str) -> None:
        self.brokers[name].signal(signal.SIGKILL)
        assert self.brokers[name].wait(PATIENCE) == -signal.SIGKILL

    def stop(self, name: str) -> int | None:
        self.brokers[name].signal(signal.SIGTERM)
        return self.brokers[name].wait(PATIENCE)

    def command(self, command: str, name: str, *options: str) -> tuple[int, str, str]:
        """Run `understudy COMMAND -b NODE`: exit code, output, errors."""
        return understudy(command, "-b", str(self.addresses[name]), *options)

    def ledger(self, name: str) -> list[dict[str, Any]]:
        """All records that a node has written, in order of incarnation and number."""
        return read_ledgers(self.folder / name)


def understudy(*arguments: str) -> tuple[int, str, str]:
    """Run the command line in a process of its own: exit code, output, errors."""
    done = subprocess.run(
        [sys.executable, "-m", "understudy", *arguments], capture_output=True, text=True, timeout=2 * PATIENCE
    )
    return done.returncode, done.stdout, done.stderr


def read_ledgers(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in folder.rglob("*.ledger.jsonl"):
        whole = path.read_text().rpartition("\n")[0]  # the writer may be in the middle of its last line
        found += [json.loads(line) for line in whole.splitlines()]
    return sorted(found, key=lambda record: (record["incarnation"], record["wseq"]))


def kinds(records: Sequence[dict[str, Any]]) -> list[str]:
    return [record["kind"] for record in records]
