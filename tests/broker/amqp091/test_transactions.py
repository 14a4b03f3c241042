"""The tx class on the wire: what a transaction holds, rollback, and refusals (invariant 7)."""

from __future__ import annotations

import pytest

from broker.model.history.records import Commit, EnqueueRun, Record, Unrouted
from broker.model.values import Scope
from broker.model.vhost.turns import PER_RUN
from tests.broker.amqp091.transacting import Batches, bodies, counts, fill, got, refused, transacting
from tests.broker.amqp091.wire import World, message

RED = b"\x20\0" + (12).to_bytes(4, "big") + b"\x06colourS\0\0\0\0"


# -- the mode


@pytest.mark.parametrize("method", ["tx.commit", "tx.rollback"])
def test_neither_commit_nor_rollback_without_select(method: str) -> None:
    world = World()
    client = world.open()
    client.send(1, method)
    seen = refused(client, 406, "channel is not transactional")
    assert (seen["failed_class"], seen["failed_method"]) == (90, 20 if method == "tx.commit" else 30)


def test_select_twice_is_fine_and_keeps_what_is_held() -> None:
    world = World()
    client = transacting(world, "q")
    client.publish(1, b"1", routing_key="q")
    assert client.call(1, "tx.select").name == "tx.select-ok"
    assert client.call(1, "tx.commit").name == "tx.commit-ok"
    assert bodies(world, "q") == [b"1"]


def test_confirms_and_transactions_exclude_each_other() -> None:
    world = World()
    client = world.open()
    client.call(1, "confirm.select")
    client.send(1, "tx.select")
    refused(client, 406, "cannot switch from confirm to tx mode")
    client = transacting(world)
    client.send(1, "confirm.select")
    refused(client, 406, "cannot switch from tx to confirm mode")


def test_an_empty_transaction_commits_and_rolls_back() -> None:
    world = World()
    client = transacting(world)
    for _ in range(2):
        assert client.call(1, "tx.commit").name == "tx.commit-ok"
        assert client.call(1, "tx.rollback").name == "tx.rollback-ok"


def test_another_channel_of_the_connection_is_no_part_of_it() -> None:
    world = World()
    client = transacting(world, "q")
    client.call(2, "channel.open")
    client.publish(1, b"held", routing_key="q")
    client.publish(2, b"not held", routing_key="q")
    assert bodies(world, "q") == [b"not held"]


# -- publishes


def test_publishes_wait_for_the_commit_in_order_over_several_queues() -> None:
    world = World()
    client = transacting(world, "a", "b")
    for n, queue in enumerate("aabba"):
        client.publish(1, b"%d" % n, routing_key=queue)
    assert (counts(world, "a"), counts(world, "b")) == ((0, 0), (0, 0))
    assert client.read() == []
    assert client.call(1, "tx.commit").name == "tx.commit-ok"
    assert (bodies(world, "a"), bodies(world, "b")) == ([b"0", b"1", b"4"], [b"2", b"3"])


def test_every_split_of_the_input_gives_the_same() -> None:
    """A message in several frames and one in a single frame, cut at every byte."""
    data = message(1, b"a" * 300, "", "q", frame_max=108) + message(1, b"b", "", "q")
    for size in (1, 7, 21, len(data)):
        world = World()
        client = transacting(world, "q")
        for at in range(0, len(data), size):
            client.raw(data[at : at + size])
        assert counts(world, "q") == (0, 0)
        client.call(1, "tx.commit")
        assert bodies(world, "q") == [b"a" * 300, b"b"]


def test_a_rollback_forgets_them_and_the_next_transaction_is_another() -> None:
    world = World()
    client = transacting(world, "q")
    client.publish(1, b"no", routing_key="q")
    assert client.call(1, "tx.rollback").name == "tx.rollback-ok"
    client.publish(1, b"yes", routing_key="q")
    client.call(1, "tx.commit")
    client.call(1, "tx.commit")
    assert bodies(world, "q") == [b"yes"]


