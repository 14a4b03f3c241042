"""The end of clients that hold very many messages: others have their turns before all are ready again."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp091.codec.grammar import encode_frame
from broker.amqp091.server import consuming
from broker.model.history.records import Entry, Envelope
from broker.model.queue.put_back import put_back
from broker.model.queue.queue import Queue
from broker.model.queue.requeueing import PIECE, Returning
from tests.broker.amqp091.wire import Raw, World, message
from tests.builds import PURE_ONLY

MANY = 5000


def envelope(epoch: int) -> Envelope:
    return Envelope(epoch, "", "q", persistent=False, wall_ms=0, channel=1, largest_frame=16)


class Hall(World):
    """Queue `q`, and a publisher. `turn` ends one tick."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self.publisher = self.open()
        self.publisher.call(1, "queue.declare", queue="q", arguments=arguments)
        self.q = self.vhost.queues["q"]

    def fill(self, count: int, body: bytes = b"") -> None:
        at = self.q.total_count
        self.publisher.raw(b"".join(message(1, body or b"%d" % (at + n), "", "q") for n in range(count)))

    def consumer(self, *channels: int, prefetch: int = 0) -> Raw:
        client = self.open(channel=0)
        for number in channels or (1,):
            client.call(number, "channel.open")
            client.call(number, "basic.qos", prefetch_count=prefetch)
            client.call(number, "basic.consume", queue="q", consumer_tag="c")
        client.read()
        return client

    def say(self, client: Raw, name: str, **arguments: Any) -> None:
        """Without a tick."""
        client.connection.receive(encode_frame(1, name, **arguments), self.now)

    def turn(self) -> None:
        self.broker.end_tick(self.now, int(self.now * 1000))

    @property
    def busy(self) -> bool:
        due = self.broker.next_deadline()
        return due is not None and due <= self.now

    def depths(self) -> list[int]:
        """Ready messages now, and after each tick that follows."""
        found = [self.q.message_count]
        while self.busy:
            self.turn()
            found.append(self.q.message_count)
        return found

    def bodies(self) -> list[int]:
        return [int(raw[raw.index(b"\xce") + 8 : -1]) for _, _, raw in self.q.ready]


def check_steps(depths: list[int]) -> None:
    assert depths[-1] == MANY
    assert max(after - before for before, after in pairwise([0, *depths])) <= PIECE


ENDS = ("lost", "eof", "connection.close")


@pytest.mark.parametrize(
    ("end", "channels"),
    [(end, (1,)) for end in (*ENDS, "channel.close", "nack", "recover")]
    + [(end, tuple(range(1, 8))) for end in ENDS],
)
def test_what_a_client_held_is_ready_again_in_pieces(end: str, channels: tuple[int, ...]) -> None:
    hall = Hall()
    client = hall.consumer(*channels)
    hall.fill(MANY)
    assert hall.q.unacked_count == MANY
    if end == "lost":
        client.connection.lost(hall.now)
    elif end == "eof":
        client.connection.eof(hall.now)
    elif end == "connection.close":
        client.connection.close(320, "CONNECTION_FORCED - so")
    elif end == "channel.close":
        hall.say(client, end, reply_code=200, reply_text="", failed_class=0, failed_method=0)
    else:
        hall.say(client, "basic.cancel", consumer_tag="c", nowait=False)
        arguments = {"delivery_tag": 0, "multiple": True} if end == "nack" else {}
        hall.say(client, f"basic.{end}", requeue=True, **arguments)
    check_steps(hall.depths())
    hall.tick()
    assert hall.q.message_count == MANY and hall.q.unacked_count == 0
    assert hall.bodies() == list(range(MANY))
    assert all(entry[1].redelivered for entry in hall.q.ready)
    assert not hall.vhost.removals.in_pieces and hall.q.returning is None


def test_nothing_newer_overtakes_what_is_on_its_way_back() -> None:
    hall = Hall()
    client, other = hall.consumer(), hall.consumer(prefetch=1)
    hall.fill(1)
    hall.fill(MANY)
    client.connection.lost(hall.now)
    hall.publisher.connection.receive(message(1, b"0", "", "q") * 10, hall.now)
    other.inbox = b""
    first = hall.q.total_count
    hall.say(other, "basic.ack", delivery_tag=1, multiple=False)
    seen: list[int] = []
    while hall.busy:
        hall.turn()
        other.inbox += b"".join(other.connection.take_output())
        seen += [int(frame.body) for frame in other.read() if frame.name == "basic.deliver"]
    assert seen == [0]
    assert hall.q.total_count == first - 1


def test_a_get_a_purge_and_a_delete_of_what_is_empty_know_of_it() -> None:
    hall = Hall()
    client = hall.consumer()
    hall.fill(MANY)
    other, deleter = hall.open(), hall.open()
    client.connection.lost(hall.now)
    hall.say(deleter, "queue.delete", queue="q", if_empty=True)
    hall.say(other, "basic.get", queue="q", no_ack=True)
    hall.say(other, "queue.purge", queue="q")
    assert hall.q.returning is not None and hall.q.message_count < MANY
    hall.tick()
    [get, purged] = other.read()
    assert (get.name, get.body) == ("basic.get-ok", b"0")
    assert purged["message_count"] == MANY - 1
    assert deleter.read()[0].name == "channel.close"


