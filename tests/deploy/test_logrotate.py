"""deploy/logrotate: logrotate takes the file, and a log of a running broker goes on from its beginning."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from resource_agent.parameters import read_settings
from tests.deploy.tools import DEPLOY, require, run
from tests.resource_agent.site import Site

FILE = DEPLOY / "logrotate" / "understudy"
EVERY_LOG = "/var/log/understudy/*.log"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The file, for logs of this test; logrotate wants it to be nobody else's to write."""
    require("logrotate")
    made = tmp_path / "understudy"
    made.write_text(FILE.read_text().replace(EVERY_LOG, f"{tmp_path}/log/*.log"))
    made.chmod(0o644)
    return made


def rotate(config: Path, *how: str) -> str:
    done = run("logrotate", "--state", config.with_name("state"), *how, config)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "error" not in said, said
    return said


def test_it_is_about_the_agents_own_file() -> None:
    (line,) = [line for line in FILE.read_text().splitlines() if line.endswith("{")]
    assert line == f"{EVERY_LOG} {{"
    log = Path(read_settings({}, "/usr/bin/understudy", "pair").log_file)
    assert log.match(EVERY_LOG)


def test_logrotate_takes_the_file(config: Path) -> None:
    (config.parent / "log").mkdir()
    (config.parent / "log" / "pair.log").write_text("said\n")
    assert "considering log" in rotate(config, "--debug")
    config.write_text(config.read_text().replace("copytruncate", "copytrunkate"))
    done = run("logrotate", "--debug", "--state", config.with_name("state"), config)
    assert "copytrunkate" in done.stdout + done.stderr


def test_a_brokers_log_goes_on_from_its_beginning(config: Path, tmp_path: Path) -> None:
    log = tmp_path / "log" / "pair.log"
    (tmp_path / "site").mkdir()
    with Site(tmp_path / "site") as site:
        node = site.alone()
        node.parameters["log_file"] = str(log)
        node.ok("start")
        before = log.read_bytes()
        assert before
        rotate(config, "--force")
        assert log.stat().st_size == 0 and log.with_suffix(".log.1").read_bytes() == before
        node.ok("stop")
    after = log.read_bytes()
    assert after and b"\0" not in after, "no hole where the old lines were"
    rotate(config, "--force")
    assert gzip.decompress(log.with_suffix(".log.2.gz").read_bytes()) == before
