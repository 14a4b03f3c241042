"""Waits of the client kits that end once the ledger has heartbeats enough, however slow the machine is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.client.ledgers import Pulse

ENOUGH = 4
PATIENCE = 3.0
"""Seconds. A wait that looks at the ledger only once a second has fewer heartbeats by then."""


class Enough(Exception):
    """Raised out of the wait."""


def check_heartbeats(folder: Path, name: str, wait: Callable[[float], object]) -> None:
    """Assert that one call of `wait`, of at most `PATIENCE` seconds, writes `ENOUGH` heartbeats of `name`."""
    beat, before = Pulse.beat, _heartbeats(folder, name)

    def beat_then_look(self: Pulse) -> None:
        beat(self)
        if _heartbeats(folder, name) >= before + ENOUGH:
            raise Enough

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Enough):
        patch.setattr(Pulse, "beat", beat_then_look)
        wait(PATIENCE)


def _heartbeats(folder: Path, name: str) -> int:
    (path,) = folder.glob(f"{name}*.ledger.jsonl")
    return path.read_text().count('"heartbeat"')
