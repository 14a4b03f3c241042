"""The meta-data: valid by the published DTD, by API 1.1, and true of what the agent does."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from lxml import etree

from resource_agent.main import main
from resource_agent.metadata import METHODS, metadata
from resource_agent.parameters import PARAMETERS, read_settings
from understudy.cli.agent import agent

DTD = Path("/usr/share/resource-agents/ra-api-1.dtd")
"""The Debian package resource-agents has it."""
SCHEMA = Path(__file__).with_name("ra-api-1.1.rng")


def document() -> etree._Element:
    return etree.fromstring(metadata("/usr/bin/understudy").encode())


def test_it_is_valid_by_the_api() -> None:
    etree.RelaxNG(file=str(SCHEMA)).assertValid(document())


@pytest.mark.parametrize(
    ("right", "wrong"),
    [('timeout="20s"', 'timeout="20"'), ('name="promote"', 'name="raise"'), ("<version>1.1", "<version>1.0")],
)
def test_the_schema_sees_what_is_wrong(right: str, wrong: str) -> None:
    spoilt = etree.fromstring(metadata("/usr/bin/understudy").replace(right, wrong).encode())
    assert not etree.RelaxNG(file=str(SCHEMA)).validate(spoilt)


@pytest.mark.skipif(not DTD.exists(), reason="the package resource-agents is not installed")
def test_it_is_valid_by_the_published_dtd() -> None:
    parser = etree.XMLParser(dtd_validation=True, no_network=True)
    etree.fromstring(metadata("/usr/bin/understudy").encode(), parser, base_url=str(DTD))


def test_every_parameter_is_there_with_its_default() -> None:
    found = {p.get("name"): p.find("content").get("default") for p in document().iter("parameter")}
    assert found == {p.name: p.default for p in PARAMETERS}
    settings = read_settings({}, "/usr/bin/understudy", "pair")
    assert set(settings._fields) == set(found)
    assert settings.log_file == "/var/log/understudy/pair.log"
    assert (settings.status_timeout, settings.recovery_timeout) == (3.0, 600.0)


def test_every_action_that_is_advertised_is_one() -> None:
    named = {action.get("name") for action in document().iter("action")}
    assert named <= set(METHODS)
    assert {"start", "stop", "monitor", "promote", "demote", "notify", "reload-agent"} <= named


def test_metadata_usage_and_methods_need_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for action, word in (("meta-data", "<resource-agent"), ("usage", "usage:"), ("methods", "promote\n")):
        assert main(["understudy", action], {}, "/usr/bin/understudy") == 0
        assert word in capsys.readouterr().out


def test_the_command_shows_them_with_this_program_as_the_default() -> None:
    shown = CliRunner().invoke(agent, ["metadata"])
    assert shown.exit_code == 0
    root = etree.fromstring(shown.output.encode())
    binary = next(p for p in root.iter("parameter") if p.get("name") == "binary")
    assert binary.find("content").get("default").endswith("/understudy")
