"""`understudy agent`: puts the OCF resource agent where Pacemaker looks for it, and shows its meta-data.

The agent is apart from this program (it runs on the system's Python): what is installed is a copy of the
package `resource_agent`, and its script with two lines filled in: the interpreter, and where this program is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import click

from understudy.cli_options import Failed

SCRIPT = "usr/lib/ocf/resource.d/understudy/understudy"
MODULES = "usr/lib/ocf/lib/understudy/resource_agent"
_SYSTEM_PYTHON = Path("/usr/bin/python3")
_SHEBANG, _BINARY = "#!/usr/bin/python3 -ISB", 'BINARY = "/usr/bin/understudy"'


@click.group()
def agent() -> None:
    """The OCF resource agent, for Pacemaker."""


@agent.command()
@click.option("--root", type=click.Path(path_type=Path), default=Path("/"), help="Below this folder instead.")
@click.option(
    "--python", type=click.Path(path_type=Path), default=_SYSTEM_PYTHON, help="What runs the agent."
)
def install(root: Path, python: Path) -> None:
    """Put the agent ocf:understudy:understudy in place, or bring it up to date.

    Its parameter `binary` is by default the program that installs it.
    """
    if not python.is_absolute() or not os.access(python, os.X_OK):
        raise Failed(f"{python} is no interpreter; say --python")
    try:
        changed = _copy_modules(root / MODULES)
        changed += _write(root / SCRIPT, _script(python), 0o755)
    except OSError as error:
        raise Failed(f"cannot write {error.filename}: {error.strerror}") from None
    _compile(root / MODULES, python)
    for path in changed:
        click.echo(path)
    click.echo(f"ocf:understudy:understudy {'is installed' if changed else 'was up to date'}")


@agent.command()
def metadata() -> None:
    """Print the agent's meta-data: its parameters and actions."""
    from resource_agent.metadata import metadata as document

    click.echo(document(_program()), nl=False)


def _copy_modules(folder: Path) -> list[str]:
    """Those that were not there like this, or are there no more."""
    wanted = {
        source.name: source.read_text(encoding="utf-8")
        for source in files("resource_agent").iterdir()
        if source.name.endswith(".py")
    }
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, text in sorted(wanted.items()):
        changed += _write(folder / name, text, 0o644)
    for old in sorted(folder.glob("*.py")):
        if old.name not in wanted:
            old.unlink()
            changed.append(str(old))
    return changed


def _write(path: Path, text: str, mode: int) -> list[str]:
    """Replace it in one step: Pacemaker may run it at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
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


def _script(python: Path) -> str:
    text = (files("resource_agent") / "understudy").read_text(encoding="utf-8")
    for line, filled in ((_SHEBANG, f"#!{python} -ISB"), (_BINARY, f"BINARY = {_program()!r}")):
        if text.count(line) != 1:
            raise Failed("the agent's script is not the one of this program")
        text = text.replace(line, filled)
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
        raise Failed(f"{python} cannot compile the agent: {' '.join((done.stdout + done.stderr).split())}")
