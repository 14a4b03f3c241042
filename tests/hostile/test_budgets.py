"""What the input of one connection may cause in a turn, in counted steps: others have theirs in between."""

from __future__ import annotations

from collections import deque
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp091.codec.fields import write_table
from broker.amqp091.codec.frames import HEADER, HEARTBEAT_FRAME, frame
from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.codec.properties import HEADERS
from broker.model.history.batch import Batch
from broker.model.history.records import Dequeue, Unrouted
from broker.model.history.replication_id_set import to_ranges
from broker.model.queue import removals
from broker.model.queue.freeing import PIECE, stretches
from broker.model.routing import headers_matcher, topic_trie
from broker.model.routing.headers_matcher import LOOK
from broker.model.routing.publish_route import PublishRoute
from broker.model.steps import finish
from broker.model.vhost.turns import PER_RUN, publish_in_turns
from broker.model.vhost.vhost import Published
from broker.settings import BrokerSettings
from tests.broker.amqp091.wire import Raw, World, message
from tests.broker.stored import permission, user
from tests.builds import PURE_ONLY

SHARE = BrokerSettings().share
REFUSES = "reject-publish"
EMPTY = frame(HEADER, 1, b"\0\x3c\0\0" + bytes(8) + b"\0\0")


def publish(exchange: str = "amq.fanout", routing_key: str = "") -> bytes:
    return encode_frame(1, "basic.publish", exchange=exchange, routing_key=routing_key) + EMPTY


class Hall:
    """A broker, and an attacker with queues of its own. `turn` ends one tick; `held`: messages in all
    queues."""

    def __init__(self, queues: int, **settings: Any) -> None:
        self.world = World(**settings)
        self.attacker = self.world.open()
        for number in range(queues):
            self.bind(number)
        self.attacker.read()

    def bind(self, number: int, **binding: Any) -> None:
        where = {"exchange": "amq.fanout", "routing_key": "", **binding}
        self.attacker.send(1, "queue.declare", queue=f"q{number}")
        self.attacker.send(1, "queue.bind", queue=f"q{number}", **where)

    @property
    def held(self) -> int:
        return sum(queue.message_count for queue in self.world.vhost.queues.values())

    def hear(self, data: bytes, client: Raw | None = None) -> None:
        (client or self.attacker).connection.receive(data, self.world.now)

    def turn(self) -> int:
        """One tick; messages that it has put into queues."""
        before = self.held
        self.world.broker.end_tick(self.world.now, int(self.world.now * 1000))
        return self.held - before

    def read(self) -> list[str]:
        """What the attacker is told."""
        self.attacker.inbox += b"".join(self.attacker.connection.take_output())
        return [seen.name for seen in self.attacker.read()]

    def read_counts(self) -> list[int]:
        """Of messages, in what the attacker is told."""
        self.attacker.inbox += b"".join(self.attacker.connection.take_output())
        return [seen["message_count"] for seen in self.attacker.read()]

    def watch(self) -> None:
        """Keep the batches of history from now on."""
        self.batches: list[Batch] = []
        self.world.broker.sinks.append(self)
        self.world.vhost.history.ledger_wanted = True

    def batch(self, batch: Batch) -> None:
        self.batches.append(batch)

    def steps(self, data: bytes) -> list[int]:
        """Messages put into queues at once, and in each tick, until no input waits."""
        before = self.held
        self.hear(data)
        made = [self.held - before]
        while self.world.broker.resuming:
            made.append(self.turn())
        return made


def test_a_read_of_publishes_to_many_queues_is_served_in_turns() -> None:
    hall = Hall(1000)
    made = hall.steps(publish() * 100)
    assert sum(made) == 100_000
    assert max(made) <= 2 * SHARE and len(made) > 3