def test_a_missing_exchange_closes_the_channel_and_publishes_nothing() -> None:
    world = World()
    client = transacting(world, "q")
    client.publish(1, b"1", routing_key="q")
    client.publish(1, b"2", exchange="none", routing_key="q")
    refused(client, 404, "none")
    client.send(1, "tx.commit")
    client.send(1, "channel.close-ok")
    assert client.call(1, "channel.open").name == "channel.open-ok"
    client.send(1, "tx.commit")
    refused(client, 406, "channel is not transactional")
    assert bodies(world, "q") == []


def test_an_internal_exchange_is_refused_at_once() -> None:
    world = World()
    client = transacting(world)
    client.call(1, "exchange.declare", exchange="x", type="fanout", internal=True)
    client.publish(1, b"1", exchange="x")
    refused(client, 403, "internal")


def test_publishes_keep_the_route_of_their_publish_time() -> None:
    world = World()
    client = transacting(world, "old", "new", "both")
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
    assert [bodies(world, name) for name in ("old", "new", "both")] == [[], [], [b"1"]]


def test_headers_decide_when_they_are_published() -> None:
    world = World()
    client = transacting(world, "q")
    client.call(1, "exchange.declare", exchange="h", type="headers")
    client.call(1, "queue.bind", queue="q", exchange="h", arguments={"x-match": "all", "colour": ""})
    client.publish(1, b"red", exchange="h", properties=RED)
    client.publish(1, b"none", exchange="h")
    client.call(1, "queue.unbind", queue="q", exchange="h", arguments={"x-match": "all", "colour": ""})
    client.call(1, "tx.commit")
    assert bodies(world, "q") == [b"red"]


def test_unroutable_mandatory_messages_return_before_commit_ok() -> None:
    world = World()
    client = transacting(world, "q", "gone")
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


# -- the ledger


def noted(world: World, *, ledger: bool = True, properties: dict[str, object] | None = None) -> list[Record]:
    """Everything that history records of publishes, for two transactions with a rolled-back one in
    between."""
    batches = Batches()
    world.broker.sinks.append(batches)
    world.vhost.history.ledger_wanted = ledger
    client = world.open(properties=properties)
    client.call(1, "queue.declare", queue="q")
    client.publish(1, b"0", routing_key="q")
    client.call(1, "tx.select")
    for end, bodies_ in (("commit", "ab"), ("rollback", "c"), ("commit", "de"), ("commit", "")):
        for body in bodies_:
            client.publish(1, body.encode(), routing_key="nowhere" if body == "d" else "q")
        client.call(1, f"tx.{end}")
    return [
        r for batch in batches.taken for r in batch.records if isinstance(r, EnqueueRun | Unrouted | Commit)
    ]


def test_a_commit_is_noted_with_its_tags_in_the_batch_of_its_messages() -> None:
    world = World()
    before, ab, first, d, e, second = noted(world, properties={"producer": "p"})
    runs = [run for run in (before, ab, e) if isinstance(run, EnqueueRun)]
    tags = [(run.producer, run.producer_first, run.count) for run in runs[1:]]
    assert runs[0].producer is None and tags == [("p/1", 1, 2), ("p/1", 5, 1)]
    assert (first, d, second) == (Commit("p/1", 1, 2), Unrouted("p/1", 4, 4), Commit("p/1", 4, 5))
    assert not Commit("p/1", 4, 5).scope & (Scope.STORE | Scope.LINK)


def test_publishes_without_a_producer_name_or_ledger_are_not_noted() -> None:
    for records in (noted(World()), noted(World(), ledger=False, properties={"producer": "p"})):
        assert [type(record) for record in records] in ([EnqueueRun] * 3, [])
        assert not [r for r in records if isinstance(r, EnqueueRun) and r.producer is not None]


# -- acks


