"""A cluster of real etcd processes for tests, on loopback. Needs Debian's etcd-server."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.deploy.tools import require
from tests.failover.nodes.cluster import PATIENCE
from tests.failover.nodes.machine_clock import set_machine_clock
from tests.ports import free_ports

_GLANCE = 0.02
Json = dict[str, Any]


def coded(text: str) -> str:
    """As the JSON gateway takes keys and values."""
    return b64encode(text.encode()).decode()


class EtcdCluster:
    """Members 0, 1, ... A context manager: no process is left when it ends. `options`: more of each
    member's; `tls`: of the clients' side."""

    def __init__(
        self, folder: Path, members: int = 3, options: Sequence[str] = (), tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
    ) -> None:  # fmt: skip
        require("etcd")
        self._folder = folder / "etcd"
        self._folder.mkdir(parents=True)
        self._options = list(options)
        self._tls = tls
        scheme = "http" if tls is None else "https"
        ports = free_ports(2 * members)
        self.endpoints = [f"{scheme}://{host}:{port}" for port in ports[:members]]
        self._peers = [f"http://{host}:{port}" for port in ports[members:]]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start(*range(len(self.endpoints)))
        self.until_it_commits()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.thaw(*self._running)
        self.kill(*list(self._running))

    @property
    def listed(self) -> str:
        """As `ha.etcd.endpoints` takes them."""
        return ",".join(self.endpoints)

    def start(self, *members: int) -> None:
        """Start these, again perhaps, with the data that they had."""
        cluster = ",".join(f"m{number}={url}" for number, url in enumerate(self._peers))
        for number in members:
            words = [
                "etcd", "--name", f"m{number}", "--data-dir", str(self._folder / f"m{number}"),
                "--listen-client-urls", self.endpoints[number],
                "--advertise-client-urls", self.endpoints[number],
                "--listen-peer-urls", self._peers[number],
                "--initial-advertise-peer-urls", self._peers[number], "--initial-cluster", cluster,
                # Whoever waits for an election of the default length waits for most of the test.
                "--heartbeat-interval", "50", "--election-timeout", "500", *self._options,
            ]  # fmt: skip
            with (self._folder / f"m{number}.log").open("ab") as log:
                self._running[number] = subprocess.Popen(words, stdout=log, stderr=log)

    def kill(self, *members: int) -> None:
        for number in members:
            self._running[number].send_signal(signal.SIGKILL)
        for number in members:
            self._running.pop(number).wait(PATIENCE)

    def freeze(self, *members: int) -> None:
        for number in members:
            self._running[number].send_signal(signal.SIGSTOP)

    def thaw(self, *members: int) -> None:
        for number in members:
            self._running[number].send_signal(signal.SIGCONT)

    def set_clock(self, seconds: int) -> None:
        """Of all members that run: so much later than it is."""
        for process in self._running.values():
            set_machine_clock(process.pid, seconds)

    def call(self, path: str, body: Json, token: str = "") -> Json:
        """Ask the first member that runs. Raises OSError."""
        url = self.endpoints[min(self._running)] + path
        headers = {"Authorization": token} if token else {}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=2, context=self._tls) as answer:
            found: Json = json.loads(answer.read())
        return found

    def control(self, *words: str) -> str:
        """Run `etcdctl` as an operator would, on all members. Returns its output."""
        require("etcdctl")
        command = ["etcdctl", "--endpoints", self.listed, *words]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=PATIENCE
        ).stdout  # fmt: skip

    def compact(self) -> None:
        """Drop the history of all keys until now, and give the space back."""
        revision = self.call("/v3/kv/range", {"key": coded("/test")})["header"]["revision"]
        self.control("compact", revision)
        self.control("defrag")

    def put(self, key: str, value: str) -> None:
        self.call("/v3/kv/put", {"key": coded(key), "value": coded(value)})

    def until_it_commits(self) -> None:
        """There is a leader, and a majority."""
        deadline, pause = time.monotonic() + PATIENCE, threading.Event()
        while True:
            try:
                self.put("/test", "it commits")
                return
            except (OSError, urllib.error.URLError):
                if time.monotonic() > deadline:
                    raise
                pause.wait(_GLANCE)
