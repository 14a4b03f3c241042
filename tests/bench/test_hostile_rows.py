"""The rows of `make bench-hostile`: each attack has one, and the docs list them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

from bench.hostile import attacks
from bench.hostile.rows import ROWS

ROOT = Path(__file__).parents[2]
NAMES = [row.name for row in ROWS]


def test_no_two_rows_have_a_name_or_an_attack_in_common() -> None:
    assert len(set(NAMES)) == len({row.attack for row in ROWS}) == len(ROWS)


def test_each_attack_and_each_preparation_is_of_a_row() -> None:
    """Those are the public functions that take a target, and nothing else."""
    modules = [
        importlib.import_module(f"{attacks.__name__}.{found.name}")
        for found in pkgutil.iter_modules(attacks.__path__)
    ]
    there = {
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
        if inspect.get_annotations(function) == {"target": "Target", "return": "None"}
    }
    assert there == {row.attack for row in ROWS} | {row.prepare for row in ROWS if row.prepare is not None}


def test_the_bench_lists_its_rows() -> None:
    paper = (ROOT / "bench/README.md").read_text()
    table = paper.partition("| row | the attack |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE) == NAMES


def test_what_was_tried_names_all_rows() -> None:
    paper = (ROOT / "docs/how-to/security.md").read_text()
    table = paper.partition("| measured by |\n")[2].partition("\n\n")[0]
    cells = [line.rpartition("|")[0].rpartition("|")[2] for line in table.splitlines()]
    assert set(re.findall(r"`([a-z0-9-]+)`", "".join(cells))) == set(NAMES)
