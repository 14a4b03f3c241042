"""The checker of configurations, shown what it must object to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from tests.simulation.checker_tests.checked import Pair, violates
from tests.simulation.checkers.primary.compatibility import Compatibility4


@pytest.mark.parametrize(
    "other",
    [
        {"lease": 9.0},
        {"replicate": "none"},
        {"on_backup_loss": "block"},
        {"min_backups": 1},
        {"authority": "register"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_4_who_catches_up_is_configured_to_the_same(other: dict[str, Any]) -> None:
    pair = Pair(count=1)
    checker = Compatibility4(pair.world.machines)
    with mock.patch.object(type(pair.b), "role", lambda self: "catch-up" if self is pair.b else "active"):
        pair.b.settings = replace(pair.b.settings, replicate="all", ack_timeout=9.0)
        checker.tick(pair.b)
        assert checker.checked == 1
        pair.b.settings = replace(pair.b.settings, **other)
        pair.b.life += 1
        with violates(4, f"B catches up with A, with .* of {next(iter(other.values()))!r}"):
            checker.tick(pair.b)
