"""The tx class on the wire: what is held, what a commit does at once, what a rollback gives back, and when
commit-ok leaves (invariants 6, 7)."""

from __future__ import annotations

import pytest

from broker.hooks import Hooks
from broker.model.records import Batch, Dequeue, EnqueueRun, QueueDeclare
from broker.model.values import FOREVER, Position, Reason, Scope
from tests.broker.amqp091.wire import ManualGate, Raw, Seen, World, message

PERSISTENT = b"\x10\0\x02"
RED = b"\x20\0" + (12).to_bytes(4, "big") + b"\x06colourS\0\0\0\0"


class Replicated(Hooks):
    """Every queue but those called `local...` goes over the link; durable ones to the store as well."""

    def queue_scope(self, declared: QueueDeclare) -> Scope:
        if declared.name.startswith("local"):
            return Scope.NONE
        return Scope.LINK | Scope.STORE if declared.durable else Scope.LINK


class Batches:
    """A sink that keeps all."""

    def __init__(self) -> None:
        self.taken: list[Batch] = []

    def batch(self, batch: Batch) -> None:
        self.taken.append(batch)


def _client(world: World, *queues: str, durable: bool = False) -> Raw:
    client = world.open()
    for name in queues:
        client.call(1, "queue.declare", queue=name, durable=durable)
    assert client.call(1, "tx.select").name == "tx.select-ok"
    return client


def _fill(world: World, queue: str, *bodies: bytes, properties: bytes = b"\0\0") -> None:
    other = world.open()
    for body in bodies:
        other.publish(1, body, routing_key=queue, properties=properties)
    assert other.read() == []


def _counts(world: World, name: str) -> tuple[int, int]:
    """Ready and unacknowledged."""
    queue = world.vhost.queues[name]
    return queue.message_count, queue.unacked_count


def _got(client: Raw, queue: str, count: int) -> list[int]:
    return [client.call(1, "basic.get", queue=queue)["delivery_tag"] for _ in range(count)]


def _bodies(world: World, queue: str) -> list[bytes]:
    reader = world.open()
    bodies = []
    while (seen := reader.call(1, "basic.get", queue=queue, no_ack=True)).name == "basic.get-ok":
        bodies.append(seen.body)
    return bodies


def _refused(client: Raw, code: int, text: str, *, name: str = "channel.close") -> Seen:
    (seen,) = client.read()
    assert (seen.name, seen["reply_code"]) == (name, code), seen
    assert text in seen["reply_text"]
    return seen


# -- the mode


@pytest.mark.parametrize("method", ["tx.commit", "tx.rollback"])
def test_neither_commit_nor_rollback_without_select(method: str) -> None:
    world = World()
    client = world.open()
    client.send(1, method)
    seen = _refused(client, 406, "channel is not transactional")
    assert (seen["failed_class"], seen["failed_method"]) == (90, 20 if method == "tx.commit" else 30)


def test_select_twice_is_fine_and_keeps_what_is_held() -> None:
    world = World()
    client = _client(world, "q")
    client.publish(1, b"1", routing_key="q")
    assert client.call(1, "tx.select").name == "tx.select-ok"
    assert client.call(1, "tx.commit").name == "tx.commit-ok"
    assert _bodies(world, "q") == [b"1"]


def test_confirms_and_transactions_exclude_each_other() -> None:
    world = World()
    client = world.open()
    client.call(1, "confirm.select")
    client.send(1, "tx.select")
    _refused(client, 406, "cannot switch from confirm to tx mode")
    client = _client(world)
    client.send(1, "confirm.select")
    _refused(client, 406, "cannot switch from tx to confirm mode")


def test_an_empty_transaction_commits_and_rolls_back() -> None:
    world = World()
    client = _client(world)
    for _ in range(2):
        assert client.call(1, "tx.commit").name == "tx.commit-ok"
        assert client.call(1, "tx.rollback").name == "tx.rollback-ok"


def test_another_channel_of_the_connection_is_no_part_of_it() -> None:
    world = World()
    client = _client(world, "q")
    client.call(2, "channel.open")
    client.publish(1, b"held", routing_key="q")
    client.publish(2, b"not held", routing_key="q")
    assert _bodies(world, "q") == [b"not held"]


# -- publishes


