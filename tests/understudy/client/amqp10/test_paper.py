"""The examples of docs/reference/amqp10.md, as they stand there, against a broker that is a process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("proton")

from tests.understudy.client.amqp10.plain import ORDERS
from tests.understudy.serving import serving
from understudy.client import Publisher as PlainPublisher
from understudy.client.amqp10 import Consumer

PAPER = Path(__file__).parents[4] / "docs" / "reference" / "amqp10.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAPER.read_text(), re.DOTALL)
ADDRESSES = re.compile(r"(?:127\.0\.0\.1|10\.0\.0\.[12]):5672")


def example(word: str, address: str) -> str:
    """The only one with that word."""
    (found,) = [text for text in EXAMPLES if word in text]
    made, count = ADDRESSES.subn(address, found)
    assert count
    return made


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serving(tmp_path / "node") as running:
        with PlainPublisher(str(running.amqp), "declarer", declare=[ORDERS]) as declarer:
            declarer.connect(20)
        yield str(running.amqp)


def test_the_example_of_plain_proton(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("BlockingConnection", address), {})
    assert capsys.readouterr().out == "order 1\n"


def test_the_example_of_the_kit(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its loop is endless there."""
    deliveries = Consumer.deliveries

    def one(consumer: Consumer) -> Any:
        return deliveries(consumer, until=lambda: consumer.counts.received == 1)

    monkeypatch.setattr(Consumer, "deliveries", one)
    monkeypatch.chdir(tmp_path)
    exec(example("understudy.client.amqp10", address), {})
    assert re.fullmatch(r"b'order 1' False [0-9a-f]{32}:\d+:1\n", capsys.readouterr().out)
    assert len(list((tmp_path / "ledgers").glob("*.jsonl"))) == 2


def test_the_example_of_the_container(address: str) -> None:
    """It comes back within 50 ms, for ever."""
    from proton.handlers import MessagingHandler
    from proton.reactor import Backoff, Container

    class Once(MessagingHandler):
        opened = False

        def on_start(self, event: Any) -> None:
            text = example("Backoff", address).replace('"shop"', '"guest"').replace('"..."', '"guest"')
            exec(text, {"container": event.container, "Backoff": Backoff})

        def on_connection_opened(self, event: Any) -> None:
            self.opened = True
            event.connection.close()

    handler = Once()
    Container(handler).run()
    assert handler.opened
