"""`understudy reconcile` from outside: exit status, one-line errors, table, JSON, report."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from understudy.cli.reconcile import reconcile_command

if TYPE_CHECKING:
    from tests.spark.reconcile.conftest import Judged


@pytest.fixture
def run() -> Any:
    return lambda *arguments: CliRunner().invoke(reconcile_command, [str(a) for a in arguments])


def test_a_wrong_option_is_one_line(run: Any, tmp_path: Path) -> None:
    for arguments in ([], [tmp_path, "--format", "xml"], [tmp_path, "--colour"]):
        done = run(*arguments)
        assert (done.exit_code, done.stderr.count("\n")) == (3, 1), done.stderr


def test_a_missing_folder_has_no_ledger(run: Any, tmp_path: Path) -> None:
    done = run(tmp_path / "gone")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1) and "no such folder" in done.stderr


def test_without_pyspark_it_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; "
        "import understudy.cli.reconcile as r; r.reconcile_command()"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.strip().endswith("pip install 'understudy-amqp[spark]'")
    assert done.stderr.count("\n") == 1


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from spark.session import SparkUnavailable, find_java

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(SparkUnavailable, match="Java 17 or 21") as caught:
        find_java(roots=(tmp_path,))
    assert "\n" not in str(caught.value)


def test_no_ledger_is_not_provable(run: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "notes.txt").write_text("nothing")
    done = run(tmp_path)
    assert done.exit_code == 2 and "no *.ledger.jsonl below" in done.stderr


class Tags(HTMLParser):
    """Checks that all tags are closed, and collects the links that a browser would fetch."""

    void = frozenset({"meta", "br", "line", "rect", "polyline"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        links = [value or "" for name, value in attrs if name in ("src", "href")]
        self.fetched += [link for link in links if not link.startswith("#")]
        if tag not in self.void or tag in ("line", "rect", "polyline"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return None

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_table_json_and_report_of_one_run(
    run: Any, clean_failover: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import spark.reconcile.job

    ledgers, answer = clean_failover.folder, deepcopy(clean_failover.answer)
    answer["queues"][0]["name"] = "<b>orders</b>"
    monkeypatch.setattr(spark.reconcile.job, "reconcile_folders", lambda *_, **__: answer)
    table = run(ledgers, "--output", tmp_path / "run.html")
    assert table.exit_code == 0
    assert "PROVEN" in table.stdout and "outage" in table.stdout
    printed = run(ledgers, "--format", "json")
    assert json.loads(printed.stdout) == answer
    page = (tmp_path / "run.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and tags.fetched == []
    assert "http" not in page and "<b>orders" not in page and "&lt;b&gt;orders" in page
    assert page.count('class="outage"') >= 2, "the outage is in the picture and in its key"
    unwritable = run(ledgers, "--format", "json", "--output", "/proc/run.html")
    assert (unwritable.exit_code, json.loads(unwritable.stdout)) == (3, answer), "the verdict is not lost"
    assert "cannot write /proc/run.html" in unwritable.stderr and unwritable.stderr.count("\n") == 1
    for verdict, status in (("violated", 1), ("not provable", 2)):
        answer["verdict"] = verdict
        assert run(ledgers).exit_code == status