def test_publishes_wait_for_the_commit_in_order_over_several_queues() -> None:
    world = World()
    client = _client(world, "a", "b")
    for n, queue in enumerate("aabba"):
        client.publish(1, b"%d" % n, routing_key=queue)
    assert (_counts(world, "a"), _counts(world, "b")) == ((0, 0), (0, 0))
    assert client.read() == []
    assert client.call(1, "tx.commit").name == "tx.commit-ok"
    assert (_bodies(world, "a"), _bodies(world, "b")) == ([b"0", b"1", b"4"], [b"2", b"3"])


def test_every_split_of_the_input_gives_the_same() -> None:
    """A message in several frames, and one in one, cut anywhere."""
    data = message(1, b"a" * 300, "", "q", frame_max=108) + message(1, b"b", "", "q")
    for size in (1, 7, 21, len(data)):
        world = World()
        client = _client(world, "q")
        for at in range(0, len(data), size):
            client.raw(data[at : at + size])
        assert _counts(world, "q") == (0, 0)
        client.call(1, "tx.commit")
        assert _bodies(world, "q") == [b"a" * 300, b"b"]


def test_a_rollback_forgets_them_and_the_next_transaction_is_another() -> None:
    world = World()
    client = _client(world, "q")
    client.publish(1, b"no", routing_key="q")
    assert client.call(1, "tx.rollback").name == "tx.rollback-ok"
    client.publish(1, b"yes", routing_key="q")
    client.call(1, "tx.commit")
    client.call(1, "tx.commit")
    assert _bodies(world, "q") == [b"yes"]


def test_a_missing_exchange_closes_the_channel_at_once_and_nothing_is_published() -> None:
    world = World()
    client = _client(world, "q")
    client.publish(1, b"1", routing_key="q")
    client.publish(1, b"2", exchange="none", routing_key="q")
    _refused(client, 404, "none")
    client.send(1, "tx.commit")
    client.send(1, "channel.close-ok")
    assert client.call(1, "channel.open").name == "channel.open-ok"
    client.send(1, "tx.commit")
    _refused(client, 406, "channel is not transactional")
    assert _bodies(world, "q") == []


def test_an_internal_exchange_is_refused_at_once() -> None:
    world = World()
    client = _client(world)
    client.call(1, "exchange.declare", exchange="x", type="fanout", internal=True)
    client.publish(1, b"1", exchange="x")
    _refused(client, 403, "internal")


def test_they_go_where_they_were_routed_when_they_were_published() -> None:
    world = World()
    client = _client(world, "old", "new", "both")
    client.call(1, "exchange.declare", exchange="x", type="fanout")
    client.call(1, "queue.bind", queue="old", exchange="x")
    client.call(1, "queue.bind", queue="both", exchange="x")
    client.publish(1, b"1", exchange="x", mandatory=True)
    client.call(1, "queue.bind", queue="new", exchange="x")
    client.call(1, "queue.delete", queue="old")
    client.call(1, "queue.declare", queue="old")
    client.call(1, "exchange.delete", exchange="x")
    batches = Batches()
    world.broker.sinks.append(batches)
    world.vhost.history.ledger_wanted = True
    assert client.call(1, "tx.commit").name == "tx.commit-ok"
    (run,) = [r for batch in batches.taken for r in batch.records if isinstance(r, EnqueueRun)]
    assert run.queues == [world.vhost.queues["both"].uuid]
    assert [_bodies(world, name) for name in ("old", "new", "both")] == [[], [], [b"1"]]


def test_headers_decide_when_they_are_published() -> None:
    world = World()
    client = _client(world, "q")
    client.call(1, "exchange.declare", exchange="h", type="headers")
    client.call(1, "queue.bind", queue="q", exchange="h", arguments={"x-match": "all", "colour": ""})
    client.publish(1, b"red", exchange="h", properties=RED)
    client.publish(1, b"none", exchange="h")
    client.call(1, "queue.unbind", queue="q", exchange="h", arguments={"x-match": "all", "colour": ""})
    client.call(1, "tx.commit")
    assert _bodies(world, "q") == [b"red"]


