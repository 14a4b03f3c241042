"""`understudy deploy`: shows, fills in and writes the files of deploy/."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.deploy.tools import DEPLOY, fill
from understudy.cli.deploy import KINDS
from understudy.cli.main import cli


def deploy(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["deploy", *map(str, arguments)])


def test_each_file_is_of_some_kind_and_is_listed() -> None:
    listed = deploy("list").stdout
    files = [path.relative_to(DEPLOY) for path in DEPLOY.rglob("*") if path.is_file()]
    others = [path for path in files if path.parts[0] not in ("ansible", "fill.sh")]
    assert [path for path in others if f" {path}\n" not in listed] == []
    assert all(f"{kind} " in listed for kind in KINDS)


def test_a_file_is_shown_as_it_is_or_filled_in() -> None:
    template, settings = (DEPLOY / "haproxy" / "haproxy.cfg").read_text(), DEPLOY / "site.env"
    plain = deploy("show", "haproxy")
    assert plain.stdout == template and "note: give values" in plain.stderr
    filled = deploy("show", "haproxy", "--settings", settings, "--set", "NODE_A=n=1")
    assert filled.exit_code == 0 and filled.stdout == fill("haproxy/haproxy.cfg", NODE_A="n=1")
    assert not filled.stderr
    one = deploy("show", "systemd", "understudy.service")
    assert one.stdout == (DEPLOY / "systemd" / "understudy.service").read_text() and not one.stderr
    several = deploy("show", "systemd").stdout
    assert one.stdout in several and several.startswith("# ==> systemd/understudy.service <==\n")


def test_files_are_written_and_none_is_replaced_unasked(tmp_path: Path) -> None:
    arguments = ("show", "pacemaker", "--settings", DEPLOY / "site.env", "--output", tmp_path / "new")
    written = deploy(*arguments)
    assert written.exit_code == 0, written.output
    assert (tmp_path / "new" / "crmsh" / "understudy.crm").read_text() == fill("crmsh/understudy.crm")
    changed, gone = tmp_path / "new" / "pcs" / "understudy.sh", tmp_path / "new" / "crmsh" / "understudy.crm"
    changed.write_text("mine")
    gone.unlink()
    refused = deploy(*arguments)
    assert (
        refused.exit_code == 1 and "deploy-file-exists" in refused.stderr and str(changed) in refused.stderr
    )
    assert refused.stderr.count("\n") == 1 and not gone.exists()
    assert deploy(*arguments, "--force").exit_code == 0
    assert changed.read_text() == fill("pcs/understudy.sh") and gone.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("show", "nginx"), 2, "nginx"),
        (("show", "systemd", "none.service"), 2, "systemd has no file 'none.service'"),
        (("show", "haproxy", "--set", "NODE_A=a"), 2, "haproxy/haproxy.cfg asks for"),
        (("show", "haproxy", "--set", "node=a"), 2, "'node=a' is not NAME=VALUE"),
        (("show", "haproxy", "--settings", "/nowhere/site.env"), 2, "/nowhere/site.env"),
        (("show", "haproxy", "--force"), 2, "--force needs --output"),
        (("show", "haproxy", "--output", "/dev/null/x"), 1, "/dev/null"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments: tuple[str, ...], code: int, told: str) -> None:
    done = deploy(*arguments)
    assert done.exit_code == code and told in done.stderr
    assert not done.stdout and "Traceback" not in done.output
