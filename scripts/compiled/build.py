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
from importlib.metadata import version
from io import StringIO
from pathlib import Path

SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
INCLUDE = sysconfig.get_paths()["include"]
FLAGS = ("-fPIC", "-fvisibility=hidden", "-w", "-DNDEBUG", "-fwrapv")
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
        raise CannotCompile("there is no C compiler (install gcc)")
    if not Path(INCLUDE, "Python.h").is_file():
        raise CannotCompile(f"there is no Python.h in {INCLUDE} (install the headers, python3-dev)")
    return found


def file_of(module: str) -> Path:
    return Path(f"{module.replace('.', '/')}.py")


def compile_modules(
    source: Path, modules: Sequence[str], target: Path, objects: Path, *, jobs: int, level: str
) -> Made:
    """Compile `modules`, whose rewritten source is below `source`, into libraries below `target`. Object
    files are kept in `objects`, and used again for equal C. Raises CannotCompile."""
    cc = compiler()
    from mypyc.build import mypycify

    said = StringIO()  # warnings, that generators are worked off at once, say
    try:
        with chdir(source), redirect_stdout(said):
            options = [*MYPY, *map(str, map(file_of, modules))]
            extensions = mypycify(options, opt_level=level, debug_level="0", multi_file=True, target_dir="c")
    except SystemExit:
        raise CannotCompile(said.getvalue()) from None
    files = sorted({source / file for one in extensions for file in one.sources}, key=_size, reverse=True)
    folders = sorted({folder for one in extensions for folder in one.include_dirs})
    flags = [f"-O{level}", *FLAGS, *(f"-I{source / folder}" for folder in (INCLUDE, *folders))]
    header, all_headers = _headers(source / "c")
    same = digest(_run([cc, "--version"], source), sys.version.encode(), repr(flags).encode(), all_headers)
    if Path(cc).name == "gcc":  # another compiler reads the header each time
        _run([cc, *flags, "-x", "c-header", str(header), "-o", f"{header}.gch"], source)

    def compiled(file: Path) -> Path:
        made = objects / f"{digest(same.encode(), file.read_bytes())}.o"
        if not made.exists():
            part = made.with_suffix(".part")
            _run([cc, "-c", *flags, "-include", str(header), str(file), "-o", str(part)], source)
            part.rename(made)
        return made

    def linked(name: str, sources: Sequence[str]) -> None:
        library = target / f"{name.replace('.', '/')}{SUFFIX}"
        library.parent.mkdir(parents=True, exist_ok=True)
        parts = (str(made[source / file]) for file in sources)
        _run([cc, "-shared", "-s", *parts, "-o", str(library)], source)

    objects.mkdir(parents=True, exist_ok=True)
    print(f"compiling {len(modules)} modules, in {len(files)} files of C", file=sys.stderr, flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        made = dict(zip(files, pool.map(compiled, files), strict=True))
        list(pool.map(linked, (one.name for one in extensions), (one.sources for one in extensions)))
    names = {one.name for one in extensions}
    return Made(sorted(names - set(modules)), set(made.values()))


def _headers(folder: Path) -> tuple[Path, bytes]:
    """A header with all that each file of C includes, to be compiled once; and the text of these."""
    headers = sorted(folder.glob("__native*.h"))
    header = folder / "all.h"
    lines = (f'#include "{file.name}"\n' for file in headers)
    header.write_text(SLICES.read_text() + "".join(lines))
    return header, b"".join([version("mypy").encode(), *(file.read_bytes() for file in (header, *headers))])


def _size(file: Path) -> int:
    """The largest first, so that no processor has one left at the end."""
    return file.stat().st_size


def digest(*parts: bytes) -> str:
    return blake2b(b"".join(parts), digest_size=16).hexdigest()


def _run(command: list[str], folder: Path) -> bytes:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True)
    if done.returncode:
        said = done.stderr.decode(errors="replace")
        raise CannotCompile(said or f"{command[0]} ended with {done.returncode}")
    return done.stdout
