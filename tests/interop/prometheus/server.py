"""A real Prometheus (Debian's package) that scrapes the nodes of a test, and what a test asks of it."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import PATH, require
from tests.ports import free_ports

SCRAPE = "250ms"
_PATIENCE = 5.0


class Prometheus:
    """`port`: of its HTTP API."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.process = process

    def _get(self, path: str, **words: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:
            return json.load(answer)["data"]

    def answers(self) -> bool:
        try:
            self._get("targets")
        except OSError:
            assert self.process.poll() is None, "Prometheus ended"
            return False
        return True

    def query(self, text: str) -> list[dict[str, Any]]:
        """The samples of an instant vector now."""
        found = self._get("query", query=text)["result"]
        assert isinstance(found, list)
        return found

    def values(self, text: str) -> dict[str, float]:
        """By the label `instance`."""
        return {line["metric"].get("instance", ""): float(line["value"][1]) for line in self.query(text)}

    def firing(self) -> set[str]:
        """Names of the alerts that fire."""
        alerts = self._get("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def scrape_errors(self) -> list[str]:
        return [each["lastError"] for each in self._get("targets")["activeTargets"] if each["lastError"]]


@contextmanager
def prometheus(
    folder: Path, jobs: Mapping[str, list[str]], rules: str = "", labels: Mapping[str, str] | None = None
) -> Iterator[Prometheus]:
    """`jobs`: addresses by path. The job of `/metrics` is called `understudy`, another one as its path.
    `rules`: text of a file of rules."""
    require("prometheus")
    (folder / "test.rules").write_text(rules or "groups: []\n")
    times = {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE}
    scrapes = [
        {
            "job_name": "understudy" if path == "/metrics" else path,
            "metrics_path": path,
            "static_configs": [{"targets": targets, "labels": dict(labels or {})}],
        }
        for path, targets in jobs.items()
    ]
    config = {"global": times, "rule_files": ["test.rules"], "scrape_configs": scrapes}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (port,) = free_ports(1)
    command = [
        "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"PATH": PATH})
        try:
            yield Prometheus(port, process)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
