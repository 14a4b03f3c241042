"""`python -m tests.simulation.compiled TREE`: a copy of this checkout, in which the simulation is compiled.

    PYTHONPATH=TREE python -P -m tests.simulation --seeds 1000

runs it. In TREE each module is as it is here, with machine code beside it, made by mypyc from what
`rewrite.py` makes of it. A TREE of the same source is left as it is; objects of the same C are used again.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from broker.model.vhost.vhosts import VirtualHosts
from ha.adapter.effect_runner import EffectRunner
from ha.adapter.node import Node
from ha.core.primary.remote_backup import RemoteBackup
from scripts.compiled.build import compile_modules, digest, file_of
from scripts.compiled.product import is_plain
from scripts.compiled.rewrite import rewrite
from tests.simulation.harness.coverage import watching
from tests.simulation.harness.coverage.replacing import hook_of

ROOT = Path(__file__).parents[3]
COPIED = ("understudy", "broker", "ha", "tests", "docs")
INTERPRETED = (
    "tests.ha.telling", "understudy.shared.addresses", "understudy.shared.compiled_modules",
    "understudy.shared.file_errors",
    *(f"tests.simulation.{name}" for name in (
        "clients.mover_plan", "clients.rule_plan", "faults.plan", "faults.spoiling", "harness.plan",
        "harness.coverage.replacing", "harness.machines.virtual_disk", "pacemaker.plan",
    )),
)  # fmt: skip
"""Exceptions, subclasses of named tuples, what replaces methods, and what takes no time. In `virtual_disk`,
bounds of slices would be evaluated twice. Beside these: what brokers and nodes never compile, and what no run
imports, such as `watching`."""
METHODS = {hook_of(owner, name) for owner, name, _ in watching.WRAPPERS} | {
    hook_of(EffectRunner, "_one"), hook_of(Node, "authority_answered"),
}  # fmt: skip
"""That `watching` and `story` replace."""
ATTRIBUTES = {hook_of(RemoteBackup, "phase")}
ON_OBJECTS = {hook_of(VirtualHosts, "apply")}


def build(tree: Path, jobs: int) -> None:
    made, objects, source = tree / "made-from", tree / "build" / "objects", tree / "build" / "rewritten"
    key = digest(*(path.read_bytes() for name in COPIED for path in sorted((ROOT / name).rglob("*.py"))))
    if made.exists() and made.read_text() == key:
        return
    made.unlink(missing_ok=True)
    kept = list(objects.glob("*.o"))
    objects.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(source, ignore_errors=True)  # it may have C of modules that are interpreted now
    copy(tree)
    files = copy_rewritten(source)
    used = compile_modules(source, files, tree, objects, jobs=jobs, level="1").objects
    for old in kept:
        if old not in used:
            old.unlink()
    made.write_text(key)


def copy(tree: Path) -> None:
    for name in COPIED:
        shutil.rmtree(tree / name, ignore_errors=True)
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "_compiled"))


def copy_rewritten(tree: Path) -> list[str]:
    """Gives the modules that were rewritten."""
    copy(tree)
    sources = {name: (tree / file_of(name)).read_text() for name in modules(tree)}
    rewritten = rewrite(sources, METHODS, ATTRIBUTES, ON_OBJECTS)
    for name, text in rewritten.items():
        (tree / file_of(name)).write_text(text)
    return list(rewritten)


def modules(tree: Path) -> list[str]:
    """The names of those that are compiled: what a run imports, but for what stays interpreted."""
    command = [sys.executable, "-c", "import sys, tests.simulation.harness.world; print(*sys.modules)"]
    imported = subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE, text=True).stdout
    ours = [name for name in sorted(imported.split()) if (tree / file_of(name)).exists()]
    if gone := [name for name in INTERPRETED if not (tree / file_of(name)).exists()]:
        raise ValueError(f"to be left interpreted, and not there: {', '.join(gone)}")
    return [name for name in ours if name not in INTERPRETED and not is_plain(name)]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.compiled", description="Compile the simulation."
    )
    parser.add_argument("tree", type=Path)
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="compilers at once (default 2)")
    options = parser.parse_args()
    build(options.tree.resolve(), options.jobs)


if __name__ == "__main__":
    main()
