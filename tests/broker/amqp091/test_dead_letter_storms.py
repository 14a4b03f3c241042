"""Dead letters to many queues: the work that one message or one moment causes is spread over many ticks."""

from __future__ import annotations

from typing import Any

import pytest

from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.codec.message_format import Amqp091Format
from broker.model.queue.removals import COPIES, WORK_AT_ONCE, work_of
from tests.broker.amqp091.wire import Raw, World, message
from tests.builds import PURE_ONLY

pytestmark = PURE_ONLY


class Storm(World):
    """Counts dead letters, and the maximum that one tick makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.letters = self.most = self.ticks = 0
        made, end_tick = Amqp091Format.dead_lettered, self.broker.end_tick

        def counted(*args: Any, **named: Any) -> Any:
            self.letters += 1
            return made(*args, **named)

        def ticked(now: float, wall_ms: int) -> None:
            before = self.letters
            end_tick(now, wall_ms)
            self.ticks += 1
            self.most = max(self.most, self.letters - before)

        monkeypatch.setattr(Amqp091Format, "dead_lettered", counted)
        monkeypatch.setattr(self.broker, "end_tick", ticked)

    def each_to_all(self, count: int, **arguments: Any) -> Raw:
        """`count` queues that hold nothing, and dead-letter everything to all of them."""
        client = self.open()
        client.call(1, "exchange.declare", exchange="all", type="fanout")
        rules = {"x-max-length": 0, "x-dead-letter-exchange": "all"} | arguments
        for number in range(count):
            client.call(1, "queue.declare", queue=f"q{number}", arguments=rules)
            client.call(1, "queue.bind", queue=f"q{number}", exchange="all", routing_key="")
        return client

    def whole(self) -> None:
        while self.vhost.removals.waiting:
            self.tick()


def test_one_message_that_becomes_thousands_lets_others_be_served_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storm = Storm(monkeypatch)
    storm.each_to_all(7).publish(1, b"x", routing_key="q0")
    storm.whole()
    assert storm.letters == 1957, "e x 6!: each way through the seven that begins at q0"
    assert storm.most <= WORK_AT_ONCE // work_of(0, 0, 0) and storm.ticks > 1
    assert not any(queue.total_count for queue in storm.vhost.queues.values())


@pytest.mark.parametrize("kind", ["fanout", "headers"])
def test_many_that_expire_at_once_into_many_queues(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storm = Storm(monkeypatch)
    client = storm.open()
    client.call(1, "exchange.declare", exchange="all", type=kind)
    for number in range(100):
        client.call(1, "queue.declare", queue=f"end{number}")
        client.call(1, "queue.bind", queue=f"end{number}", exchange="all", routing_key="")
    rules = {"x-message-ttl": 1000, "x-dead-letter-exchange": "all"}
    client.call(1, "queue.declare", queue="short", arguments=rules)
    for number in range(300):
        client.publish(1, b"%d" % number, routing_key="short")
    storm.pass_time(2)
    storm.whole()
    assert storm.letters == 300 and storm.most <= WORK_AT_ONCE // work_of(0, 0, 100) + 1
    for number in range(100):
        queue = storm.vhost.queues[f"end{number}"]
        assert queue.total_count == 300


def test_queues_with_many_dead_letters_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    storm = Storm(monkeypatch)
    client = storm.open()
    client.call(1, "exchange.declare", exchange="all", type="fanout")
    client.call(1, "queue.declare", queue="end")
    for number in range(100):
        client.call(1, "queue.declare", queue=f"end{number}")
        client.call(1, "queue.bind", queue=f"end{number}", exchange="all", routing_key="")
    rules = {"x-max-length": 0, "x-dead-letter-exchange": "all"}
    for name in ("many", "more"):
        client.call(1, "queue.declare", queue=name, arguments=rules)
    limit = {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"}
    client.call(1, "queue.declare", queue="one", arguments=limit)
    for name in ("many", "more"):
        client.connection.receive(message(1, b"x", "", name) * 300, storm.now)
    storm.broker.end_tick(storm.now, int(storm.now * 1000))
    for body in (b"1", b"2", b"3"):
        client.connection.receive(message(1, body, "", "one"), storm.now)
    for _ in range(3):
        storm.broker.end_tick(storm.now, int(storm.now * 1000))
    left = {name: storm.vhost.queues[name].total_count for name in ("many", "more", "one", "end")}
    assert left["one"] == 1 and left["end"] == 2
    assert 200 < left["many"] < 300 and 200 < left["more"] < 299, "in turns, and not done yet"


def stormy(storm: Storm) -> Raw:
    """Ten queues with 2000 messages each, all expired at once, after the first tick."""
    client = storm.open()
    client.call(1, "queue.declare", queue="end")
    rules = {"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"}
    for number in range(10):
        client.call(1, "queue.declare", queue=f"q{number}", arguments=rules)
        client.connection.receive(message(1, b"x", "", f"q{number}") * 2000, storm.now)
    storm.broker.end_tick(storm.now, int(storm.now * 1000))
    storm.now += 2
    storm.broker.end_tick(storm.now, int(storm.now * 1000))
    return client


def test_a_limit_without_dead_letters_waits_for_no_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    storm = Storm(monkeypatch)
    client = stormy(storm)
    declare = encode_frame(1, "queue.declare", queue="last", arguments={"x-max-length": 1})
    client.connection.receive(declare, storm.now)
    last = storm.vhost.queues["last"]
    for _ in range(4):
        client.connection.receive(message(1, b"y", "", "last") * 3, storm.now)
        storm.now += 0.001
        storm.broker.end_tick(storm.now, int(storm.now * 1000))
        assert last.message_count == 1
    assert storm.vhost.queues["q9"].message_count, "it is not over yet"


@pytest.mark.parametrize("storming", ["by rule", "by a client"])
def test_readers_see_no_queue_above_its_limit_in_a_storm(
    storming: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages removed by a limit become dead letters, also if the queue is purged in the same read."""
    storm = Storm(monkeypatch)
    client = stormy(storm) if storming == "by rule" else storm.open()
    looker = client if storming == "by rule" else storm.open()
    client.connection.receive(encode_frame(1, "queue.declare", queue="dead"), storm.now)
    way = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    for name, more in (("one", {"x-max-length": 1}), ("many", {})):
        declare = encode_frame(1, "queue.declare", queue=name, arguments=way | more)
        client.connection.receive(declare, storm.now)
    rejected = 0
    if storming == "by a client":
        rejected = 2 * COPIES
        client.raw(message(1, b"x", "", "many") * rejected)
        client.send(1, "basic.consume", queue="many", consumer_tag="c")
        client.connection.receive(
            encode_frame(1, "basic.nack", delivery_tag=0, multiple=True, requeue=False), storm.now
        )
        client = looker
    one, dead = storm.vhost.queues["one"], storm.vhost.queues["dead"]
    made = dead.message_count
    assert made < rejected or not rejected
    client.connection.receive(message(1, b"y", "", "one") * 5, storm.now)
    client.connection.receive(encode_frame(1, "queue.declare", queue="one", passive=True), storm.now)
    assert one.message_count == 1
    client.connection.receive(encode_frame(1, "queue.purge", queue="one"), storm.now)
    assert (one.message_count, dead.message_count) == (0, made + 4)
    storm.whole()
    assert dead.message_count == rejected + 4


