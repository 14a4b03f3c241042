"""A set of real broker processes for tests: started, asked, frozen, killed and stopped as an operator would.

Owner: one test or one leg of `tests.failover.soak.rounds`, on one thread; nodes die with the thread that
started them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.ports import free_ports
from tests.understudy.command_line import command
from understudy.demo.processes import Child, Children
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort

PATIENCE = 30.0
"""Seconds that anything may take on a busy machine before it counts as hung."""
_GLANCE = 0.02
"""Seconds between two questions to another process, which has no other way to tell of an event."""
SERVING = ("active", "recovering", "standalone")


@dataclass(slots=True, frozen=True)
class Place:
    """Where a node lives."""

    address: HostPort
    prefix: tuple[str, ...] = ()
    """A command that runs the one that follows it there; none for this machine's own network."""


@dataclass(slots=True, frozen=True)
class Login:
    """The operator and the clients. The default is let in from loopback only."""

    user: str = "guest"
    password: str = "guest"


def local_places(names: Sequence[str]) -> dict[str, Place]:
    """On loopback, each on a free port."""
    ports = free_ports(len(names))
    return {name: Place(HostPort("127.0.0.1", port)) for name, port in zip(names, ports, strict=True)}


class Cluster:
    """Nodes by name. A context manager: no process is left when it ends."""

    def __init__(
        self, folder: Path, places: Mapping[str, Place], *settings: str, login: Login | None = None
    ) -> None:
        self.folder = folder
        logs = folder / "logs"
        logs.mkdir(parents=True)
        self.children = Children(logs)
        self.places = dict(places)
        self.addresses = {name: place.address for name, place in places.items()}
        self.list = ",".join(map(str, self.addresses.values()))
        """All addresses, as clients and `ha.brokers` take them."""
        self.login = login or Login()
        self._settings = settings
        self.own: dict[str, tuple[str, ...]] = {}
        """Settings of one node, by its name."""
        self.brokers: dict[str, Child] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.children.__exit__(kind, error, trace)

    # -- processes

    def start(self, *names: str, brokers: str | None = None) -> None:
        """Start these nodes and wait until they answer. `brokers`: their `ha.brokers`, if not the truth."""
        for name in names:
            arguments = ["understudy", "serve", "--name", name, "--listen", str(self.addresses[name])]
            arguments += ["--data-dir", str(self.folder / name)]
            told = f"ha.brokers={self.list if brokers is None else brokers}"
            for setting in (told, "ha.replicate=all", *self._settings, *self.own.get(name, ())):
                arguments += ["--set", setting]
            self.brokers[name] = self.children.start(name, arguments, prefix=self.places[name].prefix)
        for name in names:
            self.until(partial(self.answers, name), f"{name} to answer")

    def kill(self, name: str) -> None:
        self.brokers[name].signal(signal.SIGKILL)
        assert self.brokers[name].wait(PATIENCE) == -signal.SIGKILL

    def stop(self, name: str) -> int | None:
        self.brokers[name].signal(signal.SIGTERM)
        return self.brokers[name].wait(PATIENCE)

    def freeze(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        """One after which it is to live on."""
        self.brokers[name].signal(number)
        self.brokers[name].expected_to_end = False

    # -- questions

    def ask(self, name: str, command: str, timeout: float = PATIENCE, **arguments: Any) -> dict[str, Any]:
        """The node's answer to a management command. Raises Unreachable."""
        user, password = self.login.user, self.login.password
        return ask(self.addresses[name], command, arguments, user=user, password=password, timeout=timeout)

    def answers(self, name: str) -> bool:
        return self.status(name) != "down"

    def status(self, name: str) -> str:
        return str(self.answer(name).get("status", "down"))

    def answer(self, name: str) -> dict[str, Any]:
        """The node's status object, empty while it does not answer."""
        try:
            found = self.ask(name, "status", 5)["status"]
        except Unreachable:
            return {}
        assert isinstance(found, dict)
        return found

    def wait_for(self, name: str, status: str) -> None:
        self.until(lambda: self.status(name) == status, f"{name} to be {status}")

    def until(self, condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
        """Ask again and again; there is no event to wait for in another process but its answers."""
        deadline = time.monotonic() + patience
        pause = threading.Event()
        while not condition():
            for broker in self.brokers.values():
                if broker.exit_code is not None and not broker.expected_to_end:
                    raise AssertionError(f"{broker.name} ended: {broker.last_words()}")
            if time.monotonic() > deadline:
                words = {name: broker.last_words() for name, broker in self.brokers.items()}
                raise AssertionError(f"waited in vain for {what}; the nodes' last words: {words}")
            pause.wait(_GLANCE)

    def command(self, command: str, name: str, *options: str) -> tuple[int, str, str]:
        """Run `understudy COMMAND -b NODE`: exit code, output, errors. Only a thread starts a process."""
        return _typed(command, "-b", str(self.addresses[name]), *options)

    def controller(self, name: str, do: str, *options: str) -> tuple[int, str, str]:
        """Run `understudy controller DO -b NODE`, likewise."""
        return _typed("controller", do, "-b", str(self.addresses[name]), *options)

    def ledger(self, name: str) -> list[dict[str, Any]]:
        """All records that a node has written, in order of incarnation and number."""
        return read_ledgers(self.folder / name)


def _typed(*arguments: str) -> tuple[int, str, str]:
    """The standard streams belong to the main thread."""
    alone = threading.current_thread() is threading.main_thread()
    return command(*arguments) if alone else understudy(*arguments)


def understudy(*arguments: str, timeout: float = 10 * PATIENCE) -> tuple[int, str, str]:
    """Run the command line in a process of its own: exit code, output, errors. Spark may be started in it."""
    done = subprocess.run(
        [sys.executable, "-m", "understudy", *arguments], capture_output=True, text=True, timeout=timeout
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
