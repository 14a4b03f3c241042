"""The source of the product and the simulation as mypyc takes it. What it means stays the same.

- What is replaced from outside (`replacing.py`) gets a hook, since mypyc binds calls when it compiles.
- `dataclass` would write a slow `__init__` at run time: it is written out, and there are no slots, nor is
  anything frozen, both of which mypyc cannot do.
- Classes that derive from exceptions, numbers and the like cannot be native ones of mypyc: it is told so.

Raises ValueError, which names the place, for what it does not know how to rewrite.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

BUILT_IN = {"int", "float", "str", "bytes", "list", "Exception", "BaseException", "TypeError", "ValueError"}

Modules = dict[str, ast.Module]
Classes = dict[str, ast.ClassDef]


def rewrite(
    sources: Mapping[str, str], methods: set[str], attributes: set[str], on_objects: set[str]
) -> dict[str, str]:
    """`sources` by the names of their modules; methods, attributes, and methods that are replaced on one
    object only, by the full names of their hooks. A module without hooks keeps the numbers of its lines."""
    trees = {name: ast.parse(source) for name, source in sources.items()}
    classes = {
        node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    }
    left = methods | attributes | on_objects
    texts = dict(sources)
    for module, tree in trees.items():
        body: list[ast.stmt] = []
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                hooks = {hook for hook in left if hook.startswith(f"{module}.hook_{node.name}_")}
                left -= hooks
                for hook in sorted(hooks):
                    body += _hooked(node, hook, hook in attributes, hook in on_objects)
            body.append(node)
        if body != tree.body or any(hook.startswith(f"{module}.hook_") for hook in on_objects):
            tree.body = body
            texts[module] = f"{ast.unparse(ast.fix_missing_locations(tree))}\n"
    if left:
        raise ValueError(f"nothing there to hook: {', '.join(sorted(left))}")
    return {name: _declared(text, classes) for name, text in texts.items()}


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


# -- hooks


def _hooked(node: ast.ClassDef, full_name: str, attribute: bool, on_objects: bool) -> list[ast.stmt]:
    """Changes the class; gives what stands before it."""
    hook = full_name.rpartition(".")[2]
    name = hook.removeprefix(f"hook_{node.name}_")
    if attribute:
        node.body += _property(name, hook)
        return _parsed(f"{hook}: _Any = None")
    method = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
    if method is None or method.args.vararg or method.args.kwarg or method.decorator_list:
        raise ValueError(f"{node.name}.{name} is no plain method, to be hooked")
    node.body.insert(node.body.index(method), _asking(method, f"self.hook_{name}" if on_objects else hook))
    method.name += "__plain"
    if on_objects:
        node.body += _parsed(f"hook_{name}: _Any = None")
        return []
    return _parsed(f"{hook}: _Any = None")


def _property(name: str, hook: str) -> list[ast.stmt]:
    return _parsed(f"""
{name}__plain: _Any = None

@property
def {name}(self) -> _Any:
    return self.{name}__plain

@{name}.setter
def {name}(self, value: _Any) -> None:
    before = self.{name}__plain
    self.{name}__plain = value
    if {hook} is not None:
        {hook}(before, value)
""")


def _asking(method: ast.FunctionDef, hook: str) -> ast.stmt:
    given = [a.arg for a in (*method.args.posonlyargs, *method.args.args)][1:]
    given += [f"{a.arg}={a.arg}" for a in method.args.kwonlyargs]
    result = "None" if method.returns is None else ast.unparse(method.returns)
    back = "" if result == "None" else "return "
    (asking,) = _parsed(f"""
def {method.name}({ast.unparse(method.args)}) -> {result}:
    if {hook} is not None:
        {back}{hook}({", ".join(given if hook.startswith("self.") else ["self", *given])})
    else:
        {back}self.{method.name}__plain({", ".join(given)})
""")
    return asking


# -- classes

_IMPORTS = "from typing import Any as _Any; from mypy_extensions import mypyc_attr as _mypyc_attr"


class _Lines:
    """A source whose lines keep their numbers. What is added goes to blank lines, if there are any."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self._added: list[tuple[int, str]] = []

    def replace(self, node: ast.stmt | ast.expr, text: str) -> None:
        """Of all replaced nodes, the last ones first."""
        first, last = node.lineno - 1, (node.end_lineno or 0) - 1
        before = self.lines[first].encode()[: node.col_offset].decode()
        after = self.lines[last].encode()[node.end_col_offset :].decode()
        self.lines[first : last + 1] = [f"{before}{text}{after}", *[""] * (last - first)]

    def above(self, line: int, text: str) -> None:
        """Comments may stand between."""
        while line > 1 and self.lines[line - 2].startswith("#"):
            line -= 1
        self._put(line - 2, line - 1, text)

    def below(self, line: int, text: str) -> None:
        self._put(line, line, text)

    def _put(self, at: int, insert: int, text: str) -> None:
        if 0 <= at < len(self.lines) and not self.lines[at].strip():
            self.lines[at] = text
        else:
            self._added.append((insert, text))

    def text(self) -> str:
        for at, added in sorted(self._added, key=lambda one: one[0], reverse=True):
            self.lines.insert(at, added)
        return "\n".join(self.lines)