def test_whoever_waits_for_a_queue_that_is_deleted_is_told() -> None:
    hall = Hall()
    client = hall.consumer()
    hall.fill(MANY)
    other, deleter = hall.open(), hall.open()
    client.connection.lost(hall.now)
    hall.say(other, "basic.get", queue="q")
    hall.say(deleter, "queue.delete", queue="q")
    hall.tick()
    [closed] = other.read()
    assert (closed.name, closed["reply_code"], closed["failed_method"]) == ("channel.close", 404, 70)
    assert deleter.read()[0].name == "queue.delete-ok"
    assert not hall.vhost.removals.requeueing


def test_messages_of_many_queues_are_put_back_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall()
    client = hall.open()
    for number in range(300):
        hall.publisher.call(1, "queue.declare", queue=f"q{number}")
        client.send(1, "basic.consume", queue=f"q{number}", consumer_tag=f"{number}")
        hall.publisher.raw(message(1, b"x", "", f"q{number}") * 20)
    made: list[int] = []
    requeue = Queue.requeue

    def counted(queue: Queue, entries: list[Entry], *, failed: bool = True) -> None:
        made[-1] += len(entries)
        requeue(queue, entries, failed=failed)

    monkeypatch.setattr(Queue, "requeue", counted)
    made.append(0)
    client.connection.lost(hall.now)
    while hall.busy:
        made.append(0)
        hall.turn()
    assert sum(made) == 6000 and max(made) <= PIECE
    assert all(queue.message_count == 20 for name, queue in hall.vhost.queues.items() if name != "q")


def test_a_queue_that_is_deactivated_keeps_all_of_it() -> None:
    hall = Hall()
    client = hall.consumer()
    hall.fill(MANY)
    client.connection.lost(hall.now)
    hall.turn()
    hall.vhost.shared.deactivate()
    assert hall.q.total_count == MANY and not hall.vhost.removals.in_pieces


def test_deliveries_of_one_message_each_are_few_runs() -> None:
    """Or each would cost an object, and a step of its own at the end."""
    hall = Hall()
    client = hall.consumer()
    for _ in range(640):
        hall.fill(1)
    unacked = client.connection.channels[1].unacked
    assert len(unacked) == 640 and len(unacked._runs) == 10
    for tag in (5, 64, 65, 640):
        client.send(1, "basic.ack", delivery_tag=tag)
    client.send(1, "basic.ack", delivery_tag=638, multiple=True)
    assert hall.q.unacked_count == 1 and not client.closed


@PURE_ONLY
def test_the_limit_of_a_channel_is_looked_at_once_for_many_acks(monkeypatch: pytest.MonkeyPatch) -> None:
    hall = Hall()
    client = hall.open()
    client.call(1, "basic.qos", prefetch_count=1000, global_=True)
    for number in range(50):
        client.call(1, "basic.consume", queue="q", consumer_tag=f"{number}")
    hall.fill(1000)
    assert hall.q.unacked_count == 1000
    woken: list[Any] = []
    wake = consuming.ChannelConsumers.wake
    monkeypatch.setattr(consuming.ChannelConsumers, "wake", lambda self: woken.append(self) or wake(self))
    hall.say(client, "basic.ack", delivery_tag=0, multiple=True)
    assert len(woken) == 1


@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.integers(0, 4)), max_size=300), st.integers(1, 50)
)
def test_the_newest_are_taken_first_each_once(given_: list[tuple[int, bool, int]], most: int) -> None:
    envelopes = {epoch: envelope(epoch) for epoch in range(1, 4)}
    returning = Returning()
    order = Random(7)
    ids = [((epoch, sequence), failed, run) for sequence, (epoch, failed, run) in enumerate(given_)]
    for failed in (False, True):
        for number in range(5):
            mine = [
                (seq, envelopes[epoch], b"")
                for (epoch, seq), its, run in ids
                if (its, run) == (failed, number)
            ]
            order.shuffle(mine)
            if mine:
                returning.add(mine, failed=failed)
    taken: list[tuple[tuple[int, int], bool]] = []
    while returning:
        piece = [((its.epoch, seq), failed) for part, failed in returning.take(most) for seq, its, _ in part]
        assert 0 < len(piece) <= most
        assert not taken or max(piece) < min(taken)
        taken = sorted(piece) + taken
    assert taken == sorted((id_, failed) for id_, failed, _ in ids)


@given(st.sets(st.integers(1, 400)), st.integers(0, 2**400))
def test_whatever_lies_among_others_gets_its_place(all_: set[int], chosen: int) -> None:
    one = envelope(1)
    entries = [(seq, one, b"") for seq in sorted(all_)]
    back = [entry for at, entry in enumerate(entries) if chosen >> at & 1]
    ready = deque(entry for at, entry in enumerate(entries) if not chosen >> at & 1)
    put_back(ready, back)
    assert list(ready) == entries


@pytest.mark.parametrize("gone", [True, False])
def test_a_link_that_drains_meanwhile_is_answered_if_it_is_there(gone: bool) -> None:
    wire = pytest.importorskip("tests.broker.amqp10.wire")
    hall = Hall()
    hall.broker.protocols.update(wire.PROTOCOLS)
    holder = hall.consumer()
    hall.fill(MANY)
    talker = wire.Talker(hall)
    link = talker.receiver("/queues/q")
    requeueing = hall.vhost.removals.requeueing
    requeueing.piece = 0
    holder.connection.lost(hall.now)
    assert hall.q.returning is not None
    link.drain(10)
    talker.turn()
    assert link.credit == 10, "it is not known yet what there is for it"
    if gone:
        talker.connection.lost(hall.now)
    requeueing.piece = PIECE
    hall.tick()
    assert hall.q.returning is None
    if not gone:
        talker.turn()
        assert link.queued == 10
