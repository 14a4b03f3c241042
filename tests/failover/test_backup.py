"""A copy of a pair's backup under load, the loss of both nodes, and a new node of the copy: with everything
that was confirmed before the copy was asked for, and not consumed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kombu.entity
import pytest

from tests.failover.nodes.pair import PATIENCE, Pair, understudy
from understudy.client import Consumer, Publisher

_Queue: Any = kombu.entity.Queue
KEPT, PASSING = _Queue("kept", durable=True), _Queue("passing", durable=True)
SEGMENTS = "broker.segment_size=64k"
BEFORE = 2500
"""Numbers that are confirmed in each queue before the copy is asked for."""
BODY_BYTES = 250


class Traffic:
    """Publishes each number to both queues, in order, until `stop`, and consumes one, but for the end."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._enough = threading.Event()
        self._moved = threading.Condition()
        self.confirmed = self.consumed = 0
        """Numbers below these."""
        self._threads = [threading.Thread(target=run) for run in (self._publish, self._consume)]
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        with Publisher(self._pair.both, "shop", declare=[KEPT, PASSING], window=100) as shop:
            while not self._enough.is_set():
                upto = self.confirmed + 50
                for number in range(self.confirmed, upto):
                    for queue in ("kept", "passing"):
                        shop.publish(b"%d" % number + b" " * BODY_BYTES, queue)
                shop.flush(PATIENCE)
                self._tell("confirmed", upto)

    def _consume(self) -> None:
        with Consumer(self._pair.both, "passing", "reader", declare=[PASSING]) as reader:
            while not self._enough.is_set() and self.consumed < BEFORE - 200:
                delivery = reader.receive(0.1)
                if delivery is not None:
                    self._tell("consumed", int(delivery.body) + 1)  # before the broker can know
                    reader.ack(delivery)

    def _tell(self, what: str, number: int) -> None:
        with self._moved:
            setattr(self, what, number)
            self._moved.notify_all()

    def wait(self, condition: Callable[[Traffic], bool]) -> None:
        with self._moved:
            assert self._moved.wait_for(lambda: condition(self), 4 * PATIENCE), "the traffic stands still"

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE)
            assert not thread.is_alive()


def drained(pair: Pair, queue: str, count: int) -> list[int]:
    found: list[int] = []
    with Consumer(pair.both, queue, "drain") as consumer:
        while len(found) < count:
            delivery = consumer.receive(PATIENCE)
            assert delivery is not None, f"{queue} has only {len(found)} of {count} messages"
            found.append(int(delivery.body))
            consumer.ack(delivery)
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Taken of `right` while both queues grow and one drains; says what must be in it, and both nodes die."""
    out = tmp_path / "copy"
    with Pair(tmp_path / "old", SEGMENTS) as pair:
        pair.whole()
        traffic = Traffic(pair)
        try:
            traffic.wait(lambda t: t.confirmed >= BEFORE and t.consumed >= 500)
            confirmed = traffic.confirmed
            code, said, err = understudy("backup", str(pair.folder / "right"), str(out), "--format", "json")
            assert code == 0, err
            consumed = traffic.consumed
            traffic.wait(lambda t: t.confirmed > confirmed + 50)  # it flows on
        finally:
            traffic.stop()
        assert pair.status("right") == "ready"
        assert sorted(path.name for path in pair.folder.glob("right/*")) == [
            "insync.json", "ledger", "lock", "node.json", "overflow", "store",
        ]  # fmt: skip
        pair.kill("right")
        pair.kill("left")
    told = json.loads(said)
    counts = {queue["name"]: queue["messages"] for queue in told["queues"]}
    assert told["node_name"] == "right" and not told["stale"] and counts["kept"] >= confirmed
    (tmp_path / "told.json").write_text(json.dumps([confirmed, consumed, counts]))
    return out


@pytest.mark.system
def test_all_that_was_confirmed_comes_back_standalone_and_as_a_pair(copy: Path, tmp_path: Path) -> None:
    confirmed, consumed, counts = json.loads((tmp_path / "told.json").read_text())
    with Pair(tmp_path / "alone", "ha.brokers=", "ha.replicate=none") as alone:
        code, _, err = understudy("restore", str(copy), str(alone.folder / "left"), "--name", "left")
        assert code == 0, err
        alone.start("left")
        kept = drained(alone, "kept", counts["kept"])
        assert kept == list(range(len(kept))) and len(kept) >= confirmed
        passing = drained(alone, "passing", counts["passing"])
        assert consumed < confirmed
        assert passing == sorted(passing) and set(passing) >= set(range(consumed, confirmed))
        assert alone.ask("left", "query")["status"]["queue_list"][0]["ready"] == 0

    with Pair(tmp_path / "new") as pair:
        code, _, err = understudy("restore", str(copy), str(pair.folder / "left"))
        assert code == 0, err
        pair.start("left", "right")
        code, _, err = pair.command("promote", "right")
        assert code == 1 and "left" in err, err  # the empty one would lose it all
        code, _, err = pair.command("promote", "left")
        assert code == 0, err
        pair.wait_for("right", "ready")
        pair.kill("left")
        code, _, err = pair.command("promote", "right")
        assert code == 0, err
        assert drained(pair, "kept", counts["kept"]) == kept


def test_a_backup_that_has_not_joined_anew_is_not_copied(tmp_path: Path) -> None:
    with Pair(tmp_path / "pair") as pair:
        pair.whole()
        pair.stop("right")
        code, _, err = understudy("backup", str(pair.folder / "right"), str(tmp_path / "stopped"))
        assert code == 0, err  # in the record that it has, and stopped since
        pair.kill("left")
        pair.start("right")
        code, _, err = understudy("backup", str(pair.folder / "right"), str(tmp_path / "again"))
        assert code == 1 and "right is not in its own in-sync record" in err
        assert not (tmp_path / "again").exists()