def test_expired_queues_are_deleted_after_their_dead_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process was suspended, and everything is due at once."""
    storm = Storm(monkeypatch)
    client = storm.open()
    client.call(1, "queue.declare", queue="dead")
    rules = {"x-message-ttl": 1000, "x-expires": 2000, "x-dead-letter-exchange": ""}
    for number in range(60):
        way = {"x-dead-letter-routing-key": "dead"}
        client.call(1, "queue.declare", queue=f"q{number}", arguments=rules | way)
        client.connection.receive(message(1, b"x", "", f"q{number}") * 50, storm.now)
    storm.tick()
    storm.now += 3
    storm.tick()
    storm.whole()
    assert storm.vhost.queues["dead"].message_count == storm.letters == 3000
    assert list(storm.vhost.queues) == ["dead"] and storm.most < 500


def test_a_cycle_among_queues_that_all_refuse_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    storm = Storm(monkeypatch)
    client = storm.each_to_all(9, **{"x-overflow": "reject-publish-dlx"})
    client.call(1, "confirm.select")
    client.publish(1, b"x", routing_key="q0")
    storm.whole()
    assert client.names() == ["basic.nack"]
    assert 9 < storm.letters <= COPIES, "e x 8! would be 109,601"
    client.call(1, "queue.declare", queue="end")
    client.call(1, "queue.bind", queue="end", exchange="all", routing_key="")
    client.publish(1, b"y", routing_key="q0")
    storm.whole()
    assert storm.vhost.queues["end"].total_count > 0
