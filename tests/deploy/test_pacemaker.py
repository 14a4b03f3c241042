"""deploy/crmsh and deploy/pcs: each is taken by its own tool, and both say the same."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.deploy.cibs import AgentInstalled, meaning
from tests.deploy.simulated import Simulated
from tests.deploy.tools import run

pytestmark = pytest.mark.tools
AGENT = "/usr/lib/ocf/resource.d/understudy/understudy"


def test_crmsh_and_pcs_make_the_same_of_it(crmsh: tuple[Path, str], pcs: tuple[Path, str]) -> None:
    assert meaning(crmsh[0]) == meaning(pcs[0])


@pytest.mark.parametrize("tool", ["crmsh", "pcs"])
def test_pacemaker_finds_nothing_wrong(tool: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    cib, _ = request.getfixturevalue(tool)
    cluster = Simulated(cib, tmp_path).whole()
    done = run("crm_verify", "-V", "--xml-file", cluster.cib)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_no_tool_finds_a_parameter_or_timeout_the_agent_lacks(
    crmsh: tuple[Path, str], pcs: tuple[Path, str]
) -> None:
    for _, said in (crmsh, pcs):
        assert not [line for line in said.splitlines() if "understudy:" in line or "rror" in line], said


def test_without_a_fencing_device_nothing_would_start(crmsh: tuple[Path, str], tmp_path: Path) -> None:
    tree = ET.parse(crmsh[0])
    for parent in list(tree.iter()):
        for child in list(parent):
            if child.get("id", "").startswith("fence-") or child.get("rsc", "").startswith("fence-"):
                parent.remove(child)
    tree.write(tmp_path / "unfenced.xml")
    done = run("crm_verify", "-V", "--xml-file", tmp_path / "unfenced.xml")
    assert done.returncode != 0
    assert "no STONITH resources have been defined" in done.stdout + done.stderr


def test_each_operation_has_as_much_time_as_the_agent_asks_for(
    machine: AgentInstalled, crmsh: tuple[Path, str], tmp_path: Path
) -> None:
    told = machine.run(AGENT, "meta-data", cwd=tmp_path, OCF_ROOT="/usr/lib/ocf")
    asked = {
        (action.get("name"), action.get("role")): seconds(action.get("timeout", "0s"))
        for action in ET.fromstring(told[told.index("<?xml") :].split("?>", 1)[1].strip()).iter("action")
    }
    given = ET.parse(crmsh[0]).findall(".//primitive[@id='understudy']/operations/op")
    assert {op.get("name") for op in given} >= {"start", "stop", "promote", "demote", "notify", "monitor"}
    for op in given:
        least = asked[op.get("name"), op.get("role")]
        assert seconds(op.get("timeout", "0s")) >= least, ET.tostring(op)


def seconds(duration: str) -> float:
    assert duration.endswith("s") and not duration.endswith("ms"), duration
    return float(duration[:-1])
