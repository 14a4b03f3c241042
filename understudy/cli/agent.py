"""`understudy agent`: puts the OCF resource agent where Pacemaker looks for it, and shows its meta-data.

The agent is apart from this program (it runs on the system's Python): what is installed is a copy of the
package `resource_agent`, in a folder that is named by what is in it, and its script with three lines filled
in: the interpreter, where this program is, and which folder. Pacemaker may run the agent at any time: so the
script is replaced in one step, last, and the folder that the old one names stays until the next time.
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
    """Put the agent ocf:understudy:understudy in place, or bring it up to date, also while it is in use.

    Its parameter `binary` is by default the program that installs it.
    """
    if not python.is_absolute() or not os.access(python, os.X_OK):
        raise Wrong(f"--python: {python} is no interpreter")
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
    """Their texts, by file name."""
    sources = [each for each in files("resource_agent").iterdir() if each.name.endswith(".py")]
    return {
        each.name: each.read_text(encoding="utf-8") for each in sorted(sources, key=lambda each: each.name)
    }


def _put_modules(folder: Path, modules: dict[str, str]) -> list[str]:
    """Those that were not there like this."""
    changed: list[str] = []
    for name, text in modules.items():
        changed += _write(folder / "resource_agent" / name, text, 0o644)
    return changed


def _named_by(script: Path) -> str:
    """The folder of the script that is there."""
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
    """Replace it in one step, unless it is like this."""
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
            raise Failed(codes.AGENT_FAILED.say(fault="the agent's script is not the one of this program"))
        text = text.replace(line, instead)
    return text


def _program() -> str:
    """Where this program is: beside its interpreter, or as it was called."""
    beside = Path(sys.executable).parent / "understudy"
    return str(beside if beside.exists() else Path(sys.argv[0]).resolve())


def _compile(folder: Path, python: Path) -> None:
    """Bytecode, so that a monitor need not compile: the agent itself writes none."""
    done = subprocess.run(
        [python, "-ISB", "-m", "compileall", "-q", folder], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Failed(codes.AGENT_FAILED.say(fault=f"{python} cannot compile it: {done.stdout}{done.stderr}"))
