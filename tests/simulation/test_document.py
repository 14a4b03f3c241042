"""docs/contributing/simulation.md names each invariant with its checkers, and nothing that has gone."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from tests.simulation import __main__ as command
from tests.simulation.checkers import PENDING
from tests.simulation.harness.runner import run_plan
from tests.simulation.mutants import MUTANTS
from tests.simulation.nets import __main__ as nets_command
from tests.simulation.story import plan_file
from tests.simulation.story.picture import svg
from tests.simulation.story.plan_file import PlanFile
from tests.simulation.story.report import ROOT, Report, commit
from tests.simulation.story.story import tell

DOCUMENT = ROOT / "docs" / "contributing" / "simulation.md"
PAGE = DOCUMENT.read_text()
EXAMPLE = ROOT / "docs" / "simulation-example.json"
PICTURE = EXAMPLE.with_suffix(".svg")
SHOWN = re.compile(r"(?<=^```\n)seed \d+ failed at .*?(?=^```$)", re.MULTILINE | re.DOTALL)
"""The example on the page."""
COMMIT = re.compile(r"^  commit: .*$", re.MULTILINE)
ROWS = {int(n): how for n, how in re.findall(r"^\| (\d+) \| .+ \| (.+) \|$", PAGE, re.MULTILINE)}
CHECKERS = ROOT / "tests" / "simulation" / "checkers"


def checkers() -> dict[str, set[int]]:
    """Every class and function of the checkers with numbers in its name, and these numbers."""
    found = {}
    for path in CHECKERS.rglob("*.py"):
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


def test_the_example_is_what_its_plan_comes_to() -> None:
    """Set REWRITE_TRANSCRIPTS=1 to write down what it comes to now: text, picture and hash of the trace; then
    read the page. Where the plan can be read or fails no more, that of any other seed that the same mutant
    fails will do (`simulation-failures/seed-N.json`)."""
    known = plan_file.read(EXAMPLE)
    mutant = next(mutant for mutant in MUTANTS if mutant.name == known.mutant)
    with mutant.applied():
        outcome, story = run_plan(known.plan), tell(known.plan)
    assert outcome.failure is not None
    told = Report(outcome, known.plan, outcome, story, "", mutant.name, EXAMPLE.relative_to(ROOT))
    text, picture = "\n".join([*told.head(None), *told.body(), ""]), svg(story)
    text = COMMIT.sub("  commit: ...", text)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        PlanFile(known.plan, outcome.failure, outcome.trace_hash, commit(), mutant.name).write(EXAMPLE)
        DOCUMENT.write_text(SHOWN.sub(lambda _: text, PAGE, count=1))
        PICTURE.write_text(picture)
        return
    assert SHOWN.findall(PAGE) == [text]
    assert PICTURE.read_text() == picture


def test_what_the_page_names_exists() -> None:
    parsers = command._parser(), nets_command._parser()
    known = {option for each in parsers for action in each._actions for option in action.option_strings}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= known | {"--only"}
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (DOCUMENT.parent / target).exists(), target
    simulation = ROOT / "tests" / "simulation"
    for name in re.findall(r"`(\w+\.py)`", PAGE):
        assert list(simulation.rglob(name)), name
    for path in re.findall(r"`((?:tests|scripts)/[\w/.]+)`", PAGE):
        assert Path(ROOT / path).exists(), path