def test_acks_wait_for_the_commit() -> None:
    world = World()
    client = transacting(world, "q")
    fill(world, "q", b"1", b"2", b"3", b"4")
    assert got(client, "q", 4) == [1, 2, 3, 4]
    client.send(1, "basic.ack", delivery_tag=2)
    client.send(1, "basic.nack", delivery_tag=3, requeue=False)
    client.send(1, "basic.reject", delivery_tag=4, requeue=True)
    assert counts(world, "q") == (0, 4)
    client.call(1, "tx.commit")
    assert counts(world, "q") == (1, 1)
    client.send(1, "basic.ack", delivery_tag=0, multiple=True)
    client.call(1, "tx.commit")
    assert bodies(world, "q") == [b"4"]


@pytest.mark.parametrize("again", ["basic.ack", "basic.nack", "basic.reject"])
def test_a_tag_is_checked_at_once_and_taken_once(again: str) -> None:
    world = World()
    client = transacting(world, "q")
    fill(world, "q", b"1", b"2")
    got(client, "q", 2)
    client.send(1, "basic.ack", delivery_tag=1)
    client.send(1, again, delivery_tag=1)
    refused(client, 406, "unknown delivery tag 1")
    assert counts(world, "q") == (2, 0)


def test_a_rollback_makes_them_outstanding_again_and_requeues_nothing() -> None:
    world = World()
    client = transacting(world, "q")
    fill(world, "q", *[b"%d" % n for n in range(1, 8)])
    got(client, "q", 7)
    for tag in (4, 2):
        client.send(1, "basic.ack", delivery_tag=tag)
    client.send(1, "basic.nack", delivery_tag=6, requeue=True)
    client.call(1, "tx.rollback")
    assert counts(world, "q") == (0, 7)
    client.send(1, "basic.ack", delivery_tag=3, multiple=True)
    client.send(1, "basic.ack", delivery_tag=4)
    client.send(1, "basic.nack", delivery_tag=6, requeue=True)
    client.call(1, "tx.commit")
    assert counts(world, "q") == (1, 2)
    client.send(1, "channel.close")
    assert bodies(world, "q") == [b"5", b"6", b"7"]


def test_many_rollbacks_leave_the_list_as_it_was() -> None:
    world = World()
    client = transacting(world, "q")
    fill(world, "q", *[b"x"] * 10)
    client.send(1, "basic.consume", queue="q")
    assert len(client.read()) == 11
    for tag in (5, 1, 9, 10, 2):
        client.send(1, "basic.ack", delivery_tag=tag)
        client.call(1, "tx.rollback")
    outstanding = client.connection.channels[1].unacked
    assert [(run.first, len(run.entries)) for run in outstanding._runs] == [(1, 10)]


def test_prefetch_is_free_again_at_the_commit_and_not_before() -> None:
    world = World()
    client = transacting(world, "q")
    fill(world, "q", b"1", b"2", b"3")
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


def test_recover_requeues_outstanding_but_not_acked_messages() -> None:
    world = World()
    client = transacting(world, "q")
    fill(world, "q", b"1", b"2")
    got(client, "q", 2)
    client.send(1, "basic.ack", delivery_tag=1)
    client.call(1, "basic.recover", requeue=True)
    assert counts(world, "q") == (1, 1)
    client.call(1, "tx.commit")
    assert bodies(world, "q") == [b"2"]


@pytest.mark.parametrize("end", ["channel", "connection", "socket"])
def test_a_closing_client_rolls_back_and_requeues(end: str) -> None:
    world = World()
    client = transacting(world, "q", "r")
    fill(world, "q", b"1", b"2")
    got(client, "q", 2)
    client.send(1, "basic.ack", delivery_tag=1)
    client.publish(1, b"held", routing_key="r")
    if end == "socket":
        client.connection.lost(world.now)
        world.tick()
    else:
        client.send(1 if end == "channel" else 0, f"{end}.close", reply_code=200)
    assert (bodies(world, "q"), bodies(world, "r")) == ([b"1", b"2"], [])
    assert client.connection.uncommitted == 0


