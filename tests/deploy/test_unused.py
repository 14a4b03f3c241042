"""Nothing in deploy/ is only text: each file is used by a test, or by a file that one uses."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.deploy.tools import DEPLOY, ROOT

IMPLIED = {"main.yml"}
"""What Ansible reads in each folder of a role without being told."""


def mentions(text: str, path: Path) -> bool:
    """By its name and that of its folder, or by its name alone where nothing else is called so."""
    alone = len(list(DEPLOY.rglob(path.name))) == 1
    return f"{path.parent.name}/{path.name}" in text or (alone and path.name in text)


def test_each_file_of_deploy_is_used_by_a_test() -> None:
    files = {path for path in DEPLOY.rglob("*") if path.is_file()}
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    text = "\n".join(path.read_text() for path in tests) + (ROOT / "docs" / "runbook.md").read_text()
    text = text.replace('" / "', "/")
    used: set[Path] = set()
    while found := {path for path in files - used if mentions(text, path) or implied(path, used)}:
        used |= found
        text += "".join(path.read_text() for path in found)
    assert not files - used, "neither a test nor a file that one uses names these"


def test_it_is_in_the_source_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "/deploy" in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


def implied(path: Path, used: set[Path]) -> bool:
    """A folder's main file of a role that a used playbook names."""
    role = path.parent.parent
    playbook = DEPLOY / "ansible" / "site.yml"
    return path.name in IMPLIED and playbook in used and f"role: {role.name}" in playbook.read_text()
