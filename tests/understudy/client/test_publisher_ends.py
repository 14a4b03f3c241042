"""The publisher of the client kit, closed or interrupted: nothing is forgotten, and the ledger has an end."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from tests.understudy.client.fake_broker import FakeFailover, broker_dies
from tests.understudy.client.test_publisher import bodies, publisher, records
from understudy.client import Publisher


class Interrupting(deque[Any]):
    """An interrupt as soon as something was taken out of it."""

    def popleft(self) -> Any:
        super().popleft()
        raise KeyboardInterrupt


def test_an_interrupt_in_the_middle_of_resending_loses_nothing() -> None:
    broker = FakeFailover()
    shop = publisher(broker)
    for body in (b"1", b"2", b"3"):
        shop.publish(body, "q")
    broker.script.append(broker_dies)
    shop.poll()
    shop._waiting = Interrupting(shop._waiting)
    with pytest.raises(KeyboardInterrupt):
        shop.connect()
    assert shop.in_doubt == 3
    shop.connect()
    assert bodies(broker.channels[-1]) == [b"1", b"2", b"3"]


def test_an_interrupt_while_a_lost_connection_is_dropped_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which may take long, over TLS."""
    broker = FakeFailover()
    shop = publisher(broker)
    for body in (b"1", b"2", b"3"):
        shop.publish(body, "q")
    drop = broker.drop

    def interrupt() -> None:
        drop()
        raise KeyboardInterrupt

    monkeypatch.setattr(broker, "drop", interrupt)
    broker.script.append(broker_dies)
    with pytest.raises(KeyboardInterrupt):
        shop.poll()
    assert shop.in_doubt == 3
    monkeypatch.undo()
    shop.publish(b"4", "q")
    assert bodies(broker.channel) == [b"1", b"2", b"3", b"4"]


def test_nothing_is_sent_once_it_is_closed() -> None:
    """The ledger is sealed: what went out now would be of no producer that the ledgers know."""
    broker = FakeFailover()
    shop = publisher(broker)
    shop.publish(b"1", "q")
    shop.close()
    for _ in range(2):
        for late in (shop.poll, shop.flush, shop.connect):
            with pytest.raises(RuntimeError, match="closed"):
                late()
    assert (shop.in_doubt, shop.counts.resent, len(broker.channels)) == (1, 0, 1)


def test_a_publish_during_which_a_callback_closes_is_refused() -> None:
    broker = FakeFailover()
    shop: Publisher = publisher(broker, window=1, on_nack=lambda _number: shop.close())
    shop.publish(b"1", "q")
    broker.script.append(lambda: broker.channel.nack(1))
    with pytest.raises(RuntimeError, match="closed"):
        shop.publish(b"2", "q")
    assert (shop.counts.published, bodies(broker.channel)) == (1, [b"1"])


def test_a_block_may_close_the_publisher_with_messages_in_doubt() -> None:
    with publisher(FakeFailover()) as shop:
        shop.publish(b"1", "q")
        shop.close()
    assert shop.in_doubt == 1


def test_a_block_whose_flush_fails_seals_the_ledger(tmp_path: Path) -> None:
    broker = FakeFailover()

    def interrupt() -> None:
        raise KeyboardInterrupt

    broker.script.append(interrupt)
    with pytest.raises(KeyboardInterrupt), publisher(broker, ledger_dir=tmp_path) as shop:
        shop.publish(b"1", "q")
    assert [record["kind"] for record in records(tmp_path)] == ["open", "sent", "seal"]


def test_a_close_that_is_interrupted_seals_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FakeFailover()
    shop = publisher(broker, ledger_dir=tmp_path)
    shop.publish(b"1", "q")

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(broker, "close", interrupt)
    with pytest.raises(KeyboardInterrupt):
        shop.close()
    assert [record["kind"] for record in records(tmp_path)] == ["open", "sent", "seal"]
