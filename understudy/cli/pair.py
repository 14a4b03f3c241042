"""The command `pair`: two nodes on loopback for a trial, which fail over by themselves, until Ctrl-C.

Each node is an `understudy serve` process, as in `demo`. Nothing restarts a node that ends: the user kills
one node, and the other one takes over when a client comes to it.
"""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path

import click

from understudy import codes
from understudy.cli.demo import prepare
from understudy.cli.options import Failed
from understudy.cli.process import Stop, stopping
from understudy.demo.processes import Child, Children
from understudy.demo.stage import free_ports
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort

FOLDER = Path("understudy-pair")
MARK = ".understudy-pair"
"""A folder with this file belongs to `pair`, which may clear it."""
NODES = {"a": "primary", "b": "backup"}
"""Names and `ha.role`."""
_PAGES = 10_000
"""From the port of a node to that of its web console, as RabbitMQ has them."""
_PATIENCE = 30.0
"""Seconds for each step of the start."""
_POLL = 0.1
"""Seconds between two checks."""


@click.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    show_default=True,
    help="Folder for data and logs; files of an earlier pair are removed.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65534),
    default=5672,
    show_default=True,
    help="Port of node a; node b uses the next one. Their web consoles are 10,000 higher. 0: free ports.",
)
def pair(folder: Path, port: int) -> None:
    """Start a pair on loopback to try. It fails over by itself. Ctrl-C stops both nodes.

    Clients log in as guest, password guest. No data of an earlier run is kept.
    """
    prepare(folder, MARK, "pair")
    with stopping() as stop, Children(_logs(folder)) as children:
        Pair(folder, port, children, stop).run()


def _logs(folder: Path) -> Path:
    logs = folder / "logs"
    logs.mkdir()
    return logs


class Pair:
    """One run. `run` may be called once; the caller ends the children."""

    def __init__(self, folder: Path, port: int, children: Children, stop: Stop) -> None:
        free = free_ports(2 * len(NODES))
        ports = (port, port + 1) if port else free[:2]
        pages = (port + _PAGES, port + _PAGES + 1) if port and port + _PAGES < 0xFFFF else free[2:]
        self._addresses = {name: HostPort("127.0.0.1", each) for name, each in zip(NODES, ports, strict=True)}
        self._pages = {name: HostPort("127.0.0.1", each) for name, each in zip(NODES, pages, strict=True)}
        self._folder = folder
        self._children = children
        self._stop = stop
        self._nodes: dict[str, Child] = {}

    def run(self) -> None:
        """Return when asked to stop. Failed if a node does not start, or when no node is left."""
        for name in NODES:
            self._nodes[name] = self._children.start(name, ["understudy", *self._serve(name)])
        first, second = NODES
        if not self._until(lambda: self._is(first, "active") and self._is(second, "ready"), "a ready backup"):
            return
        for name, role in zip(NODES, ("primary", "backup, ready"), strict=True):
            click.echo(f"{name}  {self._addresses[name]}  pid {self._nodes[name].pid}  {role}")
        click.echo(f"console: http://{self._pages[first]}; data and logs: {self._folder}; Ctrl-C stops both")
        self._wait()

    def _serve(self, name: str) -> list[str]:
        brokers = ",".join(map(str, self._addresses.values()))
        found = ["serve", "--name", name, "--listen", str(self._addresses[name])]
        found += ["--http", str(self._pages[name])]
        found += ["--data-dir", str(self._folder / name), "--set", f"ha.brokers={brokers}"]
        return [*found, "--set", "ha.authority=pair", "--set", f"ha.role={NODES[name]}"]

    def _until(self, condition: Callable[[], bool], what: str) -> bool:
        """Wait for `condition`. False when asked to stop. Failed if a node ends, or on a timeout."""
        deadline = time.monotonic() + _PATIENCE
        while not self._stop():
            for name, node in self._nodes.items():
                if node.exit_code is not None:
                    said = node.last_words_of(node.log, lines=1).removeprefix("understudy: ")
                    cause = said or f"exit code {node.exit_code}"
                    raise Failed(codes.PAIR_ENDED.say(node=name, cause=cause))
            if condition():
                return True
            if time.monotonic() > deadline:
                late = codes.PAIR_LATE.say(seconds=_PATIENCE, what=what, logs=self._folder / "logs")
                raise Failed(late)
            time.sleep(_POLL)
        return False

    def _is(self, name: str, status: str) -> bool:
        try:
            found = ask(self._addresses[name], "status", timeout=2).get("status")
        except Unreachable:
            return False
        return isinstance(found, dict) and found.get("status") == status

    def _wait(self) -> None:
        """For each node that ends, print how to start it again."""
        while not self._stop():
            for name, node in list(self._nodes.items()):
                if (code := node.exit_code) is None or self._stop():
                    continue
                del self._nodes[name]
                cause = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                click.echo(f"{name} ended: {cause}; to start it again:")
                click.echo(f"  understudy {shlex.join(self._serve(name))}")
            if not self._nodes:
                raise Failed(codes.PAIR_BOTH_ENDED.say())
            time.sleep(_POLL)