def _declared(text: str, classes: Classes) -> str:
    """The module, with what mypyc wants to know of its classes."""
    source, tree = _Lines(text), ast.parse(text)
    replaced: list[tuple[ast.stmt | ast.expr, str]] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            replaced += _of_class(node, source, classes)
    for what, new in sorted(replaced, key=lambda one: (one[0].lineno, one[0].col_offset), reverse=True):
        source.replace(what, new)
    future = [node for node in tree.body if ast.unparse(node).startswith("from __future__")]
    if not future:
        return f"{_IMPORTS}\n{source.text()}"
    at = future[-1].lineno - 1
    source.lines[at] = f"{source.lines[at]}; {_IMPORTS}"
    return source.text()


def _of_class(node: ast.ClassDef, source: _Lines, classes: Classes) -> list[tuple[ast.stmt | ast.expr, str]]:
    """Adds lines around the class; gives what is to be replaced in it."""
    first = min((one.lineno for one in node.decorator_list), default=node.lineno)
    replaced: list[tuple[ast.stmt | ast.expr, str]] = [
        (one, "pass") for one in node.body if ast.unparse(one).startswith("__slots__ =")
    ]
    if _derives_from_builtin(node, classes):
        source.above(first, "@_mypyc_attr(native_class=False)")
        return replaced
    if not any(ast.unparse(base).startswith("Protocol") for base in node.bases):
        source.above(first, "@_mypyc_attr(allow_interpreted_subclasses=True)")
    for decorator in node.decorator_list:
        if ast.unparse(decorator).startswith("dataclass"):
            options, init = _dataclass(node, decorator, classes)
            replaced.append((decorator, options))
            source.below(node.end_lineno or 0, init)
            replaced += [
                # mypyc would look for `object` among the module's globals
                (one.annotation, "_Any")
                for one in node.body
                if isinstance(one, ast.AnnAssign) and ast.unparse(one.annotation) == "object"
            ]
    return replaced


def _derives_from_builtin(node: ast.ClassDef, classes: Classes) -> bool:
    bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
    ours = [classes[base] for base in bases if base in classes]
    return any(base in BUILT_IN or base.endswith("Error") for base in bases) or any(
        _derives_from_builtin(base, classes) for base in ours
    )


def _dataclass(node: ast.ClassDef, decorator: ast.expr, classes: Classes) -> tuple[str, str]:
    """The decorator that leaves out the `__init__`, and the line that has it."""
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    options = {word.arg: ast.literal_eval(word.value) for word in keywords}
    if unknown := options.keys() - {"slots", "frozen", "eq"}:
        raise ValueError(f"dataclass {node.name}: {', '.join(map(str, unknown))}")
    methods = {s.name for s in node.body if isinstance(s, ast.FunctionDef)}
    eq = options.get("eq", True)
    hashed = bool(options.get("frozen")) and eq and "__hash__" not in methods
    parameters, sets = ["self"], ["pass"]
    own = [one for one in node.body if isinstance(one, ast.AnnAssign)]
    for field in _fields(node, classes):
        name, kind, default, value = ast.unparse(field.target), ast.unparse(field.annotation), field.value, ""
        if field not in own:
            kind = "_Any"  # the module of this class may not know what that of its base does
        if isinstance(default, ast.Call) and ast.unparse(default.func) == "field":
            given = {word.arg: word.value for word in default.keywords}
            if unknown := given.keys() - {"default", "default_factory", "hash", "repr"}:
                raise ValueError(f"dataclass {node.name}: field {name} has {', '.join(map(str, unknown))}")
            default = given.get("default")
            if factory := given.get("default_factory"):
                default, kind = ast.Constant(None), f"{kind} | None"
                value = f"({ast.unparse(factory)})() if {name} is None else "
        parameters.append(f"{name}: {kind}" + (f" = {ast.unparse(default)}" if default else ""))
        sets.append(f"self.{name} = {value}{name}")
    if "__post_init__" in methods:
        sets.append("self.__post_init__()")
    init = f"    def __init__({', '.join(parameters)}) -> None: {'; '.join(sets)}"
    return f"dataclass(init=False, eq={eq}, unsafe_hash={hashed})", init


def _fields(node: ast.ClassDef, classes: Classes) -> list[ast.AnnAssign]:
    """In their order, those of bases first."""
    fields: dict[str, ast.AnnAssign] = {}
    for base in map(ast.unparse, node.bases):
        if not base.startswith("Generic["):
            fields |= {ast.unparse(f.target): f for f in _fields(classes[base], classes)}
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign):
            if "ClassVar" in ast.unparse(statement.annotation):
                raise ValueError(f"dataclass {node.name} has a ClassVar")
            fields[ast.unparse(statement.target)] = statement
    return list(fields.values())