def test_what_is_mandatory_and_goes_nowhere_comes_back_before_commit_ok() -> None:
    world = World()
    client = _client(world, "q", "gone")
    client.publish(1, b"1", routing_key="none", mandatory=True)
    client.publish(1, b"2", routing_key="none")
    client.publish(1, b"3", routing_key="gone", mandatory=True)
    client.publish(1, b"4", routing_key="q", mandatory=True)
    client.call(1, "queue.delete", queue="gone")
    client.send(1, "tx.commit")
    seen = client.read()
    assert [s.name for s in seen] == ["basic.return", "basic.return", "tx.commit-ok"]
    assert [(s.body, s["reply_code"], s["routing_key"]) for s in seen[:2]] == [
        (b"1", 312, "none"),
        (b"3", 312, "gone"),
    ]
    client.publish(1, b"5", routing_key="none", mandatory=True)
    assert client.call(1, "tx.rollback").name == "tx.rollback-ok"
    assert client.call(1, "tx.commit").name == "tx.commit-ok"


# -- acks


def test_acks_wait_for_the_commit() -> None:
    world = World()
    client = _client(world, "q")
    _fill(world, "q", b"1", b"2", b"3", b"4")
    assert _got(client, "q", 4) == [1, 2, 3, 4]
    client.send(1, "basic.ack", delivery_tag=2)
    client.send(1, "basic.nack", delivery_tag=3, requeue=False)
    client.send(1, "basic.reject", delivery_tag=4, requeue=True)
    assert _counts(world, "q") == (0, 4)
    client.call(1, "tx.commit")
    assert _counts(world, "q") == (1, 1)
    client.send(1, "basic.ack", delivery_tag=0, multiple=True)
    client.call(1, "tx.commit")
    assert _bodies(world, "q") == [b"4"]


@pytest.mark.parametrize("again", ["basic.ack", "basic.nack", "basic.reject"])
def test_a_tag_is_checked_at_once_and_taken_once(again: str) -> None:
    world = World()
    client = _client(world, "q")
    _fill(world, "q", b"1", b"2")
    _got(client, "q", 2)
    client.send(1, "basic.ack", delivery_tag=1)
    client.send(1, again, delivery_tag=1)
    _refused(client, 406, "unknown delivery tag 1")
    assert _counts(world, "q") == (2, 0)


def test_a_rollback_makes_them_outstanding_again_and_requeues_nothing() -> None:
    world = World()
    client = _client(world, "q")
    _fill(world, "q", *[b"%d" % n for n in range(1, 8)])
    _got(client, "q", 7)
    for tag in (4, 2):
        client.send(1, "basic.ack", delivery_tag=tag)
    client.send(1, "basic.nack", delivery_tag=6, requeue=True)
    client.call(1, "tx.rollback")
    assert _counts(world, "q") == (0, 7)
    client.send(1, "basic.ack", delivery_tag=3, multiple=True)
    client.send(1, "basic.ack", delivery_tag=4)
    client.send(1, "basic.nack", delivery_tag=6, requeue=True)
    client.call(1, "tx.commit")
    assert _counts(world, "q") == (1, 2)
    client.send(1, "channel.close")
    assert _bodies(world, "q") == [b"5", b"6", b"7"]


def test_many_rollbacks_leave_the_list_as_it_was() -> None:
    world = World()
    client = _client(world, "q")
    _fill(world, "q", *[b"x"] * 10)
    client.send(1, "basic.consume", queue="q")
    assert len(client.read()) == 11
    for tag in (5, 1, 9, 10, 2):
        client.send(1, "basic.ack", delivery_tag=tag)
        client.call(1, "tx.rollback")
    outstanding = client.connection.channels[1]._unacked
    assert [(run.first, len(run.entries)) for run in outstanding._runs] == [(1, 10)]


def test_prefetch_is_free_again_at_the_commit_and_not_before() -> None:
    world = World()
    client = _client(world, "q")
    _fill(world, "q", b"1", b"2", b"3")
    client.call(1, "basic.qos", prefetch_count=1)
    client.send(1, "basic.consume", queue="q")
    assert [s.body for s in client.read()][1:] == [b"1"]
    client.send(1, "basic.ack", delivery_tag=1)
    assert client.read() == []
    client.send(1, "tx.commit")
    assert sorted(client.names()) == ["basic.deliver", "tx.commit-ok"]
    client.send(1, "basic.ack", delivery_tag=2)
    assert client.call(1, "tx.rollback").name == "tx.rollback-ok"
    client.send(1, "basic.ack", delivery_tag=2)
    client.send(1, "tx.commit")
    assert sorted(client.names()) == ["basic.deliver", "tx.commit-ok"]


