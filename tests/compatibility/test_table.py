"""docs/reference/compatibility.md and the tests agree: each row names a test, each test has a row."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "docs" / "reference" / "compatibility.md"
ANSWERS = ("same", "differs", "not there", "more")


def rows() -> list[list[str]]:
    """Cells of the rows of all tables that have a column `test`."""
    found, columns = [], 0
    for line in PAPER.read_text().splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")]
        if not line.startswith("|"):
            columns = 0
        elif cells[-1] == "test":
            columns = len(cells)
        elif columns and set(line) - set("|-: "):
            assert len(cells) == columns, f"{len(cells)} cells: {line}"
            found.append(cells)
    return found


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def named(row: list[str]) -> list[str]:
    """Node ids in the last cell."""
    return [part.strip(" `") for part in row[-1].split(",")]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_row_answers_and_names_a_test(row: list[str]) -> None:
    assert row[2].startswith(ANSWERS), row[2]
    for node in named(row):
        path, _, function = node.partition("::")
        assert (ROOT / path).is_file(), node
        assert function in names_in(ROOT / path), node


def test_each_test_has_a_row() -> None:
    nodes = {node for row in rows() for node in named(row)}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.name != Path(__file__).name:
            for name in sorted(names_in(path)):
                assert f"tests/compatibility/{path.name}::{name}" in nodes


def test_there_are_rows() -> None:
    assert len(rows()) > 50
    assert len({row[0] for row in rows()}) == len(rows()), "a feature is there twice"
