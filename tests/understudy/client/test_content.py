"""What other publishers put into messages, and what the consumer of the kit makes of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import amqp
import kombu.entity
import pytest

from tests.understudy.broker_thread import BrokerThread
from understudy.client import Consumer, Publisher
from understudy.client.consumer import Delivery

ORDERS: Any = getattr(kombu.entity, "Queue")("orders", durable=True)  # noqa: B009 (kombu is half typed)
NOON = datetime(2000, 1, 1, 12)
_NOON = struct.pack(">Q", 946728000)
_Message: Any = amqp.Message


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as running:
        yield running


class Late(_Message):  # type: ignore[misc]
    """Each noon in it is the second that is given instead."""

    def __init__(self, second: int, **properties: Any) -> None:
        super().__init__(b"late", **properties)
        self._second = second

    def _serialize_properties(self) -> bytes:
        made: bytes = super()._serialize_properties()
        assert _NOON in made
        return made.replace(_NOON, struct.pack(">Q", self._second))


def received(broker: BrokerThread, message: Any) -> Delivery:
    """It, as the consumer of the kit hands it out, and another one behind it."""
    with Publisher(str(broker.address), "shop", declare=[ORDERS]) as shop:
        shop.connect()
        channel = shop._session.channel  # type: ignore[union-attr]
        channel.basic_publish(message, "", "orders")
        channel.basic_publish(_Message(b"next"), "", "orders")
        with Consumer(str(broker.address), "orders", "billing") as billing:
            delivery, behind = billing.receive(5), billing.receive(5)
            assert delivery is not None and behind is not None and behind.body == b"next"
            assert billing.failover.connects == 1
    return delivery


@pytest.mark.parametrize("second", [253402300800, 2**63, 2**64 - 1])
def test_a_timestamp_beyond_the_years_of_python_is_its_seconds(broker: BrokerThread, second: int) -> None:
    delivery = received(
        broker,
        Late(
            second, content_type="text/x", content_encoding="binary", message_id="m-1", timestamp=second,
            application_headers={
                "n": 1, "when": NOON, "text": "ü",
                "table": {"in": [NOON, None, {"deep": NOON}], "last": True},
            },
        ),
    )  # fmt: skip
    assert delivery.body == b"late"
    headers = {name: value for name, value in delivery.headers.items() if name != "x-replication-id"}
    assert headers == {
        "n": 1, "when": second, "text": "ü", "table": {"in": [second, None, {"deep": second}], "last": True},
    }  # fmt: skip
    properties = delivery.properties
    assert (properties["content_type"], properties["content_encoding"]) == ("text/x", "binary")
    assert (properties["message_id"], properties["timestamp"]) == ("m-1", second)
    assert delivery.id is not None and delivery.id.sequence == 1


def test_other_timestamps_are_as_py_amqp_has_them(broker: BrokerThread) -> None:
    delivery = received(broker, _Message(b"x", application_headers={"when": NOON, "n": -5}))
    assert (delivery.headers["when"], delivery.headers["n"]) == (NOON, -5)


def test_of_two_timestamps_only_the_one_that_is_too_late_is_a_number(broker: BrokerThread) -> None:
    early = datetime(1999, 12, 31)
    delivery = received(broker, Late(2**62, application_headers={"early": early, "late": NOON}))
    assert (delivery.headers["early"], delivery.headers["late"]) == (early, 2**62)


@pytest.mark.parametrize(("encoding", "body"), [(None, b""), ("binary", b""), ("utf-8", "")])
def test_an_empty_body_is_of_the_type_that_others_have(
    broker: BrokerThread, encoding: str | None, body: bytes | str
) -> None:
    properties = {} if encoding is None else {"content_encoding": encoding}
    delivery = received(broker, _Message(b"", **properties))
    assert delivery.body == body and type(delivery.body) is type(body)


@pytest.mark.parametrize("octets", [b"\xff", b"\xff\0\xfe", b"\xff" * 255])
@pytest.mark.parametrize("body", [b"", b"x"])
def test_keys_and_properties_that_are_no_text_are_bytes(
    broker: BrokerThread, octets: bytes, body: bytes
) -> None:
    ids = {"correlation_id": octets, "content_encoding": octets, "type": "ü", "priority": 3, "timestamp": 5}
    ids["application_headers"] = {"n": 1}
    with Publisher(str(broker.address), "shop", declare=[ORDERS]) as shop:
        shop.connect()
        returned: list[Any] = []
        channel = shop._session.channel  # type: ignore[union-attr]
        channel.queue_bind("orders", "amq.direct", octets)
        channel.events["basic_return"].add(lambda *told: returned.append(told))
        channel.basic_publish(_Message(body, **ids), "amq.direct", octets)
        channel.basic_publish(_Message(b"next"), "", "orders")
        channel.basic_publish(_Message(body, **ids), "", octets, mandatory=True)
        shop.publish(b"last", "orders")
        shop.flush(5)
        with Consumer(str(broker.address), "orders", "billing") as billing:
            delivery, behind = billing.receive(5), billing.receive(5)
            assert billing.failover.connects == 1
    assert delivery is not None and behind is not None and behind.body == b"next"
    assert (delivery.exchange, delivery.routing_key, delivery.body) == ("amq.direct", octets, body)
    headers = {name: value for name, value in delivery.headers.items() if name != "x-replication-id"}
    assert {**delivery.properties, "application_headers": headers} == ids
    assert (len(returned), returned[0][-1].octets_of_key) == (1, octets)