@pytest.mark.parametrize("end", ["tx.commit", "tx.rollback"])
def test_acks_of_a_queue_that_was_deleted_do_no_harm(end: str) -> None:
    world = World()
    client = transacting(world, "q", "r")
    fill(world, "q", b"1", b"2", b"3")
    client.call(1, "basic.qos", prefetch_count=2, global_=True)
    client.send(1, "basic.consume", queue="q")
    client.read()
    client.send(1, "basic.ack", delivery_tag=1)
    client.send(1, "basic.nack", delivery_tag=2, requeue=True)
    client.send(1, "queue.delete", queue="q")
    assert client.names() == ["queue.delete-ok", "basic.cancel"]
    client.call(1, "queue.declare", queue="q")
    assert client.call(1, end).name == f"{end}-ok"
    if end == "tx.rollback":
        client.send(1, "basic.ack", delivery_tag=2, multiple=True)
        client.call(1, "tx.commit")
    fill(world, "r", b"4", b"5", b"6")
    client.send(1, "basic.consume", queue="r")
    assert [s.body for s in client.read()][1:] == [b"4", b"5"]
    assert counts(world, "q") == (0, 0)


def test_no_ack_deliveries_are_not_part_of_a_transaction() -> None:
    world = World()
    client = transacting(world, "q")
    fill(world, "q", b"1", b"2")
    client.call(1, "basic.get", queue="q", no_ack=True)
    client.send(1, "basic.consume", queue="q", no_ack=True)
    client.read()
    client.call(1, "tx.rollback")
    assert counts(world, "q") == (0, 0)


# -- what is too much


@pytest.mark.parametrize(("publishes", "committed"), [(5, True), (6, False)])
def test_a_transaction_has_a_limit(publishes: int, committed: bool) -> None:
    """A message counts once for each of its queues, and each run has a fixed cost."""
    world = World(transaction_max=10 + 2 * PER_RUN)
    client = transacting(world, "a", "b")
    for name in "ab":
        client.call(1, "queue.bind", queue=name, exchange="amq.fanout", routing_key="")
    for _ in range(publishes):
        client.publish(1, b"x", exchange="amq.fanout", routing_key="")
    client.send(1, "tx.commit")
    if committed:
        assert client.read()[-1].name == "tx.commit-ok"
    else:
        refused(client, 406, f"transaction not committed: it takes {12 + 2 * PER_RUN} steps")
    assert [counts(world, name) for name in "ab"] == [(5 * committed, 0)] * 2


@pytest.mark.parametrize("letters", [True, False])
def test_dead_letters_count_by_their_cost(letters: bool) -> None:
    world = World(transaction_max=299)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"} if letters else {}
    fills = world.open()
    fills.call(1, "queue.declare", queue="dead")
    fills.call(1, "queue.declare", queue="q", arguments=arguments)
    for _ in range(3):
        fills.publish(1, b"x", routing_key="q")
    client = transacting(world)
    for tag in (1, 2, 3):
        client.send(1, "basic.get", queue="q")
        client.send(1, "basic.reject", delivery_tag=tag, requeue=False)
    client.read()
    client.send(1, "tx.commit")
    if letters:
        refused(client, 406, "it takes 300 steps, and may take 299 (broker.transaction_max)")
    else:
        assert client.read()[-1].name == "tx.commit-ok"
    assert [counts(world, name)[0] for name in ("q", "dead")] == [3 * letters, 0]


def test_a_dead_letter_counts_for_all_its_queues() -> None:
    """Their number is known after the route look-up, which is before the commit."""
    world = World(transaction_max=1000)
    fills = world.open()
    for number in range(200):
        fills.call(1, "queue.declare", queue=f"dead{number}")
        fills.call(1, "queue.bind", queue=f"dead{number}", exchange="amq.fanout", routing_key="")
    fills.call(1, "queue.declare", queue="q", arguments={"x-dead-letter-exchange": "amq.fanout"})
    fills.publish(1, b"x", routing_key="q")
    client = transacting(world)
    client.send(1, "basic.get", queue="q")
    client.send(1, "basic.reject", delivery_tag=1, requeue=False)
    client.read()
    client.send(1, "tx.commit")
    refused(client, 406, "steps, and may take 1000 (broker.transaction_max)")
    assert (counts(world, "q"), counts(world, "dead0")) == ((1, 0), (0, 0))
