"""Starts brokers for a measurement, alone or as a pair, as a user would: `python -m understudy serve`.

Called by bench/run.py. Every broker is a child process with a data folder of its own below a temporary one;
`Cluster.close` ends them all and removes the folders.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[1]
HOST = "127.0.0.1"


class BrokerError(Exception):
    """A broker did not start, or a pair did not form; the text has its last words."""


@dataclass(slots=True)
class Broker:
    """One running broker."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path
    http: int | None = None
    """The port of `broker.http`."""
    tls: int | None = None
    """The port of `broker.tls_listen`."""

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


@dataclass(slots=True)
class Cluster:
    """The brokers of one measurement; the first is the one to load."""

    folder: Path
    brokers: list[Broker] = field(default_factory=list)
    environment: Mapping[str, str] | None = None
    """Of the brokers; None: this process's own."""

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(
        self, name: str, port: int, *settings: str, http: int | None = None, tls: int | None = None
    ) -> Broker:
        command = [sys.executable, "-m", "understudy", "serve", "--name", name]
        command += ["--listen", f"{HOST}:{port}", "--data-dir", str(self.folder / name)]
        if http is not None:
            command += ["--http", f"{HOST}:{http}"]
        if tls is not None:
            command += ["--set", f"broker.tls_listen={HOST}:{tls}"]
        for setting in settings:
            command += ["--set", setting]
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env=self.environment
            )
        broker = Broker(name, port, process, log, http, tls)
        self.brokers.append(broker)
        return broker

    def close(self) -> None:
        for broker in self.brokers:
            broker.process.terminate()
        for broker in self.brokers:
            try:
                broker.process.wait(10)
            except subprocess.TimeoutExpired:
                broker.process.kill()
                broker.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def alone(
    *settings: str,
    under: Path | None = None,
    http: bool = False,
    tls: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Cluster:
    """A standalone broker that accepts connections; its folder is below `under`. `http`: with `broker.http`.
    `tls`: with `broker.tls_listen`, whose files are among the settings. Raises BrokerError."""
    folder = Path(tempfile.mkdtemp(prefix="understudy-bench-", dir=under))
    cluster = Cluster(folder, environment=environment)
    try:
        ports_besides = {"http": free_port() if http else None, "tls": free_port() if tls else None}
        _await_listening(cluster.start("alone", free_port(), *settings, **ports_besides))
    except BaseException:
        cluster.close()
        raise
    return cluster


def pair(
    *settings: str,
    under: Path | None = None,
    http: bool = False,
    tls: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Cluster:
    """A primary and its ready backup, their folders below `under`. `http`: with `broker.http`. `tls`: with
    `broker.tls_listen`, whose files are among the settings. Raises BrokerError."""
    folder = Path(tempfile.mkdtemp(prefix="understudy-bench-", dir=under))
    cluster = Cluster(folder, environment=environment)
    ports = [free_port(), free_port()]
    members = "ha.brokers=" + ",".join(f"{HOST}:{port}" for port in ports)
    try:
        for name, port in zip(("primary", "backup"), ports, strict=True):
            ports_besides = {"http": free_port() if http else None, "tls": free_port() if tls else None}
            cluster.start(name, port, members, *settings, **ports_besides)
        for broker in cluster.brokers:
            _await_listening(broker)
        primary, backup = cluster.brokers
        _until(
            primary, lambda: understudy("promote", "-b", primary.address).returncode == 0, "was not promoted"
        )
        _until(backup, lambda: status(backup).get("status") == "ready", "did not become ready")
    except BaseException:
        cluster.close()
        raise
    return cluster


def understudy(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    """`said`: to its standard input."""
    command = [sys.executable, "-m", "understudy", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60, input=said
    )


def status(broker: Broker) -> dict[str, Any]:
    """What `understudy status` says, or nothing while it cannot be reached."""
    done = understudy("status", "-b", broker.address, "--format", "json")
    answer: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return answer


def free_port() -> int:
    """A port that was free a moment ago: both addresses of a pair must be known before either starts."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports(count: int) -> list[int]:
    """So many that differ from each other."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def _await_listening(broker: Broker) -> None:
    def listening() -> bool:
        try:
            socket.create_connection((HOST, broker.port), 1).close()
        except OSError:
            return False
        return True

    _until(broker, listening, "does not listen")


def _until(broker: Broker, condition: Any, complaint: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if broker.process.poll() is not None or time.monotonic() > end:
            raise BrokerError(f"{broker.name} {complaint}:\n{broker.last_words()}")
        time.sleep(0.1)
