"""A site for each test of the agent as a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.resource_agent.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as found:
        yield found
