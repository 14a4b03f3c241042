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
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, redirect_stdout
from hashlib import blake2b
from io import StringIO
from pathlib import Path

from broker.model.vhost.vhosts import VirtualHosts
from ha.adapter.effect_runner import EffectRunner
from ha.adapter.node import Node
from ha.core.primary.remote_backup import RemoteBackup
from tests.simulation.compiled.rewrite import rewrite
from tests.simulation.harness.coverage import watching
from tests.simulation.harness.coverage.replacing import hook_of

ROOT = Path(__file__).parents[3]
COPIED = ("understudy", "broker", "ha", "tests", "docs")
INTERPRETED = (
    "broker.errors", "broker.security.authenticator", "broker.store.errors", "broker.store.files",
    "broker.store.sync", "ha.core.errors", "tests.ha.telling", "understudy.shared.file_errors",
    *(f"tests.simulation.{name}" for name in (
        "clients.mover_plan", "clients.rule_plan", "faults.plan", "faults.spoiling", "harness.plan",
        "harness.coverage.replacing", "harness.machines.virtual_disk", "pacemaker.plan",
    )),
)  # fmt: skip
"""Exceptions, what replaces methods, and what takes no time. In `broker.store.files` and `virtual_disk`,
bounds of slices would be evaluated twice. So is what no run imports, such as `watching`."""
METHODS = {hook_of(owner, name) for owner, name, _ in watching.WRAPPERS} | {
    hook_of(EffectRunner, "_one"), hook_of(Node, "authority_answered"),
}  # fmt: skip
"""That `watching` and `story` replace."""
ATTRIBUTES = {hook_of(RemoteBackup, "phase")}
ON_OBJECTS = {hook_of(VirtualHosts, "apply")}
MYPY = (
    "--config-file=", "--ignore-missing-imports",
    # What is ignored in the source, by comments that rewriting loses.
    *(f"--disable-error-code={code}" for code in (
        "arg-type", "assignment", "attr-defined", "dict-item", "has-type", "index", "misc", "return-value",
        "union-attr",
    )),
)  # fmt: skip
GCC = ("-O1", "-fPIC", "-w", "-DNDEBUG", "-fwrapv")


def build(tree: Path, jobs: int) -> None:
    made, objects, source = tree / "made-from", tree / "build" / "objects", tree / "build" / "rewritten"
    key = _digest(*(path.read_bytes() for name in COPIED for path in sorted((ROOT / name).rglob("*.py"))))
    if made.exists() and made.read_text() == key:
        return
    made.unlink(missing_ok=True)
    kept = list(objects.glob("*.o"))
    objects.mkdir(parents=True, exist_ok=True)
    copy(tree)
    files = copy_rewritten(source)
    used = _compile(source, files, tree, objects, jobs)
    for old in kept:
        if old not in used:
            old.unlink()
    made.write_text(key)


def copy(tree: Path) -> None:
    for name in COPIED:
        shutil.rmtree(tree / name, ignore_errors=True)
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))


def copy_rewritten(tree: Path) -> list[Path]:
    """Gives what was rewritten."""
    copy(tree)
    sources = {name: (tree / _file(name)).read_text() for name in modules(tree)}
    rewritten = rewrite(sources, METHODS, ATTRIBUTES, ON_OBJECTS)
    for name, text in rewritten.items():
        (tree / _file(name)).write_text(text)
    return [_file(name) for name in rewritten]


def modules(tree: Path) -> list[str]:
    """The names of those that are compiled: what a run imports, but for packages and `INTERPRETED`."""
    command = [sys.executable, "-c", "import sys, tests.simulation.harness.world; print(*sys.modules)"]
    imported = subprocess.run(command, cwd=tree, check=True, stdout=subprocess.PIPE, text=True).stdout
    ours = [name for name in sorted(imported.split()) if (tree / _file(name)).exists()]
    if gone := [name for name in INTERPRETED if not (tree / _file(name)).exists()]:
        raise ValueError(f"to be left interpreted, and not there: {', '.join(gone)}")
    return [name for name in ours if name not in INTERPRETED]


def _file(module: str) -> Path:
    return Path(f"{module.replace('.', '/')}.py")


def _digest(*parts: bytes) -> str:
    return blake2b(b"".join(parts), digest_size=16).hexdigest()


def _compile(source: Path, files: list[Path], tree: Path, objects: Path, jobs: int) -> set[Path]:
    """From Python to libraries in `tree`. Gives the objects that were used."""
    from mypyc.build import mypycify

    include = sysconfig.get_paths()["include"]
    said = StringIO()  # warnings, that generators are worked off at once, say
    try:
        with chdir(source), redirect_stdout(said):
            options = [*MYPY, *map(str, files)]
            extensions = mypycify(options, opt_level="1", debug_level="0", multi_file=True, target_dir="c")
    except SystemExit:
        print(said.getvalue(), file=sys.stderr)
        raise
    flags = {
        file: [*GCC, *(f"-I{source / d}" for d in (include, *one.include_dirs)), *one.extra_compile_args]
        for one in extensions
        for file in one.sources
    }

    def compiled(file: str) -> Path:
        text = subprocess.run(
            ["gcc", "-E", "-P", *flags[file], file], cwd=source, check=True, stdout=subprocess.PIPE
        ).stdout
        made = objects / f"{_digest(text, *map(str.encode, GCC))}.o"
        if not made.exists():
            part = made.with_suffix(".part")
            subprocess.run(["gcc", "-c", *flags[file], file, "-o", part], cwd=source, check=True)
            part.rename(made)
        return made

    print(f"compiling {len(files)} modules, in {len(flags)} files of C", file=sys.stderr, flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        made = dict(zip(flags, pool.map(compiled, flags), strict=True))
    for one in extensions:
        library = tree / f"{one.name.replace('.', '/')}{sysconfig.get_config_var('EXT_SUFFIX')}"
        subprocess.run(["gcc", "-shared", *(made[file] for file in one.sources), "-o", library], check=True)
    return set(made.values())


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
