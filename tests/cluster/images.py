"""The images of the lab's machines, each tagged by a hash of what went into it, so that nothing is made
twice.

    base          debootstrap, from the mirror that this machine's own apt uses
    machine       Pacemaker, corosync, qnetd and their tools
    libraries     a virtual environment with what the broker needs, no index asked from within
    node          the wheel of this checkout and its agent: a change of the source costs seconds

Older ones of the same kind are removed. Wheels are fetched by this machine's pip, whose configuration never
gets into an image.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.engine import MARK, Engine, NoEngine

ROOT = Path(__file__).parent.parent.parent
NODE = Path(__file__).parent / "node"
_SOURCES = ("understudy", "broker", "ha", "spark", "resource_agent", "deploy")
_PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}
"""Debian's Python in each release."""
NEXT = "+next"
"""What the version of the second wheel, for upgrades, has behind it."""


def build_all(engine: Engine, say: Callable[[str], None] = lambda _: None) -> str:
    """The tag of the node's image; whatever is missing is made first."""
    base = base_image(engine, say)
    machine = _made(
        engine, "machine", [base, *_texts(NODE / "machine.Dockerfile")], _docker(engine, base, "machine"), say
    )
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    libraries = _made(
        engine, "libraries", [machine, *wanted, *_texts(NODE / "libraries.Dockerfile")],
        _docker(engine, machine, "libraries", lambda folder: fetch(wanted, folder / "wheels")), say,
    )  # fmt: skip
    inputs = [
        libraries,
        *_texts(NODE / "node.Dockerfile", *sorted((NODE / "root").rglob("*"))),
        *source_hashes(),
    ]
    return _made(engine, "node", inputs, _docker(engine, libraries, "node", _node_files), say)


def base_image(engine: Engine, say: Callable[[str], None] = lambda _: None) -> str:
    """The tag of the least Debian of this machine's release."""
    return _made(engine, "base", _base_inputs(), lambda tag, _: _base(engine, tag), say)


def source_hashes() -> list[str]:
    files = [ROOT / "pyproject.toml", ROOT / "hatch_build.py", ROOT / "README.md"]
    for name in _SOURCES:
        files += sorted((ROOT / name).rglob("*"))
    return _texts(*(each for each in files if "__pycache__" not in each.parts))


def _texts(*paths: Path) -> list[str]:
    """Name, mode and contents of each file."""
    return [
        f"{path.relative_to(ROOT)} {path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in paths
        if path.is_file()
    ]


def _made(
    engine: Engine,
    kind: str,
    inputs: Iterable[str],
    make: Callable[[str, Path], None],
    say: Callable[[str], None],
) -> str:
    name = f"{MARK}{kind}"
    tag = f"{name}:{hashlib.sha256(chr(0).join(inputs).encode()).hexdigest()[:16]}"
    there = engine.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", name).split()
    if tag not in there:
        say(f"making the image {tag}")
        with tempfile.TemporaryDirectory(prefix=name, dir=engine.home) as folder:
            make(tag, Path(folder))
        for old in there:
            _forget(engine, old)
    return tag


def _forget(engine: Engine, tag: str) -> None:
    """Images that others are built on stay until those go."""
    try:
        engine.docker("image", "rm", "--force", tag)
    except NoEngine:
        pass


# -- base


def release() -> str:
    lines = Path("/etc/os-release").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    name = found.get("VERSION_CODENAME", "").strip('"')
    if name not in _PYTHONS:
        raise NoEngine(f"the machines of the lab are made on Debian {' or '.join(_PYTHONS)} only")
    return name


def _base_inputs() -> list[str]:
    return [release(), platform.machine(), "minbase"]


def _base(engine: Engine, tag: str) -> None:
    with tempfile.TemporaryDirectory(prefix="base-", dir=engine.home) as folder:
        root = Path(folder) / "root"
        command = ["debootstrap", "--variant=minbase", release(), str(root), mirror()]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise NoEngine(f"debootstrap: {done.stdout.strip()[-1000:]}")
        shutil.rmtree(root / "var/cache/apt/archives")
        tar = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
        engine.docker("import", "-", tag, stdin=tar.stdout)
        if tar.wait():
            raise NoEngine("tar could not read what debootstrap made")


def mirror() -> str:
    """Of this machine's own apt, for its own release."""
    asked = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)", "Created-By: Packages"]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    for line in lines:
        site, _, suite = line.partition(" ")
        if suite == release():
            return site
    raise NoEngine(f"apt has no source for {release()}")


# -- what is built on it


def _docker(
    engine: Engine, parent: str, kind: str, prepare: Callable[[Path], None] = lambda _: None
) -> Callable[[str, Path], None]:
    def make(tag: str, folder: Path) -> None:
        shutil.copy(NODE / f"{kind}.Dockerfile", folder / "Dockerfile")
        prepare(folder)
        engine.docker(
            "build", "--quiet", "--network=host", "--build-arg", f"PARENT={parent}", "--tag", tag, str(folder)
        )

    return make


def fetch(wanted: list[str], folder: Path) -> None:
    """Wheels of these and of all that they need, for the nodes' Python."""
    machine = platform.machine()
    tags = [f"manylinux_2_{minor}_{machine}" for minor in (17, 24, 26, 27, 28, 31, 34)] + [
        f"manylinux2014_{machine}"
    ]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    ]
    command += ["--python-version", _PYTHONS[release()], "--implementation", "cp"]
    for tag in tags:
        command += ["--platform", tag]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True)
    if done.returncode:
        raise NoEngine(f"pip download: {done.stderr.strip()[-1000:]}")


def _node_files(folder: Path) -> None:
    shutil.copytree(NODE / "root", folder / "root")
    (folder / "wheels").mkdir()
    with _source() as copy:
        _wheel(copy, folder / "wheels")
        project = copy / "pyproject.toml"
        version = tomllib.loads(project.read_text())["project"]["version"]
        changed = project.read_text().replace(f'version = "{version}"', f'version = "{version}{NEXT}"', 1)
        project.write_text(changed)
        _wheel(copy, folder / "wheels")


@contextmanager
def _source() -> Iterator[Path]:
    """A copy, so that a wheel is of one moment, and the checkout stays as it is."""
    with tempfile.TemporaryDirectory(prefix="understudy-wheel-") as folder:
        copy = Path(folder) / "source"
        copy.mkdir()
        for name in _SOURCES:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, copy)
        yield copy


def _wheel(source: Path, folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(source),
    ]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    if done.returncode:
        raise NoEngine(f"the wheel cannot be built: {done.stdout.strip()[-1000:]}")
