"""Events of membership, as a plain client of the pair sees them over real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.failover.nodes.pair import PATIENCE, Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as made:
        yield made


def connected(pair: Pair, name: str) -> Any:
    return pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{pair.addresses[name]}/%2F"))


def test_a_client_hears_of_a_failover_and_of_the_backup_that_is_back(pair: Pair) -> None:
    pair.whole()
    connection = connected(pair, "left")
    channel = connection.channel()
    channel.queue_declare("watch", durable=True)
    channel.queue_bind("watch", "amq.failover", "#")
    channel.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.basic_publish("amq.failover", "promoted.me", b"{}")
    assert refused.value.reply_code == 403
    pair.kill("left")
    code, _, err = pair.command("promote", "right")
    assert code == 0, err
    connection = connected(pair, "right")
    channel = connection.channel()
    pair.start("left")
    events: list[dict[str, Any]] = []
    for method, properties, body in channel.consume("watch", inactivity_timeout=PATIENCE):
        assert method is not None, events
        assert (properties.content_type, properties.delivery_mode) == ("application/json", 1)
        events.append(json.loads(body))
        assert properties.type == events[-1]["event"] == method.routing_key.split(".")[0]
        channel.basic_ack(method.delivery_tag)
        if events[-1]["event"] == "in-sync":
            break
    connection.close()
    assert [(e["event"], e["node"]) for e in events] == [
        ("promoted", "right"), ("joining", "left"), ("in-sync", "left")
    ]  # fmt: skip
    assert all(e["primary"] == "right" and len(e["brokers"]) == 2 for e in events)
    assert events[-1]["in_sync"] == ["left"]
