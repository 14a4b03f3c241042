"""deploy/prometheus: Prometheus takes the files, and alerts tell of what the pair's metrics say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.tools import DEPLOY, ROOT, fill, require, run

FILE, RULES = "prometheus/prometheus.yml", DEPLOY / "prometheus" / "understudy.rules"
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
A, B = '{instance="a",job="understudy",pair="p"}', '{instance="b",job="understudy",pair="p"}'
AGENT = '{exchange="x",instance="a",pair="p",upstream="hub"}'
WHOLE = {
    f"up{A}": "1", f"up{B}": "1", f"understudy_serving{A}": "1", f"understudy_serving{B}": "0",
    f"understudy_members_in_sync{A}": "2", f"understudy_members_in_sync{B}": "2",
}  # fmt: skip


def test_prometheus_takes_the_files(tmp_path: Path) -> None:
    require("promtool")
    (tmp_path / "prometheus.yml").write_text(fill(FILE))
    (tmp_path / RULES.name).write_text(RULES.read_text())
    done = run("promtool", "check", "config", tmp_path / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / RULES.name).write_text(RULES.read_text().replace("sum by (pair)", "sum by pair"))
    assert run("promtool", "check", "config", tmp_path / "prometheus.yml").returncode != 0


@pytest.mark.parametrize(
    ("series", "alert"),
    [
        ({}, None),
        ({f"understudy_serving{A}": "0"}, "UnderstudyNotOnePrimary"),
        ({f"understudy_serving{B}": "1"}, "UnderstudyNotOnePrimary"),
        ({f"up{B}": "0"}, "UnderstudyNodeDown"),
        ({f"understudy_members_in_sync{A}": "1"}, "UnderstudyNoBackupInSync"),
        ({f"understudy_members_in_sync{B}": "1"}, None),
        ({f"understudy_withheld{A}": "1"}, "UnderstudyOutputFenced"),
        ({f"understudy_authority_ok{A}": "0"}, "UnderstudyAuthorityStuck"),
        ({'understudy_alarm{alarm="disk",instance="a",pair="p"}': "1"}, "UnderstudyPublishersPaused"),
        ({f"understudy_federation_running{AGENT}": "0"}, "UnderstudyFederationStopped"),
        (
            {
                f"understudy_federation_running{AGENT}": "0",
                f"understudy_serving{A}": "0",
                f"understudy_serving{B}": "1",
            },
            None,
        ),
        (
            {f"rabbitmq_process_open_fds{A}": "950", f"rabbitmq_process_max_fds{A}": "1000"},
            "UnderstudyFilesShort",
        ),
    ],
)
def test_an_alert_tells_of_each_fault_and_of_no_other(
    tmp_path: Path, series: dict[str, str], alert: str | None
) -> None:
    require("promtool")
    names = re.findall(r"alert: (\w+)", RULES.read_text())
    lasting = [{"series": name, "values": f"{value}x40"} for name, value in (WHOLE | series).items()]
    expected = [{"eval_time": "4m", "alertname": name} for name in names if name != alert]
    fired = {"tests": [{"interval": "15s", "input_series": lasting, "alert_rule_test": expected}]}
    test = tmp_path / "test.yml"
    test.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "5s", **fired}))
    done = run("promtool", "test", "rules", test)
    assert done.returncode == 0, done.stdout + done.stderr
    if alert is not None:
        fired["tests"][0]["alert_rule_test"] = [{"eval_time": "4m", "alertname": alert}]
        test.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "5s", **fired}))
        assert run("promtool", "test", "rules", test).returncode != 0, f"{alert} is silent"


def test_rules_are_those_of_the_page_and_of_metrics_that_are_there() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules] == re.findall(r"^\| `(Understudy\w+)` \|", PAGE, re.MULTILINE)
    metrics = set(re.findall(r"^\| `((?:understudy|rabbitmq)_\w+)` \|", PAGE, re.MULTILINE))
    used = {name for rule in rules for name in re.findall(r"(?:understudy|rabbitmq)_\w+", rule["expr"])}
    assert used <= metrics and len(used) > 8
    assert all({"summary", "action"} == set(rule["annotations"]) for rule in rules)
