"""The CIB that the shipped configuration makes, by crmsh and by pcs, without any cluster.

Both tools ask an agent for its metadata, so it has to be installed: it is, in a folder of the test's own that
stands in for /usr/lib/ocf in a mount namespace of the command's own. Nothing on the machine changes.
"""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.deploy.tools import UNDERSTUDY, fill_into, run, succeed

OCF = Path("/usr/lib/ocf")
TOOLS = ("cibadmin", "crm_verify", "crm_simulate", "unshare", "fence_ipmilan")
NODES = {"a": "1", "b": "2"}
_INSTEAD = 'mount --make-rprivate / && mount --bind "$1" /usr/lib/ocf && shift && exec "$@"'


class AgentInstalled:
    """Runs commands on a machine that has the agent of this tree."""

    def __init__(self, folder: Path) -> None:
        self._ocf = folder / OCF.relative_to("/")
        shutil.copytree(OCF, self._ocf, symlinks=True)
        succeed(UNDERSTUDY, "agent", "install", "--root", folder)

    def run(self, *command: str | Path, cwd: Path, **environment: str) -> str:
        """Both outputs of the command, which must succeed."""
        there = ("unshare", "--mount", "sh", "-c", _INSTEAD, "sh", self._ocf)
        done = run(*there, *command, cwd=cwd, environment=environment)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{said}"
        return said


def empty(path: Path) -> Path:
    """A CIB of two nodes and nothing else, both away."""
    root = ET.fromstring(succeed("cibadmin", "--empty"))
    root.set("have-quorum", "1")
    nodes = root.find("./configuration/nodes")
    assert nodes is not None
    for name, number in NODES.items():
        ET.SubElement(nodes, "node", id=number, uname=name)
    path.write_text(ET.tostring(root, encoding="unicode"))
    return path


def by_crmsh(machine: AgentInstalled, folder: Path) -> tuple[Path, str]:
    """The CIB as crmsh makes it, and what crmsh said."""
    cib = empty(folder / "crmsh.xml")
    said = ""
    for file in fill_into(folder, ("crmsh/fencing-ipmilan.crm", "crmsh/understudy.crm")):
        command = ("crm", "--force", "configure", "load", "update", file)
        said += machine.run(*command, cwd=folder, CIB_file=str(cib))
    return cib, said


def by_pcs(machine: AgentInstalled, folder: Path) -> tuple[Path, str]:
    """The same by pcs."""
    cib = empty(folder / "pcs.xml")
    said = ""
    for file in fill_into(folder, ("pcs/fencing-ipmilan.sh", "pcs/understudy.sh")):
        said += machine.run("sh", file, "-f", cib, cwd=folder)
    return cib, said


def meaning(cib: Path) -> list[object]:
    """The configuration as nested lists, without what carries no meaning: order, the ids that nothing refers
    to, comments, and a role that is the default."""
    configuration = ET.parse(cib).getroot().find("configuration")
    assert configuration is not None
    return _meaning(configuration)


def _meaning(element: ET.Element) -> list[object]:
    named = element.tag in ("primitive", "clone", "node")
    attributes = sorted(
        (key, value)
        for key, value in element.attrib.items()
        if (key != "id" or named) and (key, value) != ("rsc-role", "Started")
    )
    return [element.tag, attributes, sorted((_meaning(child) for child in element), key=repr)]