def test_body_frames_of_one_octet_are_served_in_turns() -> None:
    """Bodies in one large frame are not: this costs by the frame."""
    hall = Hall(1)
    count = 20_000
    head = frame(HEADER, 1, b"\0\x3c\0\0" + count.to_bytes(8, "big") + b"\0\0")
    hall.hear(encode_frame(1, "basic.publish", routing_key="q0") + head + frame(3, 1, b"x") * count)
    served = [hall.attacker.connection.half_received]
    while hall.world.broker.resuming:
        hall.turn()
        served.append(hall.attacker.connection.half_received)
    assert hall.held == 1
    octets = len(frame(3, 1, b"x"))
    assert max(after - before for before, after in pairwise([0, *served])) < octets * SHARE // 4
    assert len(served) > 4


def test_the_first_publish_after_bindings_have_changed_goes_by_what_it_may_reach() -> None:
    """One binding makes a cheap exchange an expensive one."""
    hall = Hall(1000)
    hall.attacker.call(1, "exchange.declare", exchange="x", type="fanout")
    assert sum(hall.steps(publish("x") * 50)) == 0
    hall.attacker.call(1, "exchange.bind", destination="amq.fanout", source="x", routing_key="")
    made = hall.steps(publish("x") * 100)
    assert sum(made) == 100_000 and max(made) <= 2 * SHARE


@pytest.mark.parametrize("how", ["bodies in two frames", "other properties each time", "other bodies"])
def test_it_is_the_same_however_messages_are_made(how: str) -> None:
    hall = Hall(1000)
    method = encode_frame(1, "basic.publish", exchange="amq.fanout", routing_key="")
    if how == "bodies in two frames":
        head = frame(HEADER, 1, b"\0\x3c\0\0" + (2).to_bytes(8, "big") + b"\0\0")
        data = (method + head + 2 * frame(3, 1, b"x")) * 100
    elif how == "other bodies":
        data = b"".join(message(1, b"x" * number, "amq.fanout", "") for number in range(100))
    else:
        data = b"".join(
            method + frame(HEADER, 1, b"\0\x3c\0\0" + bytes(8) + b"\0\x80" + b"\x04%04d" % number)
            for number in range(100)
        )
    made = hall.steps(data)
    assert sum(made) == 100_000
    assert max(made) <= 2 * SHARE and len(made) > 3


def test_one_message_that_costs_more_than_a_share_goes_to_some_queues_at_a_time() -> None:
    """Its confirm waits for the last one, and so does what comes behind it."""
    hall = Hall(200, share=100)
    hall.attacker.call(1, "confirm.select")
    hall.hear(publish() * 2 + encode_frame(1, "queue.purge", queue="q0"))
    seen = []
    while hall.world.broker.resuming:
        assert hall.turn() <= 2 * 100 // PER_RUN
        seen += [(hall.held, name) for name in hall.read()]
    assert [name for _, name in seen] == ["basic.ack", "basic.ack", "queue.purge-ok"]
    assert seen[0][0] >= 200 and seen[1][0] == 400 and hall.held == 398
    assert [queue.message_count for queue in hall.world.vhost.queues.values()] == [0] + [2] * 199


def test_queues_that_come_and_go_meanwhile_have_nothing_of_it() -> None:
    hall, other = (made := Hall(200, share=100)), made.world.open()
    hall.attacker.call(1, "confirm.select")
    hall.hear(publish())
    hall.turn()
    before = hall.held
    assert 0 < before < 100 and not hall.read()
    other.call(1, "queue.delete", queue="q199")
    other.call(1, "queue.declare", queue="new")
    other.call(1, "queue.bind", queue="new", exchange="amq.fanout", routing_key="")
    while hall.world.broker.resuming:
        hall.turn()
    assert hall.read() == ["basic.ack"] and hall.held == 199
    assert hall.world.vhost.queues["new"].message_count == 0


