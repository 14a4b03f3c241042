"""Brokers that speak AMQP 1.0, in threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.understudy.broker_thread import BrokerThread


@pytest.fixture
def brokers() -> Iterator[Callable[..., BrokerThread]]:
    """`brokers(epoch)` starts one more."""
    from broker.amqp10.connection import PROTOCOLS

    with ExitStack() as stack:
        yield lambda *said, **more: stack.enter_context(BrokerThread(*said, protocols=PROTOCOLS, **more))


@pytest.fixture
def broker(brokers: Callable[..., BrokerThread]) -> BrokerThread:
    return brokers()
