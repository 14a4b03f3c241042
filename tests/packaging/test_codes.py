"""Codes of refusals, errors and log events: unique, used, and said with the values of their sentences."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from types import ModuleType

from understudy.shared.codes import Code

ROOT = Path(__file__).parents[2]
REFERENCE = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
CATALOGUES: list[ModuleType] = list(REFERENCE["CATALOGUES"].values())
MODULES = {module.__name__: module for module in CATALOGUES}
SOURCES = [path for top in ("understudy", "broker", "ha") for path in sorted((ROOT / top).rglob("*.py"))]
LEVELS = ("info", "warning", "error", "exception", "critical")


def _uses(path: Path) -> Iterator[tuple[str, Code, ast.Call | None]]:
    """Each `codes.NAME` in a file, with the call of `say` that it is in."""
    tree = ast.parse(path.read_text())
    catalogue = None
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "codes" for alias in node.names):
            catalogue = MODULES[f"{node.module}.codes"]
    if catalogue is None:
        return
    said: dict[int, ast.Call] = {
        id(node.func.value): node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "say"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "codes":
            yield node.attr, getattr(catalogue, node.attr), said.get(id(node))


def test_each_code_is_unique_and_of_words_with_hyphens() -> None:
    names = [code.name for codes in REFERENCE["entries"]().values() for code in codes]
    assert len(names) > 40
    assert sorted(set(names)) == sorted(names)
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+){1,4}", name)] == []


def test_every_catalogue_is_on_the_page() -> None:
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in SOURCES if path.name == "codes.py"
    }
    assert found - {"understudy.shared.codes"} == set(MODULES)


def test_each_code_is_used_with_the_values_of_its_sentence() -> None:
    """A field that is missing would raise KeyError in place of the error that is to be told."""
    used: set[str] = set()
    for path in SOURCES:
        for name, code, call in _uses(path):
            used.add(code.name)
            if call is not None:
                fields = {field for _, field, _, _ in Formatter().parse(code.sentence) if field}
                assert {keyword.arg for keyword in call.keywords} == fields, f"{path}:{call.lineno}: {name}"
    assert {code.name for codes in REFERENCE["entries"]().values() for code in codes} == used


def test_a_code_whose_sentence_is_nothing_but_fields_has_an_example() -> None:
    for codes in REFERENCE["entries"]().values():
        for code in codes:
            fixed = "".join(text for text, *_ in Formatter().parse(code.sentence))
            assert bool(re.search(r"\w", fixed)) is not bool(code.example), code.name


def test_every_event_that_is_logged_has_a_code() -> None:
    """Where the text is made in the call. What only passes a text on gets it from such a call."""
    bare = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS
        if isinstance(node.func.value, ast.Name) and node.func.value.id.lower().lstrip("_").startswith("log")
        if node.args and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
    ]
    assert bare == []
