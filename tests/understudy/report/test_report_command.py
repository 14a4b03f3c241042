"""`understudy report`: an error is one line with the right exit code; a valid report is printed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import spark.insight.survey
from tests.understudy.report.stored import stored
from understudy.cli.main import cli


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["report", *map(str, arguments)])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The surveyed periods. Each is answered with the stored result."""
    periods: list[tuple[int, int]] = []

    def survey_folders(_folders: Any, since_us: int, until_us: int, **_: Any) -> dict[str, Any]:
        periods.append((since_us, until_us))
        return stored("days")

    monkeypatch.setattr(spark.insight.survey, "survey_folders", survey_folders)
    return periods


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--since", "soon"], "'soon' is neither like 7d or 12h nor like 2026-01-31T18:00"),
        (["--since", "9999999d"], "neither like"),
        (["--since", "1d", "--until", "2d"], "--since is not before --until"),
        (["--format", "xml"], "xml"),
        (["--output", "/no/such/folder/x.html"], "no such folder for the report"),
    ],
)
def test_wrong_usage_is_three_in_one_line(tmp_path: Path, options: list[str], words: str) -> None:
    done = call(tmp_path, *options)
    assert (done.exit_code, done.stdout) == (3, "")
    assert done.stderr.startswith("understudy report: ") and words in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_folder_and_no_ledger_are_two(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    for folder, words in ((tmp_path / "absent", "no such folder"), (tmp_path, "no ledger below")):
        done = call(folder)
        assert done.exit_code == 2 and words in done.stderr and done.stderr.count("\n") == 1


def test_periods_are_ago_or_of_the_calendar(tmp_path: Path, asked: list[tuple[int, int]]) -> None:
    now = datetime.now(UTC).timestamp() * 1e6
    assert call(tmp_path, "--since", "2d", "--until", "12h").exit_code == 0
    assert call(tmp_path, "--since", "2026-01-31", "--until", "2026-02-01T01:00+01:00").exit_code == 0
    assert call(tmp_path).exit_code == 0
    (since, until), january, (week, end) = asked
    hour = 3600e6
    assert abs(since - (now - 48 * hour)) < hour and abs(until - (now - 12 * hour)) < hour
    begin = int(datetime(2026, 1, 31, tzinfo=UTC).timestamp() * 1e6)
    assert january == (begin, begin + 24 * int(hour))
    assert abs(week - (now - 7 * 24 * hour)) < hour and abs(end - now) < hour


def test_it_prints_and_writes(tmp_path: Path, asked: list[tuple[int, int]]) -> None:
    answer = stored("days")
    page = tmp_path / "days.html"
    table = call(tmp_path, "--output", page)
    assert table.exit_code == 0, table.stderr
    for words in ("end to end", "replication", "failovers", "consumers", answer["consumers"][0]["consumer"]):
        assert words in table.stdout
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "days.json").read_text()) == answer
    printed = call(tmp_path, "--format", "json")
    assert json.loads(printed.stdout) == answer
    (tmp_path / "locked.json").mkdir()
    unwritable = call(tmp_path, "--output", tmp_path / "locked.html")
    assert unwritable.exit_code == 3 and "cannot write" in unwritable.stderr
