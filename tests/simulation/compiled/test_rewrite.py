from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.compiled import product
from scripts.compiled.build import file_of
from scripts.compiled.rewrite import rewrite
from tests.simulation.compiled.__main__ import build, copy_rewritten, modules

RUN = """
import json, sys
from tests.simulation.harness.runner import run_chunk
for one in run_chunk(list(range(1, 1 + int(sys.argv[1])))):
    counts = sorted(one.counts.items())
    coverage = sorted([*entry, many] for entry, many in one.coverage.items())
    print(json.dumps([one.trace_hash, one.events, one.virtual_seconds, one.failure, counts, coverage]))
"""
ROOT = Path(__file__).parents[3]


def outcomes(tree: Path, seeds: int) -> list[Any]:
    command = [sys.executable, "-c", RUN, str(seeds)]
    ran = subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE, timeout=600)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def rewritten(source: str, **hooks: set[str]) -> dict[str, Any]:
    """What the module has that is made of it."""
    kinds: dict[str, set[str]] = {"methods": set(), "attributes": set(), "on_objects": set()} | hooks
    space: dict[str, Any] = {"__name__": __name__}
    exec(rewrite({"m": source}, **kinds)["m"], space)
    return space


def test_a_method_asks_its_hook_first() -> None:
    source = "class A:\n    def double(self, a: int, *, b: int = 1) -> int:\n        return 2 * a * b\n"
    space = rewritten(source, methods={"m.hook_A_double"})
    a = space["A"]()
    assert a.double(3, b=2) == 12
    space["hook_A_double"] = lambda self, a, b: (self, a, b)
    assert a.double(3, b=2) == (a, 3, 2)
    assert a.double__plain(3) == 6


def test_a_method_of_one_object_is_replaced_there_only() -> None:
    source = "class A:\n    def name(self) -> str:\n        return 'a'\n"
    one, other = (kind() for kind in [rewritten(source, on_objects={"m.hook_A_name"})["A"]] * 2)
    one.hook_name = lambda: "b"
    assert (one.name(), other.name()) == ("b", "a")


def test_each_assignment_of_an_attribute_is_told() -> None:
    space = rewritten(
        "class A:\n    def __init__(self) -> None:\n        self.x = 1\n", attributes={"m.hook_A_x"}
    )
    heard: list[Any] = []
    space["hook_A_x"] = lambda before, after: heard.append((before, after))
    a = space["A"]()
    a.x = 2
    assert heard == [(None, 1), (1, 2)]
    assert a.x == 2


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"nothing there to hook: m\.hook_B_gone"):
        rewritten("class A:\n    pass\n", methods={"m.hook_B_gone"})
    with pytest.raises(ValueError, match=r"A\.gone is no plain method"):
        rewritten("class A:\n    pass\n", methods={"m.hook_A_gone"})
    with pytest.raises(ValueError, match="dataclass A: kw_only"):
        rewritten("from dataclasses import dataclass\n@dataclass(kw_only=True)\nclass A:\n    x: int\n")


def test_a_dataclass_is_what_it_was() -> None:
    source = """
from __future__ import annotations
from dataclasses import dataclass, field

@dataclass(slots=True, frozen=True)
class A:
    x: object
    y: list[int] = field(default_factory=list, hash=False)

@dataclass(slots=True, frozen=True)
class B(A):
    z: str = "z"

    def __post_init__(self) -> None:
        if not self.z:
            raise ValueError("empty")

@dataclass(slots=True)
class C:
    pass
"""
    space = rewritten(source)
    b = space["B"](1)
    assert repr(b) == "B(x=1, y=[], z='z')"
    assert b == space["B"](1, [], "z") != space["B"](2)
    assert hash(b) == hash(dataclasses.replace(b, y=[3]))
    assert b.y is not space["B"](1).y
    assert space["B"].__match_args__ == ("x", "y", "z")
    with pytest.raises(ValueError, match="empty"):
        space["B"](1, z="")
    with pytest.raises(TypeError, match="unhashable"):
        hash(space["C"]())


def test_exceptions_and_numbers_are_not_native() -> None:
    source = "class A(ValueError): pass\nclass B(A): pass\nclass N(int): pass\nclass P: pass\n"
    text = rewrite({"m": source}, set(), set(), set())["m"]
    assert text.count("@_mypyc_attr(native_class=False)") == 3
    assert text.rindex("native_class=False") < text.index("class N") < text.index("class P")
    assert text.index("allow_interpreted_subclasses=True") > text.index("class N")


def test_lines_keep_their_numbers() -> None:
    """So tracebacks of compiled modules name the right lines."""
    sources = {name: (ROOT / file_of(name)).read_text() for name in product.modules(ROOT)}
    rewritten = rewrite(sources, set(), set(), set())
    for name, source in sources.items():
        lines = dict(enumerate(rewritten[name].split("\n")))
        for number, line in enumerate(source.split("\n")):
            if line.lstrip().startswith(("return", "raise", "if ", "def ", "class ")):
                assert lines[number].startswith(line), f"{name}, line {number + 1}"


def test_what_is_left_interpreted_is_there() -> None:
    assert "tests.simulation.harness.world" in modules(ROOT)


@pytest.mark.system
def test_what_was_rewritten_runs_the_same(tmp_path: Path) -> None:
    """Interpreted. But for the ledgers: what there is to say is read from the source, which has hooks."""
    copy_rewritten(tmp_path)
    seeds = 3
    assert [one[:-1] for one in outcomes(tmp_path, seeds)] == [one[:-1] for one in outcomes(ROOT, seeds)]


@pytest.mark.soak
def test_what_is_compiled_runs_the_same(tmp_path: Path) -> None:
    """Minutes of compiling."""
    build(tmp_path, jobs=2)
    seeds = 100
    assert outcomes(tmp_path, seeds) == outcomes(ROOT, seeds)
