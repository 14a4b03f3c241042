"""One CIB by each tool for the whole run: pcs takes a second for each command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy import cibs
from tests.deploy.simulated import Simulated
from tests.deploy.tools import require


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> cibs.AgentInstalled:
    require(*cibs.TOOLS, root=True)
    return cibs.AgentInstalled(tmp_path_factory.mktemp("machine"))


@pytest.fixture(scope="session")
def crmsh(machine: cibs.AgentInstalled, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    require("crm")
    return cibs.by_crmsh(machine, tmp_path_factory.mktemp("crmsh"))


@pytest.fixture(scope="session")
def pcs(machine: cibs.AgentInstalled, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    require("pcs")
    return cibs.by_pcs(machine, tmp_path_factory.mktemp("pcs"))


@pytest.fixture
def cluster(crmsh: tuple[Path, str], tmp_path: Path) -> Simulated:
    """Both nodes up, brokers started, `a` the primary with the address, `b` its ready backup."""
    return Simulated(crmsh[0], tmp_path).whole()
