"""For every test of the simulation."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces methods of the product, also in the processes that its tests start."""
    monkeypatch.setenv("UNDERSTUDY_PURE", "1")
