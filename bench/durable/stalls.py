"""bench.durable stalls: how long a broker's event loop stands still while much is written to its disk.

Two brokers are probed a thousand times a second in the same ticks: the one under load, and an idle twin,
which shows what the machine itself does to a process. The same load with transient messages, which
nobody writes, shows what is the load's own share.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from bench import brokers
from bench.durable.nodes import on_and_off_core
from bench.durable.report import Cell, Figure, Findings

MOST_MS = 20.0
SIZES = (16 * 1024, 256)
WINDOW = {256: 1000, 16 * 1024: 200}


def stalls(options: argparse.Namespace) -> Findings:
    columns = ["load", "MiB/s", "p50 ms", "p99 ms", "p99.9 ms", "longest ms"]
    columns += ["twin p99.9", "twin longest", "probe late p99.9", "probe latest", "waiting for a core"]
    title = f"answers while {options.mib:,} MiB are written, {options.hertz:,.0f} questions a second"
    findings = Findings("stalls", title, columns)
    with brokers.alone(under=options.data) as loaded, brokers.alone(under=options.data) as twin:
        nodes = [loaded.brokers[0], twin.brokers[0]]
        with Probing(nodes, options.hertz) as probing:
            time.sleep(min(3.0, options.seconds))
        findings.rows.append(["nothing", "-", *_row(probing, share=None, target=False)])
        for size in options.sizes:
            for persistent in (False, True):
                findings.rows.append(_loaded(nodes, options, size, persistent=persistent))
    findings.notes = [
        f"Target: p99.9 of persistent messages below {MOST_MS:g} ms. Window {WINDOW[16 * 1024]} at 16 KiB, "
        f"{WINDOW[256]:,} at 256 bytes; a consumer acks. *Twin*: an idle broker, asked in the same ticks.",
        "*Waiting for a core*: the share of the time in which the loaded broker's event loop was ready to "
        "run and something else ran.",
    ]
    return findings


def _loaded(
    nodes: list[brokers.Broker], options: argparse.Namespace, size: int, *, persistent: bool
) -> list[Cell]:
    broker = nodes[0]
    messages = options.mib * 2**20 // size
    command = [sys.executable, "-m", "bench.generator", "--port", str(broker.port), "--consume"]
    command += ["--size", str(size), "--messages", str(messages), "--warmup", "0", "--durable"]
    command += ["--window", str(WINDOW.get(size, 1000))] + (["--persistent"] if persistent else [])
    before = on_and_off_core(broker.process.pid)
    with Probing(nodes, options.hertz) as probing:
        began = time.monotonic()
        done = subprocess.run(command, cwd=brokers.ROOT, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - began
    if done.returncode:
        raise brokers.BrokerError(f"{done.stderr.strip()}\n{broker.last_words()}")
    after = on_and_off_core(broker.process.pid)
    rate = messages * size / 2**20 / json.loads(done.stdout)["seconds"]
    kind = "persistent" if persistent else "transient"
    name = f"{kind}, {size:,} bytes"
    share = (after[1] - before[1]) / seconds
    return [name, Figure(rate), *_row(probing, share=share, target=persistent)]


class Probing:
    """The probe's process, from entry to exit; then `found`."""

    def __init__(self, nodes: list[brokers.Broker], hertz: float) -> None:
        self.ports = [str(node.port) for node in nodes]
        self.hertz = hertz
        self.found: dict[str, Any] = {}

    def __enter__(self) -> Probing:
        command = [sys.executable, "-m", "bench.durable.probe", *self.ports, "--hertz", str(self.hertz)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=brokers.ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        output, errors = self._process.communicate()
        if kind is None:
            if self._process.returncode:
                raise brokers.BrokerError(errors.strip())
            self.found = json.loads(output)


def _row(probing: Probing, *, share: float | None, target: bool) -> list[Cell]:
    loaded, twin = probing.found["brokers"]
    late = probing.found["late"]
    return [
        Figure(loaded["p50"], 2),
        Figure(loaded["p99"], 2),
        Figure(loaded["p99.9"], 2, most=MOST_MS if target else None),
        Figure(loaded["longest"], 1),
        Figure(twin["p99.9"], 2),
        Figure(twin["longest"], 1),
        Figure(late["p99.9"], 2),
        Figure(late["longest"], 1),
        "-" if share is None else f"{100 * share:.0f} %",
    ]
