"""Ad-hoc replication between real processes: a broker of no cluster follows a queue of a pair whose primary
is killed under load, and serves what it has once it is stopped.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kombu.entity
import pika
import pika.exceptions
import pytest

from tests.failover.nodes.cluster import PATIENCE, Cluster, local_places
from tests.failover.nodes.pair import Pair, understudy
from understudy.client import Consumer, Publisher

_Queue: Any = kombu.entity.Queue
ORDERS = _Queue("orders", durable=True)
LINK = "ha.password=lab"
"""The default is no good at a broker of its own, as a source."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path / "pair", LINK) as made:
        yield made


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "far", local_places(["far"]), LINK) as made:
        made.start("far", brokers="")
        yield made


class Load:
    """A publisher, and a consumer that takes a part of what comes, until `stop`."""

    def __init__(self, pair: Pair) -> None:
        ledgers = pair.folder / "clients"
        self.publisher = Publisher(pair.both, "shop", ledgers, declare=[ORDERS], window=100)
        self.consumer = Consumer(pair.both, "orders", "store", ledgers, declare=[ORDERS])
        self.sent = self.taken = 0
        self._enough = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._publish, self._consume)]
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        with self.publisher:
            while not self._enough.is_set():
                self.publisher.publish(b"%d" % self.sent, "orders")
                self.sent += 1

    def _consume(self) -> None:
        """Half of what is sent, so that there is always something in the queue."""
        with self.consumer:
            deliveries = self.consumer.deliveries(until=self._enough.is_set)
            for _ in deliveries:
                self.taken += 1
                while self.taken > self.sent // 2 and not self._enough.is_set():
                    self._enough.wait(0.001)

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads)


def copy_of(far: Cluster) -> dict[str, Any]:
    [line] = far.answer("far")["replications"]
    assert isinstance(line, dict)
    return line


def bodies(port: int, queue: str) -> list[tuple[int, bool]]:
    """All that is there, in order, by basic.get; and whether it is flagged redelivered."""
    found = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        while True:
            method, _, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((int(body or b""), bool(method.redelivered)))


@pytest.mark.system
def test_a_copy_follows_a_pair_whose_primary_is_killed_and_then_serves(
    pair: Pair, far: Cluster, judge: Callable[..., dict[str, Any]]
) -> None:
    pair.whole()
    load = Load(pair)
    port = far.addresses["far"].port
    try:
        pair.until(lambda: load.publisher.counts.confirmed > 500, "confirms")
        code, out, err = understudy("replicate", "-b", str(far.addresses["far"]), pair.list, "orders")
        assert code == 0, err
        assert "'orders' follows 'orders' of left" in out
        far.until(lambda: copy_of(far)["state"] == "following", "the copy to follow")
        pair.kill("left")
        code, _, err = pair.command("promote", "right")
        assert code == 0, err
        before = load.publisher.counts.confirmed
        pair.until(lambda: load.publisher.counts.confirmed > before + 500, "confirms")
        far.until(lambda: str(copy_of(far)["from"]).startswith("right at"), "the new primary to be followed")
        far.kill("far")
        far.start("far", brokers="")
    finally:
        load.stop()
    far.until(lambda: copy_of(far)["state"] == "following", "the copy to follow again")
    [line] = [q for q in pair.ask("right", "query")["status"]["queue_list"] if q["name"] == "orders"]
    assert line["ready"] > 100
    far.until(
        lambda: copy_of(far)["messages"] == line["ready"] and copy_of(far)["lag"] == 0, "the last of it"
    )
    [follower] = pair.answer("right")["followers"]
    assert follower == {"queue": "orders", "follower": "far", "state": "following"}

    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"405, .*replicated from another broker"):
        bodies(port, "orders")
    code, out, err = understudy("replicate", "-b", str(far.addresses["far"]), "--stop", "orders")
    assert code == 0, err
    assert "an ordinary queue now" in out
    copied = bodies(port, "orders")
    assert all(redelivered for _, redelivered in copied)
    there = bodies(pair.addresses["right"].port, "orders")
    assert [number for number, _ in copied] == [number for number, _ in there]
    assert len(there) == line["ready"]
    assert far.stop("far") == pair.stop("right") == 0
    answer = judge(pair.folder, far.folder)
    assert answer["verdict"] == "proven", answer


def test_the_command_says_what_is_wrong_in_one_line_and_lists_what_there_is(pair: Pair, far: Cluster) -> None:
    pair.whole()
    at, source = str(far.addresses["far"]), str(pair.addresses["left"])

    def run(*words: str) -> tuple[int, str]:
        """Without the code of the refusal."""
        code, out, err = understudy("replicate", "-b", at, *words)
        assert err.count("\n") == (1 if code else 0), err
        return code, re.sub(r" \([a-z-]+\)$", "", err.strip()) or out.strip()

    assert run(source, "nope") == (
        1, f"understudy: replicate refused by {at}: {source}: left: it has no queue 'nope'"
    )  # fmt: skip
    code, said = run(f"0.0.0.0:{pair.addresses['left'].port}", "q")
    assert (code, "in the clear: set ha.tls" in said) == (1, True)
    code, said = run(at, "q")
    assert (code, said.endswith("far: it is this very broker")) == (1, True)
    code, said = run(str(pair.addresses["right"]), "q")
    assert code == 1
    assert "it does not serve (ready); left at " in said
    assert run("nowhere", "q") == (2, "understudy: 'nowhere' is not an address HOST:PORT")
    for words in (
        (),
        (source,),
        ("--list", source, "q"),
        ("--stop", "x", "--list"),
        ("--name", "x", "--list"),
    ):
        assert run(*words)[0] == 2
    assert run("--stop", "q") == (
        1, f"understudy: replicate refused by {at}: there is no queue 'q' that follows another broker's"
    )  # fmt: skip
    with pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", pair.addresses["left"].port)
    ) as at_left:
        at_left.channel().queue_declare("q", durable=True)
    assert run(source, "q")[0] == 0
    assert run("127.0.0.1:1", "q") == (
        1, f"understudy: {at}: 'q' looks for 'q' at 127.0.0.1:1 from now on, and has not found it yet: "
        "127.0.0.1:1: nobody answers there"
    )  # fmt: skip
    assert run("--stop", "q")[0] == 0
    assert run("--list")[1] == "no queue mirrors here, and none elsewhere of a queue of this broker"
    assert json.loads(run("--list", "--format", "json")[1]) == {"replications": [], "followers": []}
    assert "q" not in far.answer("far")["replications"]
