"""The programs that tests of deploy/ need, and templates filled in.

Where a program is missing the test is skipped and says which one; with UNDERSTUDY_TEST_TOOLS=required, as
`make test-deploy` sets it after installing them, it fails instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNDERSTUDY = Path(sys.executable).with_name("understudy")
REQUIRED = os.environ.get("UNDERSTUDY_TEST_TOOLS") == "required"
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])
PATIENCE = 60.0
"""Seconds that one command may take on a busy machine before its test fails."""


def require(*commands: str, root: bool = False) -> None:
    """Skip the test, or fail it where that is asked for, unless all of these programs are there."""
    missing = [command for command in commands if shutil.which(command, path=PATH) is None]
    if root and os.geteuid():
        missing.append("root")
    if missing:
        reason = f"needs {', '.join(missing)} (scripts/ensure_cluster_tools.sh)"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)


def run(
    *command: str | Path,
    cwd: Path | None = None,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, both outputs as text. Raises TimeoutExpired; never for the exit code."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        env={**os.environ, "PATH": PATH, "LC_ALL": "C.UTF-8", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def succeed(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Its standard output; both outputs are in the failure otherwise."""
    done = run(*command, cwd=cwd, environment=environment)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def settings(**changes: str) -> str:
    """deploy/site.env, with some values changed."""
    lines = (DEPLOY / "site.env").read_text().splitlines()
    names = {line.partition("=")[0] for line in lines if "=" in line and not line.startswith("#")}
    assert set(changes) <= names, f"site.env has no {sorted(set(changes) - names)}"
    return "".join(
        f"{name}={changes[name]}\n" if (name := line.partition("=")[0]) in changes else f"{line}\n"
        for line in lines
    )


def fill(template: str, **changes: str) -> str:
    """A template of deploy/, filled in by deploy/fill.sh with site.env and these changes."""
    done = run("sh", DEPLOY / "fill.sh", "-", DEPLOY / template, stdin=settings(**changes))
    assert done.returncode == 0, done.stderr
    return done.stdout


def fill_into(folder: Path, templates: Sequence[str], **changes: str) -> list[Path]:
    """Templates, filled in and written into the folder under their own names."""
    made = []
    for template in templates:
        path = folder / Path(template).name
        path.write_text(fill(template, **changes))
        made.append(path)
    return made
