"""The modules of brokers and nodes that are compiled: protocol machines, model, core, stores' formats, and
the ledger.

Left to Python: what asyncio, threads and passwords need, and exceptions. They cost little there: with the
shell compiled, a wake-up of the loop took 13.0 us, and not 13.4 us.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from scripts.compiled.build import SUFFIX, compile_modules, digest, file_of
from scripts.compiled.rewrite import rewrite
from understudy.shared.compiled_modules import MANIFEST, sources

PACKAGES = ("broker", "ha/core", "ha/adapter", "understudy/shared/amqp10")
BESIDES = ("understudy.ledger.batches", "understudy.ledger.writer")
COPIED = ("broker", "ha", "understudy")
PLAIN = (
    "broker.codes", "broker.errors", "broker.security", "broker.server", "broker.store.errors",
    "broker.store.files", "broker.store.kernel_sync", "broker.store.node_files", "broker.store.spill",
    "broker.store.sync",
    "broker.model.queue.arguments", "ha.adapter.management", "ha.core.errors",
)  # fmt: skip
"""Modules and packages that are not compiled. In compiled code, what is known to be an `int` is no longer a
`bool` or another number of a class of its own: checks of a client's arguments must see the difference."""
LEVEL = "1"
"""Of the C compiler. A message takes the same time with 2, and the build a third more."""


def modules(root: Path) -> list[str]:
    """The names of those that are compiled."""
    names = [
        ".".join(file.relative_to(root).with_suffix("").parts)
        for package in PACKAGES
        for file in sorted((root / package).rglob("*.py"))
        if file.name != "__init__.py"
    ]
    return [*(name for name in names if not is_plain(name)), *BESIDES]


def is_plain(name: str) -> bool:
    """Whether a module is one of `PLAIN`, or in one of its packages."""
    return f"{name}.".startswith(tuple(f"{one}." for one in PLAIN))


def build(root: Path, target: Path, work: Path, jobs: int) -> None:
    """Compile the checkout at `root` into `target`, unless that is done. `work`: for files in between.
    Raises CannotCompile."""
    names = modules(root)
    here = Path(__file__).parent
    about = {
        "suffix": SUFFIX,
        "modules": names,
        "sources": sources(root),
        "tools": {file.name: digest(file.read_bytes()) for file in sorted(here.glob("*.[ph]*"))},
    }
    manifest = target / MANIFEST
    try:
        there = json.loads(manifest.read_bytes())
        if all(there.get(key) == value for key, value in about.items()):
            return
    except (OSError, ValueError, AttributeError):
        pass  # it is built anew
    shutil.rmtree(target, ignore_errors=True)
    source = work / "source"
    shutil.rmtree(source, ignore_errors=True)
    for package in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "_compiled")
        shutil.copytree(root / package, source / package, ignore=ignored)
    texts = {name: (source / file_of(name)).read_text() for name in names}
    for name, text in rewrite(texts, set(), set(), set()).items():
        (source / file_of(name)).write_text(text)
    objects = work / "objects"
    made = compile_modules(source, names, target, objects, jobs=jobs, level=LEVEL)
    for old in set(objects.glob("*.o")) - made.objects:
        old.unlink()
    part = manifest.with_suffix(".part")
    part.write_text(json.dumps({**about, "libraries": made.libraries}, indent=1))
    part.rename(manifest)
