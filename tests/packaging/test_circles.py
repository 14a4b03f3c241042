"""No module imports itself by way of others. Imports for types, and those inside functions, count as well.

import-linter cannot hold this: its contracts leave out what is imported for types only.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("understudy", "broker", "ha", "spark", "resource_agent")


def modules_of(root: Path, package: str) -> dict[str, str]:
    """Source by dotted name."""
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return found


def imports_of(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Which of the modules each one imports. The packages above a module are not counted."""
    graph = {}
    for name, source in modules.items():
        wanted = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{name} has a relative import"
                for alias in node.names:
                    below = f"{node.module}.{alias.name}"
                    wanted.add(below if below in modules else str(node.module))
        graph[name] = wanted & modules.keys() - {name}
    return graph


def circle_in(graph: Mapping[str, set[str]]) -> list[str]:
    """A shortest circle, first module again at the end; empty where there is none."""
    shortest: list[str] = []
    for start in sorted(graph):
        paths, seen = [[start]], {start}
        while paths and not (shortest and len(paths[0]) + 1 >= len(shortest)):
            path = paths.pop(0)
            if start in graph[path[-1]]:
                shortest = [*path, start]
                break
            for after in sorted(graph[path[-1]] - seen):
                seen.add(after)
                paths.append([*path, after])
    return shortest


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circles(package: str) -> None:
    circle = circle_in(imports_of(modules_of(ROOT, package)))
    assert not circle, "circle of imports: " + " -> ".join(circle)


def test_a_circle_by_a_type_is_found_and_named() -> None:
    sources = {
        "p": "",
        "p.a": "import p.b",
        "p.b": "def work() -> None:\n    from p import c",
        "p.c": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import A",
        "p.d": "from p import a",
    }
    assert circle_in(imports_of(sources)) == ["p.a", "p.b", "p.c", "p.a"]
    sources["p.c"] = ""
    assert circle_in(imports_of(sources)) == []
