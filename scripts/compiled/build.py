"""From Python modules to libraries of machine code, by mypyc and a C compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass
from hashlib import blake2b
from io import StringIO
from pathlib import Path

SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
SLICES = Path(__file__).with_name("slices.h")
MYPY = (
    "--config-file=", "--ignore-missing-imports", "--no-site-packages",
    # What is ignored in the source, by comments that rewriting loses.
    *(f"--disable-error-code={code}" for code in (
        "arg-type", "assignment", "attr-defined", "dict-item", "has-type", "index", "misc", "no-any-return",
        "return-value", "union-attr", "untyped-decorator",
    )),
)  # fmt: skip


class CannotCompile(Exception):
    """No compiler, or what mypyc says against the source."""


@dataclass(slots=True)
class Made:
    """`libraries`: names of what the modules share. `objects`: the object files that were used."""

    libraries: list[str]
    objects: set[Path]


def compiler() -> str:
    """The C compiler. Raises CannotCompile."""
    found = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if found is None:
        raise CannotCompile("no C compiler: install gcc")
    return found


def file_of(module: str) -> Path:
    return Path(f"{module.replace('.', '/')}.py")


def compile_modules(
    source: Path, modules: Sequence[str], target: Path, objects: Path, *, jobs: int, level: str
) -> Made:
    """Compile `modules`, whose rewritten source is below `source`, into libraries below `target`. Object
    files are kept in `objects`, and used again for equal C. Raises CannotCompile."""
    cc = compiler()
    flags = (f"-O{level}", "-fPIC", "-w", "-DNDEBUG", "-fwrapv", "-include", str(SLICES))
    from mypyc.build import mypycify

    include = sysconfig.get_paths()["include"]
    said = StringIO()  # warnings, that generators are worked off at once, say
    try:
        with chdir(source), redirect_stdout(said):
            options = [*MYPY, *map(str, map(file_of, modules))]
            extensions = mypycify(options, opt_level=level, debug_level="0", multi_file=True, target_dir="c")
    except SystemExit:
        raise CannotCompile(said.getvalue()) from None
    for_file = {
        file: [*flags, *(f"-I{source / d}" for d in (include, *one.include_dirs)), *one.extra_compile_args]
        for one in extensions
        for file in one.sources
    }

    def compiled(file: str) -> Path:
        text = _run([cc, "-E", "-P", *for_file[file], file], source)
        made = objects / f"{digest(text, *map(str.encode, flags[:-1]))}.o"
        if not made.exists():
            part = made.with_suffix(".part")
            _run([cc, "-c", *for_file[file], file, "-o", str(part)], source)
            part.rename(made)
        return made

    objects.mkdir(parents=True, exist_ok=True)
    print(f"compiling {len(modules)} modules, in {len(for_file)} files of C", file=sys.stderr, flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        made = dict(zip(for_file, pool.map(compiled, for_file), strict=True))
    for one in extensions:
        library = target / f"{one.name.replace('.', '/')}{SUFFIX}"
        library.parent.mkdir(parents=True, exist_ok=True)
        _run([cc, "-shared", *(str(made[file]) for file in one.sources), "-o", str(library)], source)
    names = {one.name for one in extensions}
    return Made(sorted(names - set(modules)), set(made.values()))


def digest(*parts: bytes) -> str:
    return blake2b(b"".join(parts), digest_size=16).hexdigest()


def _run(command: list[str], folder: Path) -> bytes:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True)
    if done.returncode:
        raise CannotCompile(done.stderr.decode(errors="replace"))
    return done.stdout
