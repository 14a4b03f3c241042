"""A real Spark engine on this machine's loopback: a standalone master, workers, and a Spark Connect server.

Owner: one test, one thread. Each process has its own process group, and runs from the installed PySpark. The
processes choose their ports, and name them in their logs. When the `Engine` ends, nothing remains.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from understudy.demo.processes import _die_with_parent

HOST = "127.0.0.1"
STARTS = 120.0
"""Seconds to wait for a process to start, or for a state to be reached."""
WORKER_MB = 1536
EXECUTOR_MB = 1024
_GLANCE = 0.05

Some = TypeVar("Some", bound="Daemon")

_MASTER_CLASS = "org.apache.spark.deploy.master.Master"
_WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
_OWN_PORTS = ("--host", HOST, "--port", "0", "--webui-port", "0")
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_SITE = re.compile(
    r"(?:MasterWebUI|MasterUI).* started at http://[^:]+:(\d+)|Service 'MasterUI' on port (\d+)"
)
_CONNECT = re.compile(r"Spark Connect server started at: \S*?:(\d+)")
_WORKER = re.compile(r"Successfully registered with master")
_TASK = re.compile(r"Running task \d+\.\d+ in stage (\d+)\.\d+")


def until(condition: Callable[[], bool], what: Callable[[], str], patience: float = STARTS) -> None:
    deadline, pause = time.monotonic() + patience, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what()}"
        pause.wait(_GLANCE)


class Daemon:
    """One Java process with its children, and its log."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
                start_new_session=True, preexec_fn=_die_with_parent(),
            )  # fmt: skip

    def said(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.search(self.log.read_text(errors="replace"))

    def until_said(self, pattern: re.Pattern[str]) -> str:
        """Wait for a line of the log that matches, and return its first matching group."""
        until(lambda: self._ended() or self.said(pattern) is not None, self._in_vain)
        found = self.said(pattern)
        assert found is not None, self._in_vain()
        return next((group for group in found.groups() if group), "")

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def _in_vain(self) -> str:
        return f"{self.name}: {self.log.read_text(errors='replace')[-2000:]}"

    def kill(self) -> None:
        """Kill the process and all that it started, as if its machine went down."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(STARTS)


class Worker(Daemon):
    """A worker with its executors, in a folder of its own."""

    folder: Path

    def stages(self) -> int:
        """Number of stages, over all applications, of which its executors have begun a task."""
        logs = self.folder.glob("app-*/*/stderr")
        return sum(len(set(_TASK.findall(log.read_text(errors="replace")))) for log in logs)


class Engine:
    """A context manager: a master and workers of one core each; `connect` adds a server of Spark Connect.

    The workers' Python has the installed packages, but not this project, which is installed by a `.pth` file.
    """

    def __init__(self, folder: Path, java: Path, workers: int = 2) -> None:
        import pyspark

        self.folder = folder
        self.workers: list[Worker] = []
        self._home = Path(pyspark.__file__).parent
        self._daemons: list[Daemon] = []
        self._many = workers
        configuration = folder / "conf"
        configuration.mkdir(parents=True)
        self.environment = {
            **os.environ, "JAVA_HOME": str(java), "SPARK_HOME": str(self._home), "SPARK_LOCAL_IP": HOST,
            "SPARK_CONF_DIR": str(configuration), "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYSPARK_PYTHON": getattr(sys, "_base_executable", sys.executable),
            "PYTHONPATH": str(self._home.parent),
        }  # fmt: skip
        (configuration / "spark-defaults.conf").write_text(
            f"spark.executor.memory {EXECUTOR_MB}m\nspark.sql.shuffle.partitions 4\n"
            f"spark.driver.host {HOST}\nspark.driver.bindAddress {HOST}\n"
        )

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for daemon in reversed(self._daemons):
            daemon.kill()

    def _start(self) -> None:
        master = self._daemon(Daemon, "master", [_MASTER_CLASS, *_OWN_PORTS])
        self.master = master.until_said(_MASTER)
        self._site = int(master.until_said(_SITE))
        for _ in range(self._many):
            self._begin_worker()
        for worker in self.workers:
            worker.until_said(_WORKER)

    def start_worker(self) -> Worker:
        worker = self._begin_worker()
        worker.until_said(_WORKER)
        return worker

    def _begin_worker(self) -> Worker:
        name = f"worker{len(self._daemons)}"
        folder = self.folder / name
        sizes = ["--cores", "1", "--memory", f"{WORKER_MB}m", "--work-dir", str(folder)]
        worker = self._daemon(Worker, name, [_WORKER_CLASS, *_OWN_PORTS, *sizes, self.master])
        worker.folder = folder
        self.workers.append(worker)
        return worker

    def _daemon(self, kind: type[Some], name: str, arguments: Sequence[str]) -> Some:
        command = [str(self._home / "bin" / "spark-class"), *arguments]
        daemon = kind(name, command, self.folder / f"{name}.log", self.environment)
        self._daemons.append(daemon)
        return daemon

    def connect(self) -> str:
        """Start a Spark Connect server on the engine. Returns its address for `--master`."""
        command = ["org.apache.spark.deploy.SparkSubmit", "--master", self.master]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        for setting in ("binding.address=" + HOST, "binding.port=0"):
            command += ["--conf", f"spark.connect.grpc.{setting}"]
        self._server = self._daemon(Daemon, "connect", [*command, "spark-internal"])
        return f"sc://{HOST}:{self._server.until_said(_CONNECT)}"

    def connect_log(self) -> str:
        return self._server.log.read_text(errors="replace")

    def state(self) -> Any:
        """The master's status of its workers and applications."""
        connection = http.client.HTTPConnection(HOST, self._site, timeout=10)
        try:
            connection.request("GET", "/json/")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def alive(self) -> int:
        """Number of workers that are alive, by the master's status."""
        return sum(worker["state"] == "ALIVE" for worker in self.state()["workers"])
