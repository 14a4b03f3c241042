"""For every test of the simulation."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation replaces methods of the product, also in processes that a test starts."""
    monkeypatch.setenv("UNDERSTUDY_PURE", "1")
