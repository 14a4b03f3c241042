"""A real primary that is left alone, killed and restarted alone, has its transient messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pika
import pytest

from tests.failover.nodes.pair import Pair, channel_of
from understudy.management import ask

TRANSIENT = pika.BasicProperties(delivery_mode=1)


def put(channel: Any, numbers: range) -> None:
    channel.confirm_delivery()
    for number in numbers:
        channel.basic_publish("", "q", b"%d" % number, TRANSIENT)


def kept(pair: Pair) -> bool:
    return ask(pair.addresses["left"], "status")["status"]["last_man"]["on_disk_since"] is not None


@pytest.mark.system
def test_what_is_transient_is_there_after_kill_9_of_the_last_man(tmp_path: Path) -> None:
    with Pair(tmp_path, "ha.last_man=persist", "ha.ack_timeout=500ms") as pair:
        pair.whole()
        with channel_of(pair, "left") as channel:
            channel.queue_declare("q", durable=True)
            put(channel, range(300))
        pair.kill("right")
        pair.until(lambda: kept(pair), "the last man has everything on disk")
        with channel_of(pair, "left") as channel:
            put(channel, range(300, 500))
            for number in range(50):
                method, _, body = channel.basic_get("q")
                assert body == b"%d" % number
                channel.basic_ack(method.delivery_tag)
            put(channel, range(500, 501))
        pair.kill("left")
        pair.start("left")
        answer = pair.ask("left", "promote")
        assert answer["ok"], answer
        with channel_of(pair, "left") as channel:
            bodies = []
            while (found := channel.basic_get("q", auto_ack=True))[0] is not None:
                bodies.append(int(found[2]))
        assert bodies == list(range(50, 501))
