"""The sentences that the product can say, read from its source: which kinds there are, and of which one is.

A sentence is a template, `f"{backup.name} stalls{held}"`; its kind is its code, if it has one, else the
template with dots for each hole. Used by the ledger of coverage: a sentence added to the core is one that a
seed must bring about.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Formatter
from types import ModuleType

from ha.core import codes

HOLE = "…"
UNKNOWN = "(a sentence that the source does not have)"


@dataclass(slots=True, frozen=True)
class Kind:
    """`text` for people; `pattern` matches whatever the template can become; `fixed`: how much of it is no
    hole."""

    text: str
    pattern: re.Pattern[str]
    fixed: int


class Sentences:
    """The kinds that one set of calls can be given."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        unique = {kind.text: kind for kind in kinds}
        # The longest fixed text first: a template that is all hole would swallow the others.
        self._kinds = sorted(unique.values(), key=lambda k: (-k.fixed, k.text))
        self._known: dict[str, str] = {}

    def __add__(self, other: Sentences) -> Sentences:
        return Sentences([*self._kinds, *other._kinds])

    @property
    def texts(self) -> list[str]:
        return sorted(kind.text for kind in self._kinds)

    def kind_of(self, sentence: str) -> str:
        """The kind of a sentence that was said."""
        found = self._known.get(sentence)
        if found is None:
            found = next((k.text for k in self._kinds if k.pattern.fullmatch(sentence)), UNKNOWN)
            if len(self._known) < 10_000:
                self._known[sentence] = found
        return found


def arguments_of(
    modules: Iterable[ModuleType], calls: frozenset[str], at: int, *, coded: bool = False
) -> Sentences:
    """Every sentence that is argument number `at` of a call to one of `calls`; a method by its last name.
    `coded`: only those with a code, which are refusals."""
    return Sentences(kind for module in modules for kind in _arguments(_parsed(module), calls, at, coded))


def returns_of(module: ModuleType, function: str) -> Sentences:
    """Every sentence that a function of that name returns."""
    kinds: list[Kind] = []
    for node in ast.walk(_parsed(module)):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    kinds += _kinds(inner.value, node)
    return Sentences(kinds)


def codes_of(modules: Iterable[ModuleType], catalogue: ModuleType) -> list[str]:
    """The names of the codes of `catalogue` that these modules use."""
    used = {
        getattr(catalogue, node.attr).name
        for module in modules
        for node in ast.walk(_parsed(module))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "codes"
    }
    return sorted(used)


@cache
def _parsed(module: ModuleType) -> ast.Module:
    if module.__file__ is None:
        raise ValueError(f"{module.__name__} has no source")
    # Not the file itself, which is machine code where the simulation is compiled.
    return ast.parse(Path(module.__file__).with_name(f"{module.__name__.rpartition('.')[2]}.py").read_text())


def _arguments(tree: ast.Module, calls: frozenset[str], at: int, coded: bool) -> Iterator[Kind]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or _name(node.func) not in calls or len(node.args) <= at:
                continue
            if not coded or isinstance(node.args[at], ast.Call):
                yield from _kinds(node.args[at], function)


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
    return ""


def _kind(texts: list[str | None], code: str = "") -> Iterator[Kind]:
    """A template, with None for each hole; called by its code if it has one."""
    shown = "".join(HOLE if text is None else text for text in texts)
    if shown.strip(HOLE + " "):
        pattern = "".join(".*" if text is None else re.escape(text) for text in texts)
        fixed = len(shown.replace(HOLE, ""))
        yield Kind(code or shown, re.compile(pattern, re.DOTALL), fixed)


def _kinds(value: ast.expr, function: ast.FunctionDef) -> Iterator[Kind]:
    """What an expression can say: a literal, an entry of the catalogue, either side of a condition, or what a
    local name was given."""
    match value:
        case ast.Constant(value=str(text)) if text:
            yield Kind(text, re.compile(re.escape(text)), len(text))
        case ast.JoinedStr(values=parts):
            yield from _kind([str(p.value) if isinstance(p, ast.Constant) else None for p in parts])
        case ast.Call(func=ast.Attribute(ast.Attribute(ast.Name("codes"), name), "say")):
            entry = getattr(codes, name)
            pieces = [(text, hole) for text, hole, *_ in Formatter().parse(entry.sentence)]
            texts = [t for text, hole in pieces for t in ([text] if hole is None else [text, None])]
            yield from _kind(texts, entry.name)
        case ast.BinOp(left=said, op=ast.Add()):  # with words about the circumstances behind it
            for kind in _kinds(said, function):
                yield Kind(kind.text, re.compile(kind.pattern.pattern + ".*", re.DOTALL), kind.fixed)
        case ast.IfExp(body=one, orelse=other):
            yield from _kinds(one, function)
            yield from _kinds(other, function)
        case ast.Name(id=name):
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == name for t in node.targets
                ):
                    yield from _kinds(node.value, function)
