"""ClusterLabs' own test of an agent, `ocf-tester`, where the package resource-agents is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.resource_agent.site import Site

TESTER = shutil.which("ocf-tester", path=f"{os.environ['PATH']}:/usr/sbin")
_LINT = """#!{python}
import sys
from lxml import etree
parser = etree.XMLParser(dtd_validation="--valid" in sys.argv, no_network=True)
etree.fromstring(sys.stdin.buffer.read(), parser, base_url="ra-api-1.dtd")
"""


@pytest.mark.skipif(TESTER is None or os.geteuid() != 0, reason="needs ocf-tester and root")
def test_ocf_tester_passes(site: Site) -> None:
    node = site.alone()
    lint = site.tools / "xmllint"  # what it calls for the meta-data; not everybody has it
    lint.write_text(_LINT.format(python=sys.executable))
    lint.chmod(0o755)
    for folder in (site.folder, *site.folder.parents):  # it also asks as nobody
        if folder.stat().st_uid == os.geteuid() and str(folder) != "/":
            folder.chmod(folder.stat().st_mode | 0o055)
    options = [word for name, value in node.parameters.items() for word in ("-o", f"{name}={value}")]
    assert TESTER is not None
    done = subprocess.run(
        [TESTER, "-v", "-n", "pair", *options, site.script],
        env=os.environ | {"PATH": f"{site.tools}:{os.environ['PATH']}", "TEST_SCORE": "/dev/null"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed all tests" in done.stdout
