"""`understudy agent`: installs the OCF resource agent where Pacemaker looks for it, and prints its meta-data.

The agent runs on the system's Python, apart from this program. The installed files are a copy of the package
`resource_agent`, in a folder named by the hash of its contents, and the agent's script. Three lines of the
script are filled in: the interpreter, the path of this program, and the name of the folder. Pacemaker may run
the agent at any time. So the script is replaced last, in one step, and the folder that the old script names
stays until the next installation.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import click

from understudy import codes
from understudy.cli.options import Failed, Wrong
from understudy.shared.file_errors import of_file
from understudy.shared.folders import make_folders

SCRIPT = "usr/lib/ocf/resource.d/understudy/understudy"
MODULES = "usr/lib/ocf/lib/understudy"
_SYSTEM_PYTHON = Path("/usr/bin/python3")
_LINES = ("#!/usr/bin/python3 -ISB", 'BINARY = "/usr/bin/understudy"', 'MODULES = "."')
_NAMED = re.compile(r"^MODULES = '(\w+)'$", re.MULTILINE)


@click.group()
def agent() -> None:
    """The OCF resource agent, for Pacemaker."""


@agent.command()
@click.option("--root", type=click.Path(path_type=Path), default=Path("/"), help="Install below this folder.")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    default=_SYSTEM_PYTHON,
    help="The Python that runs the agent.",
)
def install(root: Path, python: Path) -> None:
    """Install the agent ocf:understudy:understudy, or update it, even while it is in use.

    The default of its parameter `binary` is the program that installs it.
    """
    if not python.is_absolute() or not os.access(python, os.X_OK):
        raise Wrong(f"--python: {python} is not an executable with an absolute path")
    modules = _modules()
    version = hashlib.sha256(repr(modules).encode()).hexdigest()[:12]
    script, folder = root / SCRIPT, root / MODULES / version
    try:
        before = _named_by(script)
        changed = _put_modules(folder, modules)
        _compile(folder, python)
        changed += _write(script, _script(python, version), 0o755)
        _remove_others(root / MODULES, {version, before})
    except OSError as error:
        raise Failed(codes.FILE_FAILED.say(fault=f"cannot write {of_file(error)}")) from None
    for path in changed:
        click.echo(path)
    click.echo(f"ocf:understudy:understudy {'is installed' if changed else 'was up to date'}")


@agent.command()
def metadata() -> None:
    """Print the agent's meta-data: its parameters and actions."""
    from resource_agent.metadata import metadata as document

    click.echo(document(_program()), nl=False)


def _modules() -> dict[str, str]:
    """Texts of the modules, by file name."""
    sources = [each for each in files("resource_agent").iterdir() if each.name.endswith(".py")]
    return {
        each.name: each.read_text(encoding="utf-8") for each in sorted(sources, key=lambda each: each.name)
    }


def _put_modules(folder: Path, modules: dict[str, str]) -> list[str]:
    """Write the modules. Returns the paths of those that were missing or differed."""
    changed: list[str] = []
    for name, text in modules.items():
        changed += _write(folder / "resource_agent" / name, text, 0o644)
    return changed


def _named_by(script: Path) -> str:
    """Name of the folder that the installed script uses; empty if there is none."""
    try:
        found = _NAMED.search(script.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return ""
    return found.group(1) if found is not None else ""


def _remove_others(folder: Path, keep: set[str]) -> None:
    for old in folder.iterdir():
        if old.name not in keep:
            shutil.rmtree(old)


def _write(path: Path, text: str, mode: int) -> list[str]:
    """Replace the file in one step, unless it has this text and mode. Returns the path if it was written."""
    make_folders(str(path.parent))
    try:
        if path.read_text(encoding="utf-8") == text and path.stat().st_mode & 0o777 == mode:
            return []
    except (OSError, UnicodeDecodeError):
        pass
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(mode)
    fresh.replace(path)
    return [str(path)]


def _script(python: Path, version: str) -> str:
    text = (files("resource_agent") / "understudy").read_text(encoding="utf-8")
    filled = (f"#!{python} -ISB", f"BINARY = {_program()!r}", f"MODULES = {version!r}")
    for line, instead in zip(_LINES, filled, strict=True):
        if text.count(line) != 1:
            raise Failed(codes.AGENT_FAILED.say(fault="the agent's script does not fit this version"))
        text = text.replace(line, instead)
    return text


def _program() -> str:
    """Path of this program: beside its interpreter, or as it was called."""
    beside = Path(sys.executable).parent / "understudy"
    return str(beside if beside.exists() else Path(sys.argv[0]).resolve())


def _compile(folder: Path, python: Path) -> None:
    """Compile the modules to bytecode. The agent writes none, and a monitor should not have to compile."""
    done = subprocess.run(
        [python, "-ISB", "-m", "compileall", "-q", folder], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Failed(codes.AGENT_FAILED.say(fault=f"{python} cannot compile it: {done.stdout}{done.stderr}"))
