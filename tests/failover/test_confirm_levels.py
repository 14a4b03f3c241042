"""A real pair with confirms below `all-disks`: a killed node costs nothing; the verdict names the level."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kombu.entity
import pytest

from tests.failover.nodes.pair import Pair
from understudy.client import Publisher
from understudy.management import ask

_Queue: Any = kombu.entity.Queue
ORDERS = _Queue("orders", durable=True)


@pytest.mark.system
def test_the_verdict_names_the_level_by_which_messages_were_confirmed(
    tmp_path: Path, judge: Callable[..., dict[str, Any]]
) -> None:
    with Pair(tmp_path, "ha.confirm=all-memory", "ha.ack_timeout=500ms") as pair:
        pair.whole()
        with Publisher(pair.both, "shop", tmp_path / "clients", declare=[ORDERS]) as shop:
            for number in range(500):
                shop.publish(b"%d" % number, "orders")
            shop.flush(timeout=10)
            pair.kill("left")
            answer = pair.ask("right", "promote")
            assert answer["ok"], answer
            for number in range(500, 700):
                shop.publish(b"%d" % number, "orders")
            shop.flush(timeout=10)
        status = ask(pair.addresses["right"], "status")["status"]
        assert status["confirm"] == {"default": "all-memory", "least": "primary-disk", "record": "all-memory"}
        assert "under all-memory" in status["reason"]
        assert pair.stop("right") == 0
    answer = judge(tmp_path)
    assert (answer["verdict"], answer["confirm_level"]) == ("proven", "all-memory"), answer
    assert answer["sentence"].startswith("Proven under all-memory: none of the 700 confirmed messages")
