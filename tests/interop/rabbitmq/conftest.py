"""One RabbitMQ for all of these tests; names that no other test has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.compare.rabbitmq import MissingBroker, version
from tests.interop.rabbitmq.brokers import Client, Ours, Rabbit, client, ours, rabbit


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    try:
        version()
    except MissingBroker as missing:
        pytest.skip(str(missing))
    with rabbit(tmp_path_factory.mktemp("rabbitmq")) as running:
        yield running


@pytest.fixture(scope="session")
def leaf(theirs: Rabbit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    with ours(tmp_path_factory.mktemp("leaf"), theirs.ca) as running:
        yield running


@pytest.fixture
def there(theirs: Rabbit) -> Iterator[Client]:
    with client(theirs.port) as found:
        yield found


@pytest.fixture
def here(leaf: Ours) -> Iterator[Client]:
    with client(leaf.port) as found:
        yield found