def test_only_what_came_into_no_queue_is_unrouted() -> None:
    """Of two messages the first one finds one of three queues deleted on its way, the second one all."""
    hall = Hall(3)
    hall.watch()
    vhost, told = hall.world.vhost, list[tuple[int, int]]()

    def publish_some(part: PublishRoute, raws: list[bytes], at: int) -> Published:
        return vhost.publish(
            part, raws, persistent=False, channel=1, largest_frame=20, producer="p", first_tag=1 + at
        )

    work = publish_in_turns(
        vhost.route("amq.fanout", ""), [EMPTY, EMPTY], PER_RUN + 1, publish_some,
        lambda done, at, count: told.append((1 + at, count)),
    )  # fmt: skip
    next(work)
    hall.attacker.call(1, "queue.delete", queue="q1")
    while not told:
        next(work)
    assert hall.held == 2
    for name in ("q0", "q2"):
        hall.attacker.call(1, "queue.delete", queue=name)
    looked = vhost.looked
    finish(work)
    hall.turn()
    assert told == [(1, 1), (2, 1)] and vhost.looked == looked
    records = [record for batch in hall.batches for record in batch.records]
    assert [record for record in records if isinstance(record, Unrouted)] == [Unrouted("p", 2, 2)]


def test_a_queue_that_refuses_is_heard_of_when_all_others_have_it() -> None:
    hall = Hall(100, share=100)
    hall.attacker.send(1, "queue.declare", queue="full", arguments={"x-max-length": 0, "x-overflow": REFUSES})
    hall.attacker.send(1, "queue.bind", queue="full", exchange="amq.fanout", routing_key="")
    hall.attacker.send(1, "confirm.select")
    assert sum(hall.steps(publish() * 2)) == 200
    assert [name for name in hall.read() if name.startswith("basic")] == ["basic.nack"] * 2


PATTERNS = [".".join(words) for words in product("a*#", repeat=6) if "##" not in "".join(words)]


@pytest.mark.parametrize("kind", ["topic", "headers"])
def test_a_route_over_very_many_bindings_is_found_in_turns(kind: str) -> None:
    """A topic exchange may look at each pattern for each word, and a headers exchange at each group of
    bindings that asks for one of the message's headers."""
    hall = Hall(0, share=500)
    wanted = {f"h{number}": number for number in range(len(PATTERNS))}
    for pattern, (name, value) in zip(PATTERNS, wanted.items(), strict=True):
        by = {"routing_key": pattern} if kind == "topic" else {"arguments": {name: value}}
        hall.bind(0, exchange=f"amq.{kind}", **by)
    hall.attacker.send(1, "confirm.select")
    while hall.world.broker.resuming:
        hall.turn()
    key = ".".join(["a"] * 50)
    topic = encode_frame(1, "basic.publish", exchange="amq.topic", routing_key=key) + EMPTY
    hall.hear(topic if kind == "topic" else with_headers(wanted))
    looked = [hall.world.vhost.looked]
    while hall.world.broker.resuming:
        hall.turn()
        looked.append(hall.world.vhost.looked)
    most = max(after - before for before, after in pairwise(looked))
    assert most <= 500 + (topic_trie.PIECE if kind == "topic" else LOOK * headers_matcher.PIECE)
    assert len(looked) > 2
    assert hall.read()[-1:] == ["basic.ack"] and hall.held == 1


def with_headers(headers: dict[str, Any]) -> bytes:
    method = encode_frame(1, "basic.publish", exchange="amq.headers", routing_key="")
    flags = HEADERS.to_bytes(2, "big")
    return method + frame(HEADER, 1, b"\0\x3c\0\0" + bytes(8) + flags + write_table(headers))


def test_messages_by_headers_are_counted_by_the_queues_that_they_reach() -> None:
    hall = Hall(0)
    for number in range(300):
        hall.bind(number, exchange="amq.headers", arguments={"x-match": "any", "a": 1})
    made = hall.steps(with_headers({"a": 1}) * 300)
    assert sum(made) == 90_000 and max(made) <= 2 * SHARE and len(made) > 3