def test_recover_requeues_what_is_outstanding_and_leaves_what_was_acked() -> None:
    world = World()
    client = _client(world, "q")
    _fill(world, "q", b"1", b"2")
    _got(client, "q", 2)
    client.send(1, "basic.ack", delivery_tag=1)
    client.call(1, "basic.recover", requeue=True)
    assert _counts(world, "q") == (1, 1)
    client.call(1, "tx.commit")
    assert _bodies(world, "q") == [b"2"]


@pytest.mark.parametrize("end", ["channel", "connection", "socket"])
def test_whoever_goes_rolls_back_and_gives_all_back(end: str) -> None:
    world = World()
    client = _client(world, "q", "r")
    _fill(world, "q", b"1", b"2")
    _got(client, "q", 2)
    client.send(1, "basic.ack", delivery_tag=1)
    client.publish(1, b"held", routing_key="r")
    if end == "socket":
        client.connection.lost(world.now)
        world.tick()
    else:
        client.send(1 if end == "channel" else 0, f"{end}.close", reply_code=200)
    assert (_bodies(world, "q"), _bodies(world, "r")) == ([b"1", b"2"], [])
    assert client.connection.publisher.transacting == 0


@pytest.mark.parametrize("end", ["tx.commit", "tx.rollback"])
def test_acks_of_a_queue_that_was_deleted_do_no_harm(end: str) -> None:
    world = World()
    client = _client(world, "q", "r")
    _fill(world, "q", b"1", b"2", b"3")
    client.call(1, "basic.qos", prefetch_count=2, global_=True)
    client.send(1, "basic.consume", queue="q")
    client.read()
    client.send(1, "basic.ack", delivery_tag=1)
    client.send(1, "basic.nack", delivery_tag=2, requeue=True)
    client.send(1, "queue.delete", queue="q")
    assert client.names() == ["basic.cancel", "queue.delete-ok"]
    client.call(1, "queue.declare", queue="q")
    assert client.call(1, end).name == f"{end}-ok"
    if end == "tx.rollback":
        client.send(1, "basic.ack", delivery_tag=2, multiple=True)
        client.call(1, "tx.commit")
    _fill(world, "r", b"4", b"5", b"6")
    client.send(1, "basic.consume", queue="r")
    assert [s.body for s in client.read()][1:] == [b"4", b"5"]
    assert _counts(world, "q") == (0, 0)


def test_what_is_never_acked_is_no_part_of_it() -> None:
    world = World()
    client = _client(world, "q")
    _fill(world, "q", b"1", b"2")
    client.call(1, "basic.get", queue="q", no_ack=True)
    client.send(1, "basic.consume", queue="q", no_ack=True)
    client.read()
    client.call(1, "tx.rollback")
    assert _counts(world, "q") == (0, 0)


# -- one batch, and when commit-ok leaves


def _gated() -> tuple[World, ManualGate, Batches]:
    world = World(Replicated())
    gate, batches = ManualGate(), Batches()
    gate.applied = gate.durable = FOREVER
    world.broker.gates.append(gate)
    world.broker.sinks.append(batches)
    return world, gate, batches


def _move(world: World, client: Raw, properties: bytes) -> None:
    """Two from one queue to two others, in one transaction."""
    _got(client, "a", 2)
    client.publish(1, b"x", routing_key="b", properties=properties)
    client.publish(1, b"y", routing_key="c", properties=properties)
    client.send(1, "basic.ack", delivery_tag=2)
    client.send(1, "basic.reject", delivery_tag=1)


def test_a_commit_is_one_batch_with_its_dequeues() -> None:
    world, _, batches = _gated()
    client = _client(world, "a", "b", "c", durable=True)
    _fill(world, "a", b"1", b"2", properties=PERSISTENT)
    _move(world, client, PERSISTENT)
    before = len(batches.taken)
    client.send(1, "tx.commit")
    assert client.names() == ["tx.commit-ok"]
    (batch,) = batches.taken[before:]
    enqueued = [r for r in batch.records if isinstance(r, EnqueueRun)]
    dequeued = [r for r in batch.records if isinstance(r, Dequeue)]
    queues = world.vhost.queues
    assert [r.queues for r in enqueued] == [[queues["b"].uuid], [queues["c"].uuid]]
    assert {(r.queue, r.reason, tuple(r.ranges)) for r in dequeued} == {
        (queues["a"].uuid, Reason.ACKED, ((2, 2),)),
        (queues["a"].uuid, Reason.REJECTED, ((1, 1),)),
    }
    world.pass_time(1.0)
    assert len(batches.taken) == before + 1


