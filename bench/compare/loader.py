"""Runs the load generator for a comparison, each time in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from bench import brokers
from bench.compare.certificates import Files
from bench.compare.report import Figures
from bench.compare.rows import Row
from bench.compare.systems import Started, System

SPARE = 120.0
"""Seconds that a load may take beside its measured part."""
SLOWEST = 2_000
"""Messages a second at which a backlog is given up."""
WARM = ["--messages", "3000", "--consume", "--window", "100"]
"""What fresh brokers get before a backlog, so that memory which they take once does not count."""


class LoadFailed(Exception):
    """The generator failed: it says why."""


@dataclass(slots=True, frozen=True)
class Loader:
    """One length and one generator for all loads."""

    seconds: float
    engine: str
    backlog: int
    files: Files

    def warm(self, system: System, running: Started) -> None:
        """Raises LoadFailed."""
        self._generate(WARM, system, running, running.port, SPARE)

    def run(self, row: Row, system: System, running: Started, *more: str) -> Figures:
        """`more`: options of the generator. Raises LoadFailed."""
        options = [*row.command(self.seconds, self.backlog), *more]
        if row.tls:
            options += ["--tls-ca", str(self.files.ca)]
        if row.amqp10:
            options += ["--amqp10", system.address]
        if row.link and running.link:
            options += ["--link", ":".join(",".join(map(str, pids)) for pids in running.link)]
        limit = SPARE + 3 * self.seconds + (self.backlog / SLOWEST if row.backlog else 0)
        port = running.tls_port if row.tls else running.port
        result = self._generate(options, system, running, port, limit)
        if result["nacked"]:
            raise LoadFailed(f"{result['nacked']:,} messages were nacked")
        return Figures(
            rate=result["rate"],
            cpu_us=result["cpu_us_per_message"]["server"],
            p50=result["confirm_us"]["p50"],
            p99=result["confirm_us"]["p99"],
            drain_rate=result.get("drain_rate", 0),
            drain_cpu_us=result.get("drain_cpu_us_per_message", {}).get("server", 0),
            memory=result.get("memory_bytes_per_message", {}).get("server", 0),
            link=result.get("link_octets_per_message", 0),
        )

    def _generate(
        self, options: list[str], system: System, running: Started, port: int, limit: float
    ) -> dict[str, Any]:
        command = [sys.executable, "-m", "bench.generator", "--port", str(port), "--engine", self.engine]
        command += options
        if system.quorum:
            command.append("--quorum")
        for pid in running.pids:
            command += ["--pid", f"server={pid}"]
        try:
            done = subprocess.run(
                command, cwd=brokers.ROOT, capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired:
            raise LoadFailed(f"it took longer than {limit:g} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise LoadFailed(said[-1] if said else "no reason given")
        result: dict[str, Any] = json.loads(done.stdout)
        return result
