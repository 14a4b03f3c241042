"""One live broker per module, a connection and a channel per test; names that no other test has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest

from broker.model.history.records import EntryPut
from broker.security.password_hashes import rabbit_hash
from tests.broker.server.live import Live, live_broker

SECRET = rabbit_hash("rabbit_password_hashing_sha256", "AQIDBDB9kM21iEUzN1lZ+6VReCsdNqS0sERdAQTcY6Xs3PMz")


STORED = (
    EntryPut("vhost", "", "second"),
    EntryPut("user", "", "worker", {"tags": [], "password_hash": SECRET}),
    EntryPut("permission", "/", "worker", {"configure": ".*", "write": ".*", "read": ".*"}),
)
"""A user who may do everything, and is no administrator."""


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with live_broker(stored=STORED) as broker:
        yield broker


@pytest.fixture
def connect(live: Live) -> Iterator[Callable[..., Any]]:
    """Opens one more connection; all are closed at the end."""
    opened: list[Any] = []

    def connect(**parameters: Any) -> Any:
        opened.append(pika.BlockingConnection(pika.ConnectionParameters(live.host, live.port, **parameters)))
        return opened[-1]

    yield connect
    for connection in opened:
        if connection.is_open:
            connection.close()


@pytest.fixture
def connection(connect: Callable[..., Any]) -> Any:
    return connect()


@pytest.fixture
def channel(connection: Any) -> Any:
    return connection.channel()


_NUMBERS = itertools.count(1)


@pytest.fixture
def new() -> Callable[[str], str]:
    """`new("q")`: a name that begins so."""
    return lambda start: f"{start}-{next(_NUMBERS)}"
