"""Starts RabbitMQ from Debian's package on loopback: one node, or three as a cluster for quorum queues.

Nodes have data folders, ports, names and an Erlang port mapper of their own, so a RabbitMQ of the machine is
neither used nor disturbed. `Nodes.close` ends all of their processes by id. Called by
bench/compare/systems.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.brokers import HOST, BrokerError, free_ports
from bench.compare.certificates import Files
from bench.wire import Wire, WireError

PROGRAMS = Path("/usr/lib/rabbitmq/bin")
"""Of Debian's package. The ones in PATH change to the user `rabbitmq`, and to that user's data."""
MISSING = "no RabbitMQ here: apt install rabbitmq-server"
COOKIE = "understudycompare"
PATIENCE = 90.0
"""Seconds that a cluster may take to form."""


class MissingBroker(Exception):
    """Debian's rabbitmq-server is not installed; the text says what to install."""


@dataclass(slots=True)
class Nodes:
    """Running nodes and their port mapper; the first node is the one to load."""

    folder: Path
    ports: list[int]
    tls_ports: list[int] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """The port mapper, then each node; each leads a session of its own."""
    names: list[str] = field(default_factory=list)
    mapper: int = 0
    """Port of the port mapper."""

    def pids(self, node: int | None = None) -> list[int]:
        """All processes of one node, or of all, without the port mapper."""
        nodes = self.processes[1:] if node is None else [self.processes[1 + node]]
        sessions = {process.pid for process in nodes}
        return [pid for pid in _processes() if _session(pid) in sessions]

    def control(self, *words: str) -> str:
        """What `rabbitmqctl` says of the first node. Raises BrokerError if it fails."""
        environment = {**os.environ, "HOME": str(self.folder / "node0"), "ERL_EPMD_PORT": str(self.mapper)}
        command = [str(PROGRAMS / "rabbitmqctl"), "-n", self.names[0], "--quiet", *words]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise BrokerError(f"rabbitmqctl {words[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def last_words(self) -> str:
        texts = [log.read_text(errors="replace")[-1500:] for log in sorted(self.folder.glob("*.out"))]
        return "\n".join(texts)

    def close(self) -> None:
        for process in reversed(self.processes[1:]):
            process.terminate()
        end = time.monotonic() + 20
        for process in reversed(self.processes):
            try:
                if process is not self.processes[0]:
                    process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
            # Whatever of its session is left, the helpers of the Erlang VM among it.
            for pid in [pid for pid in _processes() if _session(pid) == process.pid]:
                _kill(pid)
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def version() -> str:
    """Of the installed package. Raises MissingBroker."""
    if not (PROGRAMS / "rabbitmq-server").exists():
        raise MissingBroker(MISSING)
    return (PROGRAMS / "rabbitmq-server").resolve().parents[1].name.rpartition("-")[2]


def start(
    count: int, files: Files, under: Path | None = None, plugins: Sequence[str] = ("rabbitmq_amqp1_0",)
) -> Nodes:
    """So many nodes, as one cluster, each with a TLS listener, too. Raises MissingBroker or BrokerError."""
    version()
    nodes = Nodes(Path(tempfile.mkdtemp(prefix="rabbitmq-bench-", dir=under)), [])
    try:
        mapper, *distribution = free_ports(1 + 3 * count)
        nodes.ports = [distribution.pop() for _ in range(count)]
        nodes.tls_ports = [distribution.pop() for _ in range(count)]
        nodes.mapper = mapper
        _launch(nodes, "mapper", ["epmd", "-address", HOST, "-port", str(mapper)], dict(os.environ))
        names = nodes.names = [f"bench{at}-{nodes.folder.name[-8:]}@localhost" for at in range(count)]
        for at, port in enumerate(distribution):
            environment = _environment(nodes, at, names, files, plugins)
            environment |= {"RABBITMQ_DIST_PORT": str(port), "ERL_EPMD_PORT": str(mapper)}
            _launch(nodes, f"node{at}", [str(PROGRAMS / "rabbitmq-server")], environment)
        for at in range(count):
            _await_node(nodes, at)
        _await_cluster(nodes)
    except BaseException:
        nodes.close()
        raise
    return nodes


def _environment(
    nodes: Nodes, at: int, names: list[str], files: Files, plugins: Sequence[str]
) -> dict[str, str]:
    """What a node is told: where to keep things, and whom to join."""
    folder = nodes.folder / f"node{at}"
    folder.mkdir()
    settings = ["log.console = false", "log.file.level = warning"]
    settings += [f"listeners.ssl.default = {HOST}:{nodes.tls_ports[at]}", *files.rabbitmq()]
    if len(names) > 1:
        settings.append("cluster_formation.peer_discovery_backend = classic_config")
        settings += [
            f"cluster_formation.classic_config.nodes.{at + 1} = {each}" for at, each in enumerate(names)
        ]
    (folder / "rabbitmq.conf").write_text("\n".join(settings) + "\n")
    (folder / "plugins").write_text(f"[{','.join(plugins)}].\n")
    cookie = folder / ".erlang.cookie"
    cookie.write_text(COOKIE)
    cookie.chmod(0o400)
    return {
        **os.environ,
        "HOME": str(folder),
        "RABBITMQ_NODENAME": names[at],
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(nodes.ports[at]),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "ERL_EPMD_ADDRESS": HOST,
    }


def _launch(nodes: Nodes, name: str, command: list[str], environment: dict[str, str]) -> None:
    with (nodes.folder / f"{name}.out").open("wb") as output:
        nodes.processes.append(
            subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )


def _await_node(nodes: Nodes, at: int) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            Wire.open(HOST, nodes.ports[at], user="guest", password="guest", timeout=5).close()
            return
        except (OSError, WireError):
            if nodes.processes[at + 1].poll() is not None or time.monotonic() > end:
                raise BrokerError(f"RabbitMQ does not start:\n{nodes.last_words()}") from None
        time.sleep(0.2)


def _await_cluster(nodes: Nodes) -> None:
    """Until the first node lists all of them as running."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            said = nodes.control("cluster_status", "--formatter", "json")
        except BrokerError as error:
            said = str(error)
        running = said.partition('"running_nodes":[')[2].partition("]")[0]
        if all(f'"{name}"' in running for name in nodes.names):
            return
        if time.monotonic() > end:
            raise BrokerError(f"the RabbitMQ nodes form no cluster: {said}")
        time.sleep(0.5)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
