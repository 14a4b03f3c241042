"""deploy/grafana: dashboards whose queries Prometheus understands, of metrics that are there."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.tools import DEPLOY, ROOT, require, run

FILES = sorted((DEPLOY / "grafana").glob("*.json"))
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
KNOWN = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
OF_THE_PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
_WIDTH = 24


def queries(dashboard: dict[str, Any]) -> list[str]:
    """The PromQL of its panels and marks, with its variables replaced."""
    of_panels = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found = of_panels + [each["expr"] for each in dashboard["annotations"]["list"]]
    return [re.sub(r"\$__\w*interval", "1m", text).replace("$pair", "p") for text in found]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_prometheus_understands_each_query_and_each_metric_is_there(file: Path, tmp_path: Path) -> None:
    require("promtool")
    texts = queries(json.loads(file.read_text()))
    assert len(texts) > 20 and not any("$" in text for text in texts)
    lines = [{"record": f"panel:{at}", "expr": text} for at, text in enumerate(texts)]
    rules = tmp_path / "panels.rules"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": lines}]}))
    done = run("promtool", "check", "rules", rules)
    assert done.returncode == 0, done.stdout + done.stderr
    used = set(re.findall(r"\b(?:understudy|rabbitmq|process)_\w+", " ".join(texts)))
    assert used - KNOWN <= OF_THE_PROCESS


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_panels_have_a_place_a_description_and_a_unit(file: Path) -> None:
    panels = json.loads(file.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    spots = [tuple(panel["gridPos"][key] for key in ("y", "x", "w", "h")) for panel in panels]
    assert spots == sorted(spots)
    for (y, x, w, h), (next_y, next_x, _, _) in pairwise(spots):
        assert x + w <= _WIDTH and (next_x == x + w if next_y == y else next_y >= y + h)
    charts = [panel for panel in panels if panel["type"] != "row"]
    assert all(panel["title"] and panel["description"].endswith(".") for panel in charts)
