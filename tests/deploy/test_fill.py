"""deploy/fill.sh: what it puts in, leaves out and refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.tools import DEPLOY, fill, require, run, settings

TEMPLATES = sorted(
    str(path.relative_to(DEPLOY))
    for folder in ("corosync", "crmsh", "pcs", "keepalived", "haproxy")
    for path in (DEPLOY / folder).glob("*")
)


def filled(folder: Path, given: str, template: str) -> tuple[int, str, str]:
    (folder / "site.env").write_text(given)
    (folder / "template").write_text(template)
    done = run("sh", DEPLOY / "fill.sh", folder / "site.env", folder / "template")
    return done.returncode, done.stdout, done.stderr


def test_values_are_taken_as_they_stand(tmp_path: Path) -> None:
    hard = r"a b & | \ / $HOME `id` 'x' # y = z"
    code, out, err = filled(tmp_path, f"NAME={hard}\n", "one @NAME@ two @NAME@\nthree\n")
    assert (code, out, err) == (0, f"one {hard} two {hard}\nthree\n", "")


def test_a_line_whose_setting_is_empty_is_left_out(tmp_path: Path) -> None:
    code, out, _ = filled(tmp_path, "# FIRST=x\n\nFIRST=\nSECOND=2\n", "@FIRST@\n@SECOND@\nend\n")
    assert (code, out) == (0, "2\nend\n")


def test_a_setting_that_is_missing_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    code, out, err = filled(tmp_path, "FIRST=1\n", "@FIRST@ @SECOND@\n@THIRD@\n")
    assert (code, out) == (1, "")
    assert "asks for @SECOND@ @THIRD@, which the settings do not have" in err


def test_its_use_is_printed_and_a_template_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("sh", DEPLOY / "fill.sh")
    assert done.returncode == 2
    assert "fill.sh SETTINGS TEMPLATE > RESULT" in done.stderr
    done = run("sh", DEPLOY / "fill.sh", "-", tmp_path / "none", stdin="A=1\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot read" in done.stderr


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_example_settings_fill_in_each_template(template: str) -> None:
    assert not re.search(r"@[A-Z]", fill(template))


def test_each_of_the_example_settings_is_asked_for() -> None:
    asked = {name for template in TEMPLATES for name in re.findall(r"@([A-Z0-9_]+)@", read(template))}
    given = set(re.findall(r"^([A-Z0-9_]+)=", settings(), re.MULTILINE))
    assert given == asked


def read(template: str) -> str:
    return (DEPLOY / template).read_text()


def test_the_shell_scripts_are_clean() -> None:
    require("shellcheck")
    scripts = sorted(DEPLOY.rglob("*.sh"))
    assert scripts
    done = run("shellcheck", *scripts)
    assert done.returncode == 0, done.stdout