def looks(bindings: list[dict[str, Any]], headers: dict[str, Any]) -> int:
    """At how many groups of bindings a message is looked at; there is one queue for each binding."""
    hall = Hall(0)
    for number, arguments in enumerate(bindings):
        hall.bind(number, exchange="amq.headers", arguments=arguments)
    hall.steps(with_headers(headers))
    return hall.world.vhost.looked // LOOK


@pytest.mark.parametrize(
    ("bindings", "headers", "most"),
    [
        ([{"x-match": "all", "a": n} for n in range(900)], {"a": 7}, 2),
        ([{"x-match": "all", "a": 1, "b": n} for n in range(900)], {"a": 1, "b": 7}, 3),
        ([{"x-match": "all", "a": 1, "b": 1}] * 900, {"a": 1}, 2),
        ([{"x-match": "any", "a": n, "b": n} for n in range(900)], {"a": 7, "b": 8}, 3),
        ([{"a": n % 30, "b": n // 30} for n in range(900)], {"a": 7, "b": 7}, 62),
        ([{"a": [n]} for n in range(900)], {"a": [7]}, 2),
        ([{"a": 1, "x-b": n} for n in range(900)], {"a": 1}, 2),
    ],
)
def test_a_message_is_not_looked_at_for_each_binding_by_headers(
    bindings: list[dict[str, Any]], headers: dict[str, Any], most: int
) -> None:
    assert looks(bindings, headers) <= most


def test_methods_are_counted() -> None:
    hall = Hall(0)
    hall.hear(encode_frame(1, "queue.declare", queue="q", passive=False) * 1000)
    first = hall.world.vhost.generation
    assert hall.world.broker.resuming
    while hall.world.broker.resuming:
        hall.turn()
    assert hall.world.vhost.generation == first
    assert hall.read() == ["queue.declare-ok"] * 1000


def test_what_waits_is_served_in_order_and_nothing_overtakes_it() -> None:
    hall = Hall(10, share=20)
    hall.hear(publish() * 5 + encode_frame(1, "queue.purge", queue="q0"))
    hall.hear(publish())
    while hall.world.broker.resuming:
        hall.turn()
    assert hall.read() == ["queue.purge-ok"]
    assert {name: queue.message_count for name, queue in hall.world.vhost.queues.items()} == {
        f"q{number}": 6 if number else 1 for number in range(10)
    }


def test_others_are_served_between_two_turns() -> None:
    hall = Hall(100, share=100)
    victim = hall.world.open()
    hall.hear(publish() * 50)
    hall.turn()
    hall.hear(encode_frame(1, "queue.declare", queue="own"), victim)
    hall.turn()
    victim.inbox += b"".join(victim.connection.take_output())
    assert [seen.name for seen in victim.read()] == ["queue.declare-ok"]
    assert hall.world.broker.resuming
    assert hall.world.broker.next_deadline() == hall.world.now


def test_more_input_than_a_bound_is_not_read() -> None:
    hall = Hall(100, share=100)
    hall.hear(publish() * 1000)
    connection = hall.attacker.connection
    assert not connection.paused_reading
    while not connection.paused_reading:
        hall.hear(publish() * 1000)
    assert connection.unserved < 300_000
    while hall.world.broker.resuming:
        hall.turn()
    assert not connection.paused_reading and not connection.unserved


def test_what_waits_is_not_served_while_an_alarm_keeps_publishers_waiting() -> None:
    hall = Hall(100, share=100)
    hall.hear(publish() * 5)
    hall.world.broker.input_paused = True
    for connection in hall.world.broker.connections:
        connection.update_paused()
    assert [hall.turn() for _ in range(3)] == [0, 0, 0]
    assert not hall.world.broker.resuming
    hall.world.broker.resume_input()
    hall.turn()
    while hall.world.broker.resuming:
        hall.turn()
    assert hall.held == 500


def test_a_client_that_ends_without_a_close_is_heard_to_the_end() -> None:
    hall = Hall(100, share=100)
    hall.hear(publish() * 5)
    hall.attacker.connection.eof(hall.world.now)
    assert not hall.attacker.closed
    while hall.world.broker.resuming:
        hall.turn()
    assert hall.attacker.closed and hall.held == 500


def test_a_socket_that_is_gone_is_heard_no_more() -> None:
    hall = Hall(100, share=100)
    hall.hear(publish() * 5)
    hall.turn()
    before = hall.held
    hall.attacker.connection.lost(hall.world.now)
    assert not hall.world.broker.resuming
    assert hall.turn() == 0 and hall.held == before < 100


def test_a_close_by_the_broker_ends_the_turns() -> None:
    hall = Hall(100, share=100)
    hall.hear(publish() * 5)
    hall.turn()
    before = hall.held
    hall.world.broker.close_connections(320, "CONNECTION_FORCED - so", hall.world.now)
    assert hall.turn() == 0
    hall.hear(encode_frame(0, "connection.close-ok"))
    assert hall.attacker.closed and hall.held == before < 100


def test_a_client_whose_input_waits_is_alive_and_gets_signs_of_life() -> None:
    hall = Hall(0, share=100)
    client = hall.world.open(heartbeat=10)
    for number in range(100):
        hall.bind(number)
    hall.hear(publish() * 2000 + HEARTBEAT_FRAME, client)
    hall.hear(publish() * 2000, client)
    for _ in range(50):
        hall.world.now += 1
        hall.world.broker.timers(hall.world.now)
        hall.turn()
    assert not client.closed and client.connection.paused_reading
    assert HEARTBEAT_FRAME in b"".join(client.connection.take_output())


def test_a_link_has_no_turns() -> None:
    """Peers and operators are not counted."""
    hall = Hall(0, share=1)
    hall.attacker.connection.is_management = True
    hall.hear(encode_frame(1, "channel.flow", active=True) * 3)
    assert not hall.world.broker.resuming


# -- messages that leave all at once


def filled(messages: int, **declared: Any) -> Hall:
    """With so many in the queue `deep`."""
    hall = Hall(0, share=10**9)
    hall.attacker.call(1, "queue.declare", queue="deep", **declared)
    while hall.held < messages:
        hall.attacker.raw(publish("", "deep") * min(10_000, messages - hall.held))
    return hall


def dequeued(hall: Hall) -> list[tuple[int, int]]:
    """Ranges of ids that history has had dequeued, in order."""
    return sorted(
        each for batch in hall.batches for record in batch.records if isinstance(record, Dequeue)
        for each in record.ranges
    )  # fmt: skip


@pytest.mark.parametrize("declared", [{}, {"arguments": {"x-max-priority": 3}}])
@pytest.mark.parametrize("how", ["queue.purge", "queue.delete"])
def test_a_deep_queue_is_emptied_at_once_and_freed_in_pieces(how: str, declared: dict[str, Any]) -> None:
    many = 3 * PIECE
    hall = filled(many, durable=True, **declared)
    hall.watch()
    freeing = hall.world.vhost.removals.freeing
    hall.hear(encode_frame(1, how, queue="deep"))
    assert hall.held == 0 and freeing.waiting == many
    hall.turn()
    assert hall.read_counts() == [many]
    assert dequeued(hall) == [(1, many)]
    assert hall.world.broker.next_deadline() == hall.world.now
    left = [freeing.waiting]
    while freeing.waits:
        hall.turn()
        left.append(freeing.waiting)
    assert left == [many - PIECE, many - 2 * PIECE, 0]


def test_gaps_are_in_history_as_they_were() -> None:
    hall = filled(2 * PIECE, durable=True)
    hall.attacker.send(1, "basic.qos", prefetch_count=10)
    hall.attacker.send(1, "basic.consume", queue="deep", consumer_tag="c")
    for tag in (2, 3, 7):
        hall.attacker.send(1, "basic.ack", delivery_tag=tag)
    hall.world.pass_time(1)
    hall.watch()
    hall.attacker.send(1, "queue.delete", queue="deep")
    assert dequeued(hall) == [(1, 1), (4, 6), (8, 13), (14, 2 * PIECE)]


def test_what_is_unacked_is_freed_in_pieces_too() -> None:
    hall = filled(2 * PIECE)
    hall.attacker.send(1, "basic.consume", queue="deep", consumer_tag="c")
    hall.world.pass_time(1)
    assert hall.world.vhost.queues["deep"].unacked_count == 2 * PIECE
    hall.hear(encode_frame(1, "queue.delete", queue="deep"))
    assert hall.world.vhost.removals.freeing.waiting == 2 * PIECE


@PURE_ONLY
@given(st.sets(st.integers(1, 60), min_size=1))
def test_stretches_are_the_ranges_of_what_is_there(seqs: set[int]) -> None:
    entries: Any = deque((seq, None, b"") for seq in sorted(seqs))
    assert stretches(entries) == to_ranges(list(seqs))


@PURE_ONLY
def test_many_gaps_are_no_stretches() -> None:
    entries: Any = deque((2 * seq, None, b"") for seq in range(5000))
    assert stretches(entries) is None


def test_an_empty_queue_leaves_nothing_in_history() -> None:
    hall = filled(0, durable=True)
    hall.watch()
    hall.attacker.send(1, "queue.purge", queue="deep")
    hall.attacker.send(1, "queue.delete", queue="deep")
    assert not [r for batch in hall.batches for r in batch.records if isinstance(r, Dequeue)]


def test_those_whose_turn_has_ended_share_one_turn_in_each_tick() -> None:
    hall = Hall(100)
    others = [hall.world.open() for _ in range(9)]
    for client in (hall.attacker, *others):
        hall.hear(publish() * 200, client)
    made = []
    while hall.world.broker.resuming:
        made.append(hall.turn())
    assert hall.held == 10 * 200 * 100
    assert max(made) <= 2 * SHARE, "and not ten times as much"
    assert len(made) >= 10 * 200 * 100 // (2 * SHARE) - 10


def test_large_tables_of_arguments_use_up_a_turn() -> None:
    hall = Hall(1)
    table = write_table({f"k{n}": "v" * 20 for n in range(400)})
    declare = encode_frame(1, "queue.declare", queue="q0", arguments={})
    method = declare[7:-5] + table
    hall.hear(frame(1, 1, method) * 10)
    answered = [len(hall.read())]
    while hall.world.broker.resuming:
        hall.turn()
        answered.append(len(hall.read()))
    assert max(answered) <= 2 and sum(answered) == 10


def test_a_permission_whose_pattern_is_slow_uses_up_a_turn() -> None:
    hall = Hall(0)
    hall.world.vhost.shared.change_directory([user("alice"), permission(configure="^([a-z]+)*_q$")])
    hall.turn()
    hall.attacker = hall.world.open(user="alice", password="word")
    declares = b""
    for number in range(2, 12):
        hall.attacker.call(number, "channel.open")
        declares += encode_frame(number, "queue.declare", queue=f"{'q' * 30}{number:02d}")
    hall.hear(declares)
    refused = [len(hall.read())]
    while hall.world.broker.resuming:
        hall.turn()
        refused.append(len(hall.read()))
    assert sum(refused) == 10 and max(refused) <= 3


def test_queues_that_became_too_long_are_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removals, "LOOKS", 10)
    hall = Hall(0)
    for number in range(25):
        hall.attacker.send(1, "queue.declare", queue=f"q{number}", arguments={"x-max-length": 1})
        hall.attacker.send(1, "queue.bind", queue=f"q{number}", exchange="amq.fanout", routing_key="")
    hall.hear(publish() * 3)
    assert [hall.turn() for _ in range(4)] == [-20, -20, -10, 0]
    assert hall.world.broker.next_deadline() != hall.world.broker.now