def test_a_held_or_rolled_back_transaction_is_not_in_history() -> None:
    world, _, batches = _gated()
    client = _client(world, "a", "b", "c", durable=True)
    _fill(world, "a", b"1", b"2", properties=PERSISTENT)
    before = len(batches.taken)
    _move(world, client, PERSISTENT)
    client.call(1, "tx.rollback")
    world.pass_time(1.0)
    assert len(batches.taken) == before


@pytest.mark.parametrize("acks", [False, True], ids=["publishes", "acks"])
@pytest.mark.parametrize("durable", [False, True], ids=["applied", "durable"])
def test_commit_ok_waits_for_what_its_strictest_part_needs(acks: bool, durable: bool) -> None:
    world, gate, _ = _gated()
    client = _client(world, "a", "b", durable=durable)
    properties = PERSISTENT if durable else b"\0\0"
    _fill(world, "a", b"1", properties=properties)
    _got(client, "a", 1)
    gate.applied = gate.durable = world.vhost.history.position
    if acks:
        client.send(1, "basic.ack", delivery_tag=1)
    else:
        client.publish(1, b"t", routing_key="b")
        client.publish(1, b"p", routing_key="b", properties=properties)
        client.publish(1, b"t", routing_key="b")
    client.send(1, "tx.commit")
    assert client.read() == []
    gate.applied = world.vhost.history.position
    world.tick()
    if durable:
        assert client.read() == []
        gate.durable = gate.applied
        world.tick()
    assert client.names() == ["tx.commit-ok"]


def test_what_is_not_replicated_waits_for_nothing() -> None:
    world, gate, _ = _gated()
    client = _client(world, "local")
    _fill(world, "local", b"1")
    _got(client, "local", 1)
    gate.applied = gate.durable = Position(0, 0)
    client.send(1, "basic.ack", delivery_tag=1)
    client.publish(1, b"2", routing_key="local")
    assert client.call(1, "tx.commit").name == "tx.commit-ok"


def test_answers_keep_their_order_while_a_commit_waits() -> None:
    """The returns of the second transaction stand after the commit-ok of the first."""
    world, gate, _ = _gated()
    client = _client(world, "q")
    gate.applied = gate.durable = world.vhost.history.position
    client.publish(1, b"1", routing_key="q")
    client.send(1, "tx.commit")
    client.publish(1, b"2", routing_key="none", mandatory=True)
    client.send(1, "tx.commit")
    client.publish(1, b"3", routing_key="q")
    client.send(1, "tx.rollback")
    assert client.read() == []
    gate.applied = gate.durable = FOREVER
    world.tick()
    assert client.names() == ["tx.commit-ok", "basic.return", "tx.commit-ok", "tx.rollback-ok"]
    assert _bodies(world, "q") == [b"1"]


# -- memory


def test_too_much_held_closes_the_connection_and_publishes_nothing() -> None:
    world = World(assembling_max=100_000)
    client = _client(world, "q")
    client.call(2, "channel.open")
    client.call(2, "tx.select")
    for channel in (1, 2):
        client.publish(channel, b"x" * 40_000, routing_key="q")
    assert client.read() == []
    client.publish(2, b"x" * 40_000, routing_key="q")
    _refused(client, 506, "uncommitted", name="connection.close")
    assert _counts(world, "q") == (0, 0)
    assert client.connection.publisher.transacting == 0


def test_small_messages_count_for_more_than_their_frames() -> None:
    world = World(assembling_max=100_000)
    client = _client(world, "q")
    for _ in range(2000):
        client.raw(message(1, b"", "", "q"))
        if client.connection.state.value != "running":
            break
    _refused(client, 506, "uncommitted", name="connection.close")


@pytest.mark.parametrize("end", ["tx.commit", "tx.rollback"])
def test_what_is_committed_or_rolled_back_counts_no_more(end: str) -> None:
    world = World(assembling_max=100_000)
    client = _client(world, "q")
    for _ in range(10):
        client.publish(1, b"x" * 40_000, routing_key="q")
        client.call(1, end)
    assert client.connection.publisher.transacting == 0


def test_the_memory_alarm_sees_what_is_held() -> None:
    world = World(memory_limit=100_000)
    client = _client(world, "q")
    client.publish(1, b"x" * 120_000, routing_key="q")
    world.pass_time(1.1)
    assert world.broker.memory.raised
    client.connection.lost(world.now)
    world.pass_time(1.1)
    assert not world.broker.memory.raised
