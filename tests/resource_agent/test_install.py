"""`understudy agent install`: what is put where, once and again; it stands by itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import resource_agent
from understudy.cli.agent import MODULES, SCRIPT, agent

SOURCES = sorted(Path(resource_agent.__file__).parent.glob("*.py"))


def install(root: Path, *more: str) -> Result:
    return CliRunner().invoke(agent, ["install", "--root", str(root), *more])


def folders(root: Path) -> list[Path]:
    return sorted((root / MODULES).iterdir())


def test_it_says_what_it_wrote_and_writes_nothing_twice(tmp_path: Path) -> None:
    first = install(tmp_path)
    assert first.exit_code == 0, first.output
    wrote = {Path(line) for line in first.output.splitlines()[:-1]}
    (folder,) = folders(tmp_path)
    package = folder / "resource_agent"
    assert wrote == {tmp_path / SCRIPT, *(package / source.name for source in SOURCES)}
    assert (tmp_path / SCRIPT).stat().st_mode & 0o777 == 0o755
    assert list((package / "__pycache__").glob("decision.*.pyc"))
    assert install(tmp_path).output == "ocf:understudy:understudy was up to date\n"


def test_it_mends_what_was_changed(tmp_path: Path) -> None:
    install(tmp_path)
    (folder,) = folders(tmp_path)
    changed = folder / "resource_agent" / "codes.py"
    changed.write_text("")
    (tmp_path / SCRIPT).chmod(0o700)
    again = install(tmp_path)
    assert again.output.splitlines()[:-1] == [str(changed), str(tmp_path / SCRIPT)]
    assert install(tmp_path).output == "ocf:understudy:understudy was up to date\n"


def test_an_agent_that_is_running_meanwhile_finds_its_modules(tmp_path: Path) -> None:
    """The script is replaced last and in one step, and the folder it named stays until the next time."""
    install(tmp_path)
    script = tmp_path / SCRIPT
    (now,) = folders(tmp_path)
    for old in ("0ldest", "01d"):
        now.with_name(old).mkdir()
    script.write_text(script.read_text().replace(now.name, "01d"))
    install(tmp_path)
    assert f"MODULES = {now.name!r}" in script.read_text()
    assert [folder.name for folder in folders(tmp_path)] == sorted([now.name, "01d"])
    install(tmp_path)
    assert folders(tmp_path) == [now]


def test_the_script_runs_from_anywhere_without_this_environment(tmp_path: Path) -> None:
    install(tmp_path)
    done = subprocess.run(
        [tmp_path / SCRIPT, "meta-data"], env={}, cwd="/", capture_output=True, text=True, check=True
    )
    assert f'default="{Path(sys.executable).parent}/understudy"' in done.stdout


def test_an_interpreter_that_is_none_is_refused(tmp_path: Path) -> None:
    found = install(tmp_path, "--python", "/nowhere/python3")
    assert found.exit_code == 2 and "/nowhere/python3 is not an executable" in found.output
    assert not (tmp_path / SCRIPT).exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "usr").write_text("")
    found = install(tmp_path)
    assert found.exit_code == 1 and "cannot write" in found.output and str(tmp_path / "usr") in found.output


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_it_is_python_3_9_and_imports_the_standard_library_alone(source: Path) -> None:
    tree = ast.parse(source.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Match), "3.10"
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            assert name.partition(".")[0] in sys.stdlib_module_names | {"resource_agent"}, name
