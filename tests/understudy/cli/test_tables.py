"""What commands print for people: nothing of Python's, nothing lost in a narrow terminal, and names as they
are, which others have chosen."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from understudy.cli.main import cli, run
from understudy.cli.node import _text, rows
from understudy.cli.reconcile import print_result

NASTY = "[/x] a\nb \x1b[2J[red]"
SHOWN = r"[/x] a\nb \x1b[2J[red]"
STATUS: dict[str, Any] = {
    "name": "a", "status": "active", "epoch": 65537, "link": "up", "promotable": True, "reason": "serving",
    "members": [
        {"name": "broker-a.example.org", "address": "198.51.100.101:5673", "status": "active", "epoch": 65537,
         "connected": True, "in_sync": True},
        {"name": "broker-b.example.org", "address": "198.51.100.102:5673", "status": "ready", "epoch": 65537,
         "connected": True, "in_sync": True, "lag": 12345, "lag_bytes": 1234567,
         "queues_left": 21},
    ],
    "queue_list": [{"name": NASTY, "vhost": "/", "ready": 3}],
    "dequeues": {"waiting": 0, "longest_lag": 0.25, "left": {"acked": 1200, "rejected": 0}},
    "authority": {"kind": "manual", "ok": True, "code": "", "reason": ""},
    "ledger": {"path": "a/ledger", "lost": 0, "failing": False, "last_write": 1795361493.686581},
    "events": {}, "owner": NASTY,
}  # fmt: skip


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.cli.node.ask", lambda *_, **__: {"ok": True, "status": STATUS})


def _lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert run(cli.main, list(arguments)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return [" ".join(line.split()) for line in out.splitlines()]


@pytest.mark.usefixtures("answer")
def test_query_prints_no_dicts_of_python(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _lines(capsys, "query")
    assert not [line for line in lines if "{" in line or "'" in line]
    for line in (
        "dequeues waiting 0",
        "dequeues longest lag 0.25",
        "dequeues left acked 1,200, rejected 0",
        "authority ok yes",
        "ledger last write 2026-11-22 15:31:33 UTC",
        f"owner {SHOWN}",
    ):
        assert line in lines


@pytest.mark.usefixtures("answer")
def test_query_in_json_is_the_nodes_own_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(cli.main, ["query", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == STATUS


def test_query_asks_until_it_has_all_queues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pieces = {0: (["a", "b"], 2), 2: (["b", "c"], 4), 4: ([], None)}

    def answer(*asked: Any, **_: Any) -> dict[str, Any]:
        names, more = pieces[(asked[2] or {"from": 0})["from"]]
        queues = [{"name": name, "vhost": "/"} for name in names]
        return {"ok": True, "status": STATUS | {"queue_list": queues, "more": more}}

    monkeypatch.setattr("understudy.cli.node.ask", answer)
    assert run(cli.main, ["query", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [queue["name"] for queue in found["queue_list"]] == ["a", "b", "c"] and "more" not in found


@pytest.mark.parametrize("width", [60, 80, 110])
def test_a_narrow_terminal_loses_no_part_of_a_table(width: int) -> None:
    out = io.StringIO()
    Console(file=out, width=width).print(rows("members", STATUS["members"], plain=False))
    body = out.getvalue().partition("├")[2].splitlines()
    cells = [line.strip("│").split("│") for line in body if line.startswith("│")]
    columns = ["".join(cell.strip() for cell in column) for column in zip(*cells, strict=True)]
    for key in ("name", "address", "status"):
        assert "".join(member[key] for member in STATUS["members"]) in columns
    assert "-1,234,567" in columns


@pytest.mark.usefixtures("answer")
def test_status_shows_how_far_a_backup_is_and_of_the_node_itself_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where nobody sits at a terminal, it is text without lines or colours, one line a member."""
    head, first, second = _lines(capsys, "status")[3:6]
    assert head.endswith("in sync lag queues left") and "─" not in head
    assert first.endswith("yes - -") and second.endswith("yes 12,345 21")


def test_status_of_a_pair_fits_eighty_columns() -> None:
    members = [
        {"name": name, "address": "198.51.100.101:5673", "status": "catch-up", "in_sync": False,
         "lag": 123456, "queues_left": 21} for name in ("node-a", "node-b")
    ]  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=200).print(rows("members", members, plain=False))
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_names_are_shown_as_they_are_and_never_act_on_the_terminal(tmp_path: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=200)
    console.print(rows("queues", [{"name": NASTY}]))
    answer = json.loads((Path(__file__).parents[1] / "report/results/proven.json").read_text())
    answer["queues"][0]["name"] = NASTY
    answer["findings"][0]["sentence"] = f"lost: {NASTY}"
    answer["missing"] = [NASTY]
    hop = {"name": NASTY, "from": "hub", "to": None, "verdict": "not provable", "queue": ""}
    answer["hops"] = [hop | {"transferred": 12, "arrived": 0, "unplaced": 0}]
    print_result(answer, console)
    assert out.getvalue().count(SHOWN) == 5
    assert "\x1b" not in out.getvalue()


def test_numbers_that_are_names_have_no_separators_and_flags_are_words() -> None:
    assert (_text(123456, "epoch"), _text(123456, "lag")) == ("123456", "123,456")
    assert (_text(True, "durable"), _text([9000, 1], "applied")) == ("yes", "9000, 1")
