"""Some conversations that nobody should hold: see `fuzz`. `make soak-fuzz` holds them for ten minutes."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("proton")

from tests.hostile.fuzz.machines import WORDS, hold
from tests.hostile.fuzz.sockets import process

MANY, SOME = 1500, 40
"""On machines, and over sockets, of each protocol."""
FIRST = 10_000 * (int(os.environ.get("PYTEST_SEED") or 0) % 100_000)


@pytest.mark.parametrize("protocol", sorted(WORDS))
def test_machines_bear_any_conversation(protocol: str) -> None:
    for seed in range(FIRST, FIRST + MANY):
        try:
            hold(protocol, seed)
        except Exception as error:
            error.add_note(f"python -m tests.hostile.fuzz --only {seed} --protocol {protocol}")
            raise


def test_a_process_bears_any_conversation() -> None:
    with process() as broker:
        for seed in range(FIRST, FIRST + SOME):
            for protocol in WORDS:
                broker.hold(protocol, seed)
