"""The distributions, built as sdist and from it as wheel, and installed away from the tree, run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PACKAGES = ("understudy", "broker", "ha", "spark", "resource_agent")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)


def build(project: Path, folder: Path) -> Path:
    """The wheel, out of the sdist, built with the hatchling that is installed: nothing is downloaded."""
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, project, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


def install(wheel: Path, home: Path) -> Path:
    """An environment of its own with only the wheel in it; dependencies are seen through a path file."""
    venv.create(home, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--quiet"]
    done = run(*pip, "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=home)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def outside(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("outside") / "env")


def test_the_command_runs_from_outside_the_tree(outside: Path) -> None:
    done = run(outside / "bin" / "understudy", "--version", cwd=outside)
    assert done.returncode == 0, done.stderr
    assert VERSION in done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_comes_from_the_wheel(outside: Path, package: str) -> None:
    show = f"import {package}; print({package}.__file__)"
    done = run(outside / "bin" / "python", "-c", show, cwd=outside)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(outside)


def test_the_wheel_holds_every_file_of_its_packages_and_no_other(wheel: Path) -> None:
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES, cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    there = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {name for name in packed if name.startswith("understudy/deploy/")}
    assert {name.removeprefix("understudy/") for name in files} == shown()
    assert packed - files == there
    assert {f"{package}/py.typed" for package in PACKAGES} <= packed


def shown() -> set[str]:
    """The files of deploy/ that `understudy deploy` shows, and what fills them in."""
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "deploy", cwd=ROOT)
    return {name for name in listed.stdout.splitlines() if not name.startswith("deploy/ansible/")}


def test_the_files_for_a_machine_are_shown_away_from_the_tree(outside: Path) -> None:
    command = (outside / "bin" / "understudy", "deploy", "show", "compose", "compose.yml")
    done = run(*command, cwd=outside)
    assert done.stdout == (ROOT / "deploy" / "container" / "compose.yml").read_text(), done.stderr


def test_the_pair_in_containers_is_built_away_from_the_tree(
    wheel: Path, outside: Path, tmp_path: Path
) -> None:
    """The folder that the command writes has all that the build reads. It installs the wheel beside."""
    command = (outside / "bin" / "understudy", "deploy", "show", "compose", "--output", "pair")
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "pair" / "container"
    nodes = yaml.safe_load((folder / "compose.yml").read_text())["services"].values()
    ((context, file),) = {(node["build"]["context"], node["build"]["dockerfile"]) for node in nodes}
    text = (folder / context / file).read_text()
    sources = [
        name for line in re.findall(r"^COPY (?!--from)(.*)", text, re.MULTILINE) for name in line.split()[:-1]
    ]
    assert sources == ["Containerfile.wheel", "*.whl"] and (folder / context / sources[0]).is_file()
    shutil.copy(wheel, folder / context)
    (package,) = re.findall(r"^ARG PACKAGE=(\S+)$", text, re.MULTILINE)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
    done = run(
        *pip, "--find-links", folder / context, "--target", tmp_path / "installed", package, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "installed" / "bin" / "understudy").exists()


def test_the_client_kit_is_a_distribution_of_its_own(tmp_path: Path) -> None:
    home = install(build(ROOT / "packages" / "client", tmp_path), tmp_path / "env")
    told = "import sys, understudy.client as kit; print(kit.__file__); print(*sys.modules)"
    done = run(home / "bin" / "python", "-c", told, cwd=home)
    assert done.returncode == 0, done.stderr
    where, modules = done.stdout.splitlines()
    assert Path(where).is_relative_to(home)
    assert not {"pydantic", "aiohttp", "proton", "broker", "ha", "spark"} & set(modules.split())
    for other in ("understudy.cli", "broker", "ha", "spark"):
        done = run(home / "bin" / "python", "-c", f"import {other}", cwd=home)
        assert "ModuleNotFoundError" in done.stderr
    told = "import understudy.client.amqp10, understudy.ledger.writer"
    done = run(home / "bin" / "python", "-c", told, cwd=home)
    assert done.returncode == 0 or "python-qpid-proton" in done.stderr.splitlines()[-1], done.stderr
