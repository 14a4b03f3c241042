"""How much a broker lets a client send ahead, seen from the client."""

from __future__ import annotations

import pytest

pytest.importorskip("proton")

from tests.understudy.broker_thread import BrokerThread
from tests.understudy.client.amqp10.plain import ORDERS, declare
from understudy.client.amqp10 import Publisher


def test_a_whole_window_leaves_without_a_word_from_the_broker(broker: BrokerThread) -> None:
    """Within one session many transfers may be on their way: a round trip for each few would be slow."""
    declare(broker, ORDERS)
    with Publisher(str(broker.address), "shop") as shop:
        shop.publish(b"first", "orders")
        shop.flush(10)
        with broker.frozen():
            for number in range(400):
                shop.publish(b"%d" % number, "orders")
            assert (shop.in_doubt, shop._is_held_up()) == (400, False)
