"""Transactions of a plain client on real processes, whose primary is killed again and again: what it moves
from one queue to another is in exactly one of them (invariants 6, 7)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.failover.nodes.pair import FAULTS, PATIENCE, Pair, channel_of

MESSAGES = 30_000
BUNDLE = 5
KILLS = 2
"""Every other one of `left`."""
COMMITS = 60
"""Between two kills."""
ROLLED_BACK = 4
"""One in so many transactions is rolled back first."""
BACK_OFF = 0.05
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as made:
        yield made


class Mover:
    """Takes bundles from `one` to `other` in transactions, on whichever node serves, until `stop`."""

    def __init__(self, pair: Pair) -> None:
        self.commits = 0
        self.moved: set[int] = set()
        """What was in a transaction whose commit-ok has come."""
        self._failure: BaseException | None = None
        self._pair = pair
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def _guarded(self) -> None:
        try:
            while not self._enough.is_set():
                for name in self._pair.addresses:
                    try:
                        with channel_of(self._pair, name) as channel:
                            self._move_on(channel)
                    except FAULTS:
                        self._enough.wait(BACK_OFF)
        except BaseException as failure:
            self._failure = failure

    def _move_on(self, channel: Any) -> None:
        channel.tx_select()
        while not self._enough.is_set():
            numbers, tag = self._bundle(channel)
            if self.commits % ROLLED_BACK == 0:
                self._settle(channel, numbers, tag)
                channel.tx_rollback()
            self._settle(channel, numbers, tag)
            channel.tx_commit()
            self.moved.update(numbers)
            self.commits += 1

    def _bundle(self, channel: Any) -> tuple[list[int], int]:
        numbers, tag = [], 0
        for _ in range(BUNDLE):
            method, _, body = channel.basic_get("one")
            assert method is not None, "all messages are moved: there are too few of them"
            numbers.append(int(body))
            tag = method.delivery_tag
        return numbers, tag

    def _settle(self, channel: Any, numbers: list[int], tag: int) -> None:
        for number in numbers[:3]:
            channel.basic_publish("", "other", b"%d" % number, PERSISTENT)
        channel.basic_ack(tag, multiple=True)
        for number in numbers[3:]:
            channel.basic_publish("", "other", b"%d" % number, PERSISTENT)

    def goes_on(self, more: int) -> None:
        """Wait for so many commits."""
        goal = self.commits + more
        self._pair.until(lambda: self._failure is not None or self.commits >= goal, f"{more} commits")
        assert self._failure is None, self._failure

    def stop(self) -> None:
        self._enough.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive() and self._failure is None, self._failure


def _fill(pair: Pair) -> None:
    with channel_of(pair, "left") as channel:
        for queue in ("one", "other"):
            channel.queue_declare(queue, durable=True)
        channel.tx_select()
        for number in range(MESSAGES):
            channel.basic_publish("", "one", b"%d" % number, PERSISTENT)
        channel.tx_commit()


def _drained(pair: Pair, name: str, queue: str) -> list[int]:
    with channel_of(pair, name) as channel:
        count = channel.queue_declare(queue, passive=True).method.message_count
        numbers: list[int] = []
        if count:
            for _, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=PATIENCE):
                assert body is not None, "the queue has fewer messages than it said"
                numbers.append(int(body))
                if len(numbers) == count:
                    break
        return numbers


def test_a_message_moved_in_transactions_is_in_one_queue_whenever_the_primary_is_killed(pair: Pair) -> None:
    pair.whole()
    _fill(pair)
    mover = Mover(pair)
    serving, other = "left", "right"
    try:
        for kill in range(KILLS):
            mover.goes_on(COMMITS)
            pair.kill(serving)
            code, _, err = pair.command("promote", other)
            assert code == 0, err
            mover.goes_on(COMMITS)
            serving, other = other, serving
            if kill + 1 < KILLS:
                pair.start(other)
                pair.wait_for(other, "ready")
    finally:
        mover.stop()
    moved = _drained(pair, serving, "other")
    left = _drained(pair, serving, "one")
    assert sorted(moved + left) == list(range(MESSAGES))
    assert mover.moved <= set(moved)
