"""What these tests need besides the kit: queues, declared over 0-9-1, and the records of a ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kombu.entity

from tests.understudy.broker_thread import BrokerThread
from understudy.client import Publisher

Queue: Any = kombu.entity.Queue
Exchange: Any = kombu.entity.Exchange
ORDERS: Any = Queue("orders", durable=True)


def declare(broker: BrokerThread, *entities: Any, **options: Any) -> None:
    """By a publisher of the kombu kit, which declares and publishes nothing."""
    publisher = Publisher(str(broker.address), "declares", declare=entities, **options)
    publisher.connect()
    publisher.close()


def delete(broker: BrokerThread, queue: Any) -> None:
    publisher = Publisher(str(broker.address), "deletes")
    publisher.connect()
    assert publisher._session is not None
    queue(publisher._session.channel).delete()
    publisher.close()


def delete_exchange(broker: BrokerThread, exchange: Any) -> None:
    publisher = Publisher(str(broker.address), "deletes")
    publisher.connect()
    assert publisher._session is not None
    exchange(publisher._session.channel).delete()
    publisher.close()


def records(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    """Of the only ledger there."""
    (path,) = folder.glob("*.ledger.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [record for record in found if not kinds or record["kind"] in kinds]
