"""Random nets against one broker with all bindings. `FEDERATION_SEEDS=N` runs more."""

from __future__ import annotations

import os

import pytest

from tests.ha.federation.graphs import CYCLES
from tests.ha.federation.oracle import Oracle

SEEDS = int(os.environ.get("FEDERATION_SEEDS", "12"))
FEW, SMALL = 2, 4
"""Of each `make test`: so many seeds, with nets of so many nodes at most."""
MOST_IN_CYCLES = 6


@pytest.mark.parametrize("seed", range(FEW))
def test_a_small_net_is_as_one_broker(seed: int) -> None:
    Oracle(seed, SMALL).run()


@pytest.mark.system
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_net_is_as_one_broker(seed: int) -> None:
    Oracle(seed).run()


@pytest.mark.system
@pytest.mark.parametrize("seed", range(2 * SEEDS))
def test_a_net_with_cycles_is_as_one_broker(seed: int) -> None:
    Oracle(seed, MOST_IN_CYCLES, CYCLES).run()
