"""No module imports itself by way of others. Imports for types, and those inside functions, count as well.

import-linter cannot hold this: its contracts leave out what is imported for types only.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

DIVIDED = ("broker.amqp091", "broker.model", "spark", "spark.reconcile", "understudy", "understudy.shared")
"""Packages whose folders and modules, each folder taken as one, import no circle either."""
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


def rooms_of(graph: Mapping[str, set[str]], package: str) -> dict[str, set[str]]:
    """Which of the folders and modules right below `package` each one imports."""
    depth = package.count(".") + 2

    def room(module: str) -> str:
        return ".".join(module.split(".")[:depth]) if module.startswith(f"{package}.") else ""

    rooms: dict[str, set[str]] = {}
    for module, wanted in graph.items():
        if here := room(module):
            others = {room(name) for name in wanted} - {here, ""}
            rooms.setdefault(here, set()).update(others)
            for other in others:
                rooms.setdefault(other, set())
    return rooms


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


@pytest.mark.parametrize("package", DIVIDED)
def test_rooms_run_one_way(package: str) -> None:
    rooms = rooms_of(imports_of(modules_of(ROOT, package.partition(".")[0])), package)
    assert len(rooms) > 1
    circle = circle_in(rooms)
    assert not circle, "circle of rooms: " + " -> ".join(circle)


def test_rooms_of_a_package_are_its_folders_and_its_own_modules() -> None:
    graph = {"p.q.a": {"p.q.r.b", "p.z"}, "p.q.r.b": {"p.q.r.c", "p.q.s.d"}, "p.z": {"p.q.a"}}
    assert rooms_of(graph, "p.q") == {"p.q.a": {"p.q.r"}, "p.q.r": {"p.q.s"}, "p.q.s": set()}


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
