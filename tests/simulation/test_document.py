"""docs/SIMULATION.md says what there is: each invariant with its checkers, and nothing that has gone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.simulation import __main__ as command
from tests.simulation.checkers import PENDING
from tests.simulation.report import ROOT

PAGE = (ROOT / "docs" / "SIMULATION.md").read_text()
ROWS = {int(n): how for n, how in re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", PAGE, re.MULTILINE)}
CHECKERS = ROOT / "tests" / "simulation" / "checkers"


def checkers() -> dict[str, set[int]]:
    """Every class and function of the checkers with numbers in its name, and these numbers."""
    found = {}
    for path in CHECKERS.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and re.search(r"\d", node.name):
                found[node.name] = {int(number) for number in re.findall(r"\d+", node.name)}
    return found


def test_each_invariant_has_a_row_and_each_row_its_checker() -> None:
    assert sorted(ROWS) == list(range(1, 31))
    known = checkers()
    for number, how in ROWS.items():
        named = set(re.findall(r"`(\w+)`", how)) & known.keys()
        if "*pending*" in how:
            assert str(number) in PENDING
        else:
            assert any(number in known[name] for name in named), number
    assert not [what for what in PENDING if what.isdigit() and "*pending*" not in ROWS[int(what)]]


def test_no_checker_is_left_out() -> None:
    for name, numbers in checkers().items():
        for number in numbers:
            assert f"`{name}`" in ROWS[number], f"{name} looks into {number}, and the page does not say so"


def test_what_the_page_names_exists() -> None:
    known = {option for action in command._parser()._actions for option in action.option_strings}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= known | {"--only"}
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
    simulation = ROOT / "tests" / "simulation"
    for name in re.findall(r"`(\w+\.py)`", PAGE):
        assert list(simulation.rglob(name)), name
    for folder in re.findall(r"`(tests/[\w/]+)`", PAGE):
        assert Path(ROOT / folder).is_dir(), folder
