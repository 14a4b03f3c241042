"""One live broker per test, and kombu connections to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.server.live import Live, live_broker


@pytest.fixture
def live() -> Iterator[Live]:
    with live_broker() as broker:
        yield broker
