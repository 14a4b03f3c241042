"""bench.durable return: a killed backup comes back with its store, and fetches only what is missing."""

from __future__ import annotations

import argparse
import re
import subprocess
import time

from bench import brokers
from bench.clock import cpu_ns
from bench.durable.nodes import PATIENCE, connected, depth, end, fill, said
from bench.durable.report import Figure, Findings
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort

SIZE = 256
MOST_SECONDS = 2.0
NEW = 1_000
QUEUE = "deep"


def comes_back(options: argparse.Namespace) -> Findings:
    columns = ["common, new", "link until ready s", "exec until link s", "exec until ready s"]
    columns += ["backup CPU s", "primary CPU s", "to the backup KiB", "to the primary KiB"]
    title = "a backup is killed, messages of 256 bytes are published, it starts again"
    findings = Findings("return", title, columns)
    with brokers.pair(under=options.data) as cluster:
        findings.rows.append([f"{options.deep:,}, {NEW:,}", *measured(cluster, options.deep)])
    findings.notes = [
        f"Target: {MOST_SECONDS:g} s from the link until ready; before it, the backup reads its store. "
        "Then the primary was killed and the backup promoted: it held every message."
    ]
    return findings


def measured(cluster: brokers.Cluster, messages: int) -> list[Figure | str]:
    primary, backup = cluster.brokers
    fill(primary.port, QUEUE, messages, SIZE)
    end(cluster, backup, "kill")
    brokers._until(primary, lambda: bool(said(primary, "is excluded")), "excludes nobody")
    fill(primary.port, QUEUE, NEW, SIZE)
    joins = len(said(primary, "backup joins, "))
    members = f"ha.brokers={primary.address},{backup.address}"
    before = cpu_ns(primary.process.pid)
    began, wall = time.monotonic(), time.time()
    backup = cluster.start(backup.name, backup.port, members)
    _await_ready(backup, began)
    ready = time.monotonic() - began
    spent = [cpu_ns(backup.process.pid), cpu_ns(primary.process.pid) - before]
    linked = said(primary, "backup joins, ")[joins] - wall
    received, sent = link_bytes(backup, primary)
    _check(cluster, primary, backup, messages + NEW)
    return [
        Figure(ready - linked, 2, most=MOST_SECONDS),
        Figure(linked, 2),
        Figure(ready, 2),
        *(Figure(ns / 1e9, 2) for ns in spent),
        *(Figure(None if count is None else count / 1024, 1) for count in (received, sent)),
    ]


def _await_ready(backup: brokers.Broker, began: float) -> None:
    address = HostPort(brokers.HOST, backup.port)
    while True:
        if backup.process.poll() is not None or time.monotonic() > began + PATIENCE:
            raise brokers.BrokerError(f"the backup does not become ready:\n{backup.last_words()}")
        try:
            if ask(address, "status", timeout=PATIENCE)["status"]["status"] == "ready":
                return
        except Unreachable:
            pass
        time.sleep(0.01)


def link_bytes(backup: brokers.Broker, primary: brokers.Broker) -> tuple[int | None, int | None]:
    """Received and sent by the backup on its connections to the primary, by `ss`; None without it."""
    command = ["ss", "-HOtinp", "state", "established"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None, None
    return link_bytes_of(done.stdout, backup.process.pid, primary.address)


def link_bytes_of(text: str, pid: int, peer: str) -> tuple[int | None, int | None]:
    """The sums over a process's connections to `peer`, in the words of `ss`; None if it shows none."""
    received = sent = 0
    lines = [line for line in text.splitlines() if f"pid={pid}," in line and f" {peer} " in line]
    for line in lines:
        received += _number(line, "bytes_received")
        sent += _number(line, "bytes_sent")
    return (received, sent) if lines else (None, None)


def _number(line: str, name: str) -> int:
    found = re.search(rf"\b{name}:(\d+)", line)
    return int(found[1]) if found else 0


def _check(cluster: brokers.Cluster, primary: brokers.Broker, backup: brokers.Broker, messages: int) -> None:
    """The backup alone has everything. Raises BrokerError."""
    end(cluster, primary, "kill")
    last = [""]

    def promoted() -> bool:
        done = brokers.understudy("promote", "-b", backup.address)
        last[0] = done.stderr + done.stdout
        return done.returncode == 0

    brokers._until(backup, promoted, "is not promoted")
    wire = connected(backup.port)
    held = depth(wire, QUEUE)
    wire.close()
    if held != messages:
        raise brokers.BrokerError(f"the backup holds {held:,} of {messages:,} messages")
